// How providers ask an HTTP API: one place for time limits, tries, what a status means, and a bucket per kind of call.
//
//   no answer, 5xx   three tries more, after 1, 2 and 4 s; then "unreachable"           401, 403   "auth", at once
//   429              waits Retry-After, or 2 s, within the same three tries              other 4xx  "refused", at once; the caller may know better
import { type Clock, ProviderError } from "../provider.ts";

export interface ApiOptions {
  /** For messages: "Fly". */
  name: string;
  base: string;
  /** The headers that let us in, asked for before each try: tokens get old. */
  authorize(): Promise<Record<string, string>> | Record<string, string>;
  clock: Clock;
  /** How long one try may take. */
  timeoutMs?: number;
  fetch?: typeof fetch;
  /** What to do about a refused token. */
  authRemedy: string;
  /** A header of the answer that support will ask for. */
  requestIdHeader?: string;
}

export interface Answer {
  status: number;
  body: unknown;
  /** An earlier try of the same call had no answer: it may have done something, or may do it yet. */
  unsure?: boolean;
}

export interface Ask {
  body?: unknown;
  headers?: Record<string, string>;
  /** Statuses that are answers to this call and no errors, such as 404 or 409. */
  expect?: readonly number[];
  /** The call may be sent twice without harm. One that may not is still sent again when it is certain that it has done nothing (429, no connection). */
  repeatable?: boolean;
  /** Asked before the call is sent again, once it may have done something: what it answers is taken for the call's own answer. */
  recheck?: () => Promise<Answer | undefined>;
  /** Of the tries after the first. Default: 3. */
  retries?: number;
  /** Waited for before each try. */
  bucket?: Bucket;
  timeoutMs?: number;
}

const WAITS_MS = [1000, 2000, 4000];
const RATE_WAIT_MS = 2000;
/** Longer is no longer a wait but a trouble: it is said, and the watchdog comes back. */
const MAX_WAIT_MS = 30_000;

export class Api {
  readonly #options: ApiOptions;

  constructor(options: ApiOptions) {
    this.#options = options;
  }

  async ask(method: string, path: string, ask: Ask = {}): Promise<Answer> {
    const { clock, name } = this.#options;
    // Once a call may have done something, no later answer makes it certain that nothing was done.
    let mayHaveActed = false;
    for (let tried = 0; ; tried++) {
      await ask.bucket?.take();
      const { answer, error, sent } = await this.#try(method, path, ask);
      if (answer && (answer.status < 300 || ask.expect?.includes(answer.status)))
        return mayHaveActed ? { ...answer, unsure: true } : answer;
      const status = answer?.status;
      if (status === 401 || status === 403) {
        throw new ProviderError(
          "auth",
          `${name} refuses our token: ${status} for ${method} ${path}: ${textOf(answer)}`,
          {
            certain: !mayHaveActed,
            remedy: this.#options.authRemedy,
          },
        );
      }
      if (status !== undefined && status < 500 && status !== 429 && status !== 408) {
        throw new ProviderError("refused", `${name} refuses ${method} ${path}: ${status} ${textOf(answer)}`, {
          certain: !mayHaveActed,
        });
      }
      if (status !== 429) mayHaveActed ||= sent && method !== "GET";
      const stop = mayHaveActed && ask.repeatable === false;
      const waitMs = status === 429 ? (answer!.retryAfterMs ?? RATE_WAIT_MS) : WAITS_MS[tried]!;
      if (tried >= (ask.retries ?? WAITS_MS.length) || waitMs > MAX_WAIT_MS || stop) {
        const trouble = status === 429 ? "rate" : "unreachable";
        throw new ProviderError(
          trouble,
          `${name} gives no answer to ${method} ${path}: ${status ? `${status} ${textOf(answer)}` : messageOf(error)}`,
          {
            certain: !mayHaveActed,
            ...(status === 429 && { retryAfterMs: waitMs }),
            ...(error !== undefined && { cause: error }),
          },
        );
      }
      await clock.sleep(waitMs);
      const found = mayHaveActed ? await ask.recheck?.() : undefined;
      if (found) return found;
    }
  }

  /** `sent`: it may have arrived. */
  async #try(method: string, path: string, { body, headers, timeoutMs }: Ask): Promise<Tried> {
    const { base, fetch: send = fetch, authorize, requestIdHeader, clock } = this.#options;
    const limit = AbortSignal.timeout(timeoutMs ?? this.#options.timeoutMs ?? 15_000);
    const given = await authorize();
    try {
      const response = await send(base + path, {
        method,
        headers: {
          accept: "application/json",
          "user-agent": "stillwake",
          ...given,
          ...(body !== undefined && { "content-type": "application/json" }),
          ...headers,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        redirect: "error",
        signal: limit,
      });
      const text = await response.text();
      const requestId = requestIdHeader ? response.headers.get(requestIdHeader) : null;
      const retryAfterMs = waitOf(response.headers.get("retry-after"), clock.now());
      return {
        answer: {
          status: response.status,
          body: parsed(text),
          ...(requestId && { requestId }),
          ...(retryAfterMs !== undefined && { retryAfterMs }),
        },
        sent: true,
      };
    } catch (error) {
      return { error, sent: !neverConnected(error) };
    }
  }
}

interface Tried {
  answer?: Answer & { requestId?: string; retryAfterMs?: number };
  error?: unknown;
  sent: boolean;
}

/** Retry-After is a number of seconds or a date. Undefined when it is neither, or has passed. */
function waitOf(header: string | null, now: number): number | undefined {
  if (header === null || header === "") return undefined;
  const seconds = Number(header);
  const waitMs = Number.isNaN(seconds) ? Date.parse(header) - now : seconds * 1000;
  return waitMs > 0 ? waitMs : undefined;
}

/** Nobody can have heard it. */
function neverConnected(error: unknown): boolean {
  const { code } = ((error as { cause?: unknown }).cause ?? {}) as { code?: string };
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(
    code ?? "",
  );
}

function parsed(text: string): unknown {
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}

/** What they say about it, short: { error }, { message } or { error: { message } }. */
function textOf(answer: Tried["answer"]): string {
  const body = answer?.body as { error?: unknown; message?: unknown } | string | undefined;
  const said =
    typeof body === "object"
      ? ((body.error as { message?: unknown })?.message ?? body.error ?? body.message ?? "")
      : body;
  const id = answer?.requestId ? ` (request ${answer.requestId})` : "";
  return `${String(said ?? "").slice(0, 300)}${id}`;
}

function messageOf(error: unknown): string {
  const { cause, message, name } = error as Error & { cause?: Error };
  return name === "TimeoutError" ? "no answer in time" : cause?.message || message;
}

/** At most `burst` at once and one more every `everyMs`, waiting in line for the next. */
export class Bucket {
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #burst: number;
  #nextAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, { everyMs, burst }: { everyMs: number; burst: number }) {
    this.#clock = clock;
    this.#everyMs = everyMs;
    this.#burst = burst;
  }

  async take(): Promise<void> {
    const now = this.#clock.now();
    this.#nextAt = Math.max(this.#nextAt, now - this.#everyMs * (this.#burst - 1)) + this.#everyMs;
    const waitMs = this.#nextAt - this.#everyMs - now;
    if (waitMs > 0) await this.#clock.sleep(waitMs);
  }
}
