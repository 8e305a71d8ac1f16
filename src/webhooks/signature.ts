// Signs and verifies webhooks by the Standard Webhooks specification. Uses WebCrypto and nothing of Node, so that
// receivers can verify in an edge function.
import { StillwakeError } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";

/** A webhook that must not be trusted. Respond with 400; to a repeated one (REPEATED_WEBHOOK) with 200, or it is sent again. */
export class InvalidWebhook extends StillwakeError {}

/** The payload of a thin webhook; a full one has more in `data`. */
export interface WebhookPayload {
  type: "job.completed" | "job.failed" | "job.cancelled";
  timestamp: string;
  data: { id: string; pipeline: string; state: string; attempt: number; [more: string]: unknown };
  /** Fields that were omitted because they were too large. */
  omitted?: string[];
}

export interface VerifyOptions {
  /** The allowed difference between the sender's clock and this one. Default "5m". */
  tolerance?: Duration;
  /**
   * Ids that were processed: a Set, or any object with has(). It is only read here. Add an id after processing, ideally in the same
   * transaction, because a failed webhook is sent again. Keep ids for at least twice the tolerance, or for the three days of retries.
   */
  seen?: SeenIds;
  /** For tests: milliseconds since 1970. */
  now?: number;
}

export interface SeenIds {
  has(id: string): boolean | Promise<boolean>;
}

type HeaderValue = string | readonly string[] | null | undefined;
/** Headers of fetch or of Node. */
export type WebhookHeaders = { get(name: string): string | null } | Readonly<Record<string, HeaderValue>>;

/** The value of webhook-signature: one signature per secret, so that receivers can rotate secrets. */
export async function signWebhook(
  secrets: string | readonly string[],
  id: string,
  timestamp: number,
  body: string | Uint8Array,
): Promise<string> {
  checkId(id);
  const content = signedContent(id, String(Math.floor(timestamp)), body);
  const signatures = toList(secrets).map(async (secret) => {
    const signature = await crypto.subtle.sign("HMAC", await importKey(secret, "sign"), content);
    return `v1,${btoa(String.fromCharCode(...new Uint8Array(signature)))}`;
  });
  return (await Promise.all(signatures)).join(" ");
}

/**
 * Returns the payload of a webhook that was signed with one of these secrets; throws InvalidWebhook for any other.
 * `body` is the unmodified request body, as bytes or text: re-serialized JSON does not verify.
 */
export async function verifyWebhook<Payload = WebhookPayload>(
  body: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[],
  options: VerifyOptions = {},
): Promise<Payload> {
  const id = readHeader(headers, "webhook-id");
  const timestamp = readHeader(headers, "webhook-timestamp");
  const signature = readHeader(headers, "webhook-signature");
  checkId(id);
  const toleranceMs = durationMs(options.tolerance ?? "5m", "tolerance");
  const skewMs = Number(timestamp) * 1000 - (options.now ?? Date.now());
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(skewMs) > toleranceMs) {
    throw refused("webhook-timestamp", `it was signed ${skewMs > 0 ? "in the future" : "too long ago"}`);
  }
  const content = signedContent(id, timestamp, body);
  if (!(await isSigned(content, signature, toList(secrets)))) {
    throw refused("webhook-signature", "no secret of this receiver matches the signature");
  }
  if (await options.seen?.has(id)) throw new InvalidWebhook("REPEATED_WEBHOOK", `Webhook ${id} was already processed`);
  return JSON.parse(typeof body === "string" ? body : new TextDecoder().decode(body)) as Payload;
}

/** Compares every pair; crypto.subtle.verify takes constant time. */
async function isSigned(content: Uint8Array<ArrayBuffer>, header: string, secrets: string[]): Promise<boolean> {
  // A valid header has at most a few; the limit bounds the work for an attacker's header.
  const parts = header.split(" ").slice(0, 10);
  const signatures = parts.filter((part) => part.startsWith("v1,")).map((part) => decodeBase64(part.slice(3)));
  let signed = false;
  for (const secret of secrets) {
    const key = await importKey(secret, "verify");
    for (const signature of signatures) {
      if (signature && (await crypto.subtle.verify("HMAC", key, signature, content))) signed = true;
    }
  }
  return signed;
}

function signedContent(id: string, timestamp: string, body: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const front = new TextEncoder().encode(`${id}.${timestamp}.`);
  const rest = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const content = new Uint8Array(front.length + rest.length);
  content.set(front);
  content.set(rest, front.length);
  return content;
}

async function importKey(
  secret: string,
  use: "sign" | "verify",
): Promise<Awaited<ReturnType<typeof crypto.subtle.importKey>>> {
  const bytes = typeof secret === "string" ? decodeBase64(secret.replace(/^whsec_/, "")) : undefined;
  if (!bytes || bytes.length < 24 || bytes.length > 64) {
    throw new StillwakeError("INVALID_SECRET", "A secret must be whsec_ followed by 24 to 64 bytes in base64", {
      field: "secret",
      remedy: "Use the secret that was shown when the endpoint was created, or rotate it",
    });
  }
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, [use]);
}

function decodeBase64(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** The dot separates the signed parts: with a dot in the id the same bytes would have two meanings. */
function checkId(id: string): void {
  if (!/^[^\s.]{1,200}$/.test(id)) throw refused("webhook-id", "its id is empty, too long or contains a dot");
}

function readHeader(headers: WebhookHeaders, name: string): string {
  const found =
    typeof headers.get === "function"
      ? (headers as { get(name: string): string | null }).get(name)
      : Object.entries(headers as Record<string, HeaderValue>).find(([key]) => key.toLowerCase() === name)?.[1];
  if (typeof found === "string" && found !== "") return found;
  throw refused(name, `the header ${name} is missing or repeated`);
}

function toList(secrets: string | readonly string[]): string[] {
  return typeof secrets === "string" ? [secrets] : [...secrets];
}

function refused(field: string, reason: string): InvalidWebhook {
  return new InvalidWebhook("INVALID_WEBHOOK", `Invalid webhook: ${reason}`, { field });
}
