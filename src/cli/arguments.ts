// Checks and parsers for arguments and flag values, applied before any request is sent.
import fs from "node:fs";
import { InvalidInput } from "../errors.ts";
import { findClosest } from "../text/suggest.ts";

export const jobStates = ["queued", "running", "paused", "completed", "failed", "cancelled"] as const;
export const webhookStates = ["pending", "delivered", "failed"] as const;
export const roles = ["reader", "operator", "admin", "worker"] as const;
export const conflictPolicies = ["join", "wait", "replace", "reject"] as const;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function checkJobId(id: string): string {
  return checkId(id, UUID, "job", "Job ids are UUIDs, as printed by enqueue; stillwake jobs lists them");
}

export function checkTokenId(id: string): string {
  return checkId(id, UUID, "token", "A token's id is a UUID, not the token itself; stillwake tokens lists them");
}

export function checkWebhookId(id: string): string {
  return checkId(id, /^msg_[0-9a-f]{32}$/i, "webhook", "Webhook ids start with msg_; stillwake webhooks lists them");
}

function checkId(id: string, pattern: RegExp, noun: string, remedy: string): string {
  if (pattern.test(id)) return id;
  // The user may have passed the token instead of its id: a secret is not printed.
  const shown = /^sw[tr]_/.test(id) ? "A token" : JSON.stringify(id);
  throw new InvalidInput(`${shown} is not a ${noun} id`, { field: "id", remedy });
}

export function checkOneOf(value: string | undefined, allowed: readonly string[], flag: string): string | undefined {
  if (value === undefined || allowed.includes(value)) return value;
  const closest = findClosest(value, allowed);
  throw new InvalidInput(`--${flag} ${JSON.stringify(value)} is not allowed`, {
    field: flag,
    remedy: closest ? `Did you mean ${closest}?` : `Allowed: ${allowed.join(", ")}`,
  });
}

/** Encodes an id or a name as one segment of a URL path. "." and ".." would change the path. */
export function pathSegment(value: string): string {
  if (value !== "." && value !== ".." && value !== "") return encodeURIComponent(value);
  throw new InvalidInput(`${JSON.stringify(value)} is neither an id nor a name`, { remedy: "Pass the id or the name" });
}

/** Parses a JSON argument: the JSON itself, `@file`, or `-` for stdin. */
export function parseJson(value: string | undefined, field: string): unknown {
  if (value === undefined) return undefined;
  const text =
    value === "-" ? fs.readFileSync(0, "utf8") : value.startsWith("@") ? readFile(value.slice(1), field) : value;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new InvalidInput(`The ${field} is not JSON: ${(error as Error).message}`, {
      field,
      remedy: `Quote it for your shell: '{"name":"world"}'; or write @file, or - for stdin`,
    });
  }
}

function readFile(file: string, field: string): string {
  try {
    return fs.readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidInput(`The ${field} cannot be read from ${file}: ${(error as { code?: string }).code}`, {
      field,
      remedy: "Check the path after the @",
    });
  }
}

export function parseInteger(value: string | undefined, flag: string): number | undefined {
  if (value === undefined) return undefined;
  if (/^-?\d{1,15}$/.test(value)) return Number(value);
  throw new InvalidInput(`--${flag} ${JSON.stringify(value)} is not a whole number`, {
    field: flag,
    remedy: `Write --${flag} 10`,
  });
}

export function parsePort(value: string): number {
  const port = Number(value);
  if (/^\d+$/.test(value) && port <= 65_535) return port;
  throw new InvalidInput(`--port ${JSON.stringify(value)} is not a port`, {
    field: "port",
    remedy: "Use a whole number from 0 to 65535; 0 selects any free port",
  });
}
