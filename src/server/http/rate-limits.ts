// How much one caller may ask: sizes of bodies, requests a second, streams at once. Counted in this process; nothing is asked of the database.
import { refusal } from "./problem.ts";

const MAX_BYTES = 1024 * 1024;
const DEEPEST = 64;
const MAX_KEYS = 10_000;
const MAX_BUCKETS = 20_000;

/** The body of a request as JSON. Refused while it is read, so a body without end is never held. */
export async function readJson(request: Request): Promise<unknown> {
  const type = request.headers.get("content-type") ?? "";
  const isJson = /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i.test(type);
  if (Number(request.headers.get("content-length") ?? 0) > MAX_BYTES) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of whole(request)) {
    size += chunk.length;
    if (size > 0 && !isJson) {
      throw refusal("NOT_JSON", "The body is not said to be JSON", { remedy: "Send content-type: application/json" });
    }
    if (size > MAX_BYTES) throw tooLarge();
    chunks.push(chunk);
  }
  // A request that may have a body and says nothing of its length looks like one that has.
  if (size === 0) return undefined;
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
    value = JSON.parse(text);
  } catch {
    throw refusal("INVALID_INPUT", "The body is not JSON in UTF-8", { field: "body", remedy: "Send one JSON object" });
  }
  checkShape(value);
  return value;
}

/** The body as it comes. One that breaks off is a fault of the caller, who mostly has gone. */
async function* whole(request: Request): AsyncGenerator<Uint8Array> {
  try {
    yield* (request.body ?? []) as AsyncIterable<Uint8Array>;
  } catch {
    throw refusal("INVALID_INPUT", "The body broke off", { field: "body", remedy: "Send all of it" });
  }
}

function tooLarge(): Error {
  return refusal("TOO_LARGE", `The body is larger than ${MAX_BYTES} bytes`, {
    remedy: "Send fewer jobs at once, or store large inputs elsewhere and send a reference",
  });
}

/** Without recursion: what is too deep for the stack must be refused, not crash. */
function checkShape(root: unknown): void {
  let keys = 0;
  const open: { value: object; depth: number }[] = [];
  const enter = (value: unknown, depth: number) => {
    if (typeof value !== "object" || value === null) return;
    if (depth > DEEPEST)
      throw refusal("INVALID_INPUT", `The body is nested deeper than ${DEEPEST}`, {
        field: "body",
        remedy: "Flatten it, or send it as text",
      });
    open.push({ value, depth });
  };
  enter(root, 1);
  for (let next = open.pop(); next; next = open.pop()) {
    const children = Object.values(next.value);
    keys += children.length;
    if (keys > MAX_KEYS)
      throw refusal("INVALID_INPUT", `The body has more than ${MAX_KEYS} values`, {
        field: "body",
        remedy: "Store it elsewhere and send a reference",
      });
    for (const child of children) enter(child, next.depth + 1);
  }
}

/** So many a second in the long run, and so many at once. Each name has a bucket of its own. */
export class Rate {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #buckets = new Map<string, { left: number; at: number }>();

  constructor({ perSecond, burst }: { perSecond: number; burst: number }) {
    this.#perSecond = perSecond;
    this.#burst = burst;
  }

  /** Seconds to wait, 0 when it may go on. Takes nothing. */
  wait(name: string): number {
    const bucket = this.#buckets.get(name);
    if (!bucket) return 0;
    const left = bucket.left + ((performance.now() - bucket.at) / 1000) * this.#perSecond;
    return left < 1 ? (1 - left) / this.#perSecond : 0;
  }

  /** The same, and takes one if it may. */
  take(name: string): number {
    const now = performance.now();
    let bucket = this.#buckets.get(name);
    if (!bucket) {
      if (this.#buckets.size >= MAX_BUCKETS) this.#forgetFull(now);
      bucket = { left: this.#burst, at: now };
      this.#buckets.set(name, bucket);
    }
    bucket.left = Math.min(this.#burst, bucket.left + ((now - bucket.at) / 1000) * this.#perSecond);
    bucket.at = now;
    if (bucket.left < 1) return (1 - bucket.left) / this.#perSecond;
    bucket.left -= 1;
    return 0;
  }

  /** A full one is as good as none. */
  #forgetFull(now: number): void {
    for (const [name, { left, at }] of this.#buckets) {
      if (left + ((now - at) / 1000) * this.#perSecond >= this.#burst) this.#buckets.delete(name);
    }
    if (this.#buckets.size >= MAX_BUCKETS) this.#buckets.clear();
  }
}

/** Streams that are open, by caller. */
export class OpenStreams {
  readonly #perToken: number;
  readonly #total: number;
  readonly #open = new Map<string, Set<AbortController>>();
  #all = 0;

  constructor({ perToken, total }: { perToken: number; total: number }) {
    this.#perToken = perToken;
    this.#total = total;
  }

  /** Answers how to leave again, and what says that it has to. */
  enter(name: string): { leave: () => void; sentAway: AbortSignal } {
    const own = this.#open.get(name) ?? new Set();
    if (own.size >= this.#perToken || this.#all >= this.#total) {
      const open = own.size >= this.#perToken ? own.size : this.#all;
      throw refusal("TOO_MANY_REQUESTS", `There are ${open} streams open`, {
        remedy: "Close some, or follow several jobs by reading /v1/jobs",
      });
    }
    const one = new AbortController();
    this.#open.set(name, own.add(one));
    this.#all += 1;
    const leave = () => {
      if (!own.delete(one)) return;
      this.#all -= 1;
      if (own.size === 0) this.#open.delete(name);
    };
    return { leave, sentAway: one.signal };
  }

  /** Ends all of one caller, whose token was taken back. */
  sendAway(name: string): void {
    for (const one of this.#open.get(name) ?? []) one.abort();
  }
}
