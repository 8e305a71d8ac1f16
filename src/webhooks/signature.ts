// The signature of Standard Webhooks, both ways. For senders of ours and for receivers anywhere: WebCrypto and nothing of Node, so that a function
// at the edge can verify with it.
import { StillwakeError } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";

/** A webhook that must not be believed. Answer it with 400; a repeated one (REPEATED_WEBHOOK) with 200, or it comes again. */
export class InvalidWebhook extends StillwakeError {}

/** What a thin body tells; a full one has more in `data`. */
export interface WebhookPayload {
  type: "job.completed" | "job.failed" | "job.cancelled";
  timestamp: string;
  data: { id: string; pipeline: string; state: string; attempt: number; [more: string]: unknown };
  /** What was too large. */
  left_out?: string[];
}

export interface VerifyOptions {
  /** How far the sender's clock may be from this one, either way. Default "5m". */
  tolerance?: Duration;
  /**
   * Ids whose work is done: a Set, or anything like one. They are only asked for here; add an id when its work is done, best in the same transaction, because what
   * failed comes again. Forget them after twice the tolerance at the earliest, or after the three days in which it may come again.
   */
  seen?: SeenIds;
  /** For tests: milliseconds since 1970. */
  now?: number;
}

export interface SeenIds {
  has(id: string): boolean | Promise<boolean>;
}

type HeaderValue = string | readonly string[] | null | undefined;
/** Those of fetch, or those of Node. */
export type WebhookHeaders = { get(name: string): string | null } | Readonly<Record<string, HeaderValue>>;

/** The value of webhook-signature: one signature per secret, so that receivers can change over from one to the next. */
export async function signWebhook(
  secrets: string | readonly string[],
  id: string,
  timestamp: number,
  body: string | Uint8Array,
): Promise<string> {
  checkId(id);
  const content = signedContent(id, String(Math.floor(timestamp)), body);
  const signatures = listOf(secrets).map(async (secret) => {
    const signature = await crypto.subtle.sign("HMAC", await keyOf(secret, "sign"), content);
    return `v1,${btoa(String.fromCharCode(...new Uint8Array(signature)))}`;
  });
  return (await Promise.all(signatures)).join(" ");
}

/**
 * Answers the payload of a webhook that one of these secrets has signed, and throws InvalidWebhook for any other. `body` as it came in: bytes or
 * text, not an object that was parsed and printed again.
 */
export async function verifyWebhook<Payload = WebhookPayload>(
  body: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[],
  options: VerifyOptions = {},
): Promise<Payload> {
  const id = headerOf(headers, "webhook-id");
  const timestamp = headerOf(headers, "webhook-timestamp");
  const signature = headerOf(headers, "webhook-signature");
  checkId(id);
  const toleranceMs = durationMs(options.tolerance ?? "5m", "tolerance");
  const apartMs = Number(timestamp) * 1000 - (options.now ?? Date.now());
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(apartMs) > toleranceMs) {
    throw refused("webhook-timestamp", `It was signed ${apartMs > 0 ? "in the future" : "too long ago"}`);
  }
  const content = signedContent(id, timestamp, body);
  if (!(await isSigned(content, signature, listOf(secrets)))) {
    throw refused("webhook-signature", "No secret of this receiver has signed it");
  }
  if (await options.seen?.has(id)) throw new InvalidWebhook("REPEATED_WEBHOOK", `Webhook ${id} was here before`);
  return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body)) as Payload;
}

/** Every pair is compared, by the platform in constant time. */
async function isSigned(content: Uint8Array<ArrayBuffer>, header: string, secrets: string[]): Promise<boolean> {
  // A real one has two; whoever sends thousands only wants us to work.
  const given = header.split(" ").slice(0, 10);
  const signatures = given.filter((one) => one.startsWith("v1,")).map((one) => bytesOf(one.slice(3)));
  let signed = false;
  for (const secret of secrets) {
    const key = await keyOf(secret, "verify");
    for (const signature of signatures) {
      if (signature && (await crypto.subtle.verify("HMAC", key, signature, content))) signed = true;
    }
  }
  return signed;
}

function signedContent(id: string, timestamp: string, body: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const front = new TextEncoder().encode(`${id}.${timestamp}.`);
  const rest = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const whole = new Uint8Array(front.length + rest.length);
  whole.set(front);
  whole.set(rest, front.length);
  return whole;
}

async function keyOf(
  secret: string,
  use: "sign" | "verify",
): Promise<Awaited<ReturnType<typeof crypto.subtle.importKey>>> {
  const bytes = typeof secret === "string" ? bytesOf(secret.replace(/^whsec_/, "")) : undefined;
  if (!bytes || bytes.length < 24 || bytes.length > 64) {
    throw new StillwakeError("INVALID_SECRET", "A secret is whsec_ and 24 to 64 bytes in base64", {
      field: "secret",
      remedy: "Use the one that was shown when the endpoint was made, or rotate it",
    });
  }
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, [use]);
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** The dot divides what is signed: with one in the id the same bytes could be read two ways. */
function checkId(id: string): void {
  if (!/^[^\s.]{1,200}$/.test(id)) throw refused("webhook-id", "Its id is empty, too long or has a dot in it");
}

function headerOf(headers: WebhookHeaders, name: string): string {
  const found =
    typeof headers.get === "function"
      ? (headers as { get(name: string): string | null }).get(name)
      : Object.entries(headers as Record<string, HeaderValue>).find(([key]) => key.toLowerCase() === name)?.[1];
  if (typeof found === "string" && found !== "") return found;
  throw refused(name, `It has no ${name}, or more than one`);
}

function listOf(secrets: string | readonly string[]): string[] {
  return typeof secrets === "string" ? [secrets] : [...secrets];
}

function refused(field: string, why: string): InvalidWebhook {
  return new InvalidWebhook("INVALID_WEBHOOK", `This webhook is not to be believed: ${why}`, { field });
}
