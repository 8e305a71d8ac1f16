// What can be seen to be wrong before anybody is asked: ids that are none, words that are not in a short list, a setting of the environment.

import { checkSecrets } from "../client/read-token.ts";
import { InvalidInput } from "../errors.ts";
import { nearest } from "../text/suggest.ts";

export const jobStates = ["queued", "running", "paused", "completed", "failed", "cancelled"] as const;
export const webhookStates = ["pending", "delivered", "failed"] as const;
export const roles = ["reader", "operator", "admin", "worker"] as const;
export const conflicts = ["join", "wait", "replace", "reject"] as const;

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function checkJobId(word: string): string {
  return checkId(word, UUID, "job", "It is a UUID, as enqueue printed it; stillwake jobs lists them");
}

export function checkTokenId(word: string): string {
  return checkId(word, UUID, "token", "It is a UUID and not the token; stillwake tokens lists them");
}

export function checkWebhookId(word: string): string {
  return checkId(word, /^msg_[0-9a-f]{32}$/i, "webhook", "It begins with msg_; stillwake webhooks lists them");
}

function checkId(word: string, form: RegExp, noun: string, remedy: string): string {
  if (form.test(word)) return word;
  // Somebody may have taken the token for its id: what opens doors is not printed.
  const shown = /^sw[tr]_/.test(word) ? "A token" : JSON.stringify(word);
  throw new InvalidInput(`${shown} is not a ${noun} id`, { field: "id", remedy });
}

export function checkOneOf(word: string | undefined, list: readonly string[], flag: string): string | undefined {
  if (word === undefined || list.includes(word)) return word;
  const near = nearest(word, list);
  throw new InvalidInput(`--${flag} ${JSON.stringify(word)} does not exist`, {
    field: flag,
    remedy: near ? `Did you mean ${near}?` : `There is: ${list.join(", ")}`,
  });
}

/** The library calls it secret; here it has the name of the variable it came from. */
export function checkSecretSetting(secret: string): string {
  try {
    checkSecrets(secret);
    return secret;
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
    throw new InvalidInput("STILLWAKE_SECRET is shorter than 32 characters", {
      field: "STILLWAKE_SECRET",
      remedy: "Make one with `openssl rand -base64 32`",
    });
  }
}

export function portOf(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new InvalidInput(`--port ${JSON.stringify(text)} is not a port`, {
    field: "port",
    remedy: "Use a whole number from 0 to 65535; 0 takes any free port",
  });
}

/** Whom commands tell that there is work: STILLWAKE_POKE_URL, with the token of STILLWAKE_TOKEN. */
export function pokeAt(url: string, token: string | undefined): { url: string; token?: string } {
  return { url, ...(token !== undefined && { token }) };
}
