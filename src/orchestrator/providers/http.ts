// HTTP client of the API providers: timeouts, retries, status codes and a token bucket per kind of call. Also the
// bookkeeping of starts that got no response, and the parsing of values that several APIs share.
//
//   no response, 5xx   three retries, after 1, 2 and 4 s; then "unreachable"      401, 403   "auth", no retry
//   429                waits Retry-After, or 2 s, within the same retries         other 4xx  "refused", no retry, unless expected
import os from "node:os";
import { parseRetryAfter } from "../../time.ts";
import { type Clock, ProviderError } from "../provider.ts";

export interface ApiClientOptions {
  /** For messages: "Fly". */
  name: string;
  base: string;
  /** Returns the authorization headers. Called before each attempt, because tokens expire. */
  authorize(): Promise<Record<string, string>> | Record<string, string>;
  clock: Clock;
  /** Timeout of one attempt. */
  timeoutMs?: number;
  fetch?: typeof fetch;
  /** The remedy for a rejected token. */
  authRemedy: string;
  /** A response header whose value the provider's support needs. */
  requestIdHeader?: string;
}

export interface ApiResponse {
  status: number;
  body: unknown;
  /** An earlier attempt of the same call got no response: it may have had an effect, or may have one later. */
  uncertain?: boolean;
}

export interface RequestOptions {
  body?: unknown;
  headers?: Record<string, string>;
  /** Statuses to return instead of throwing, such as 404 or 409. */
  expect?: readonly number[];
  /** False: not idempotent. It is then repeated only if it certainly had no effect (429, no connection). */
  repeatable?: boolean;
  /** Called before a repetition once the call may have had an effect; its result replaces the call's response. */
  recheck?: () => Promise<ApiResponse | undefined>;
  /** Default: 3. */
  retries?: number;
  /** Awaited before each attempt. */
  bucket?: TokenBucket;
  timeoutMs?: number;
}

const WAITS_MS = [1000, 2000, 4000];
const RATE_WAIT_MS = 2000;
/** A longer Retry-After is reported as an error instead of waited for. */
const MAX_WAIT_MS = 30_000;

export class ApiClient {
  readonly #options: ApiClientOptions;

  constructor(options: ApiClientOptions) {
    this.#options = options;
  }

  async request(method: string, path: string, options: RequestOptions = {}): Promise<ApiResponse> {
    const { clock, name } = this.#options;
    // Once an attempt may have had an effect, no later response makes it certain that there was none.
    let mayHaveActed = false;
    for (let retry = 0; ; retry++) {
      await options.bucket?.take();
      const { response, error, sent } = await this.#send(method, path, options);
      if (response && (response.status < 300 || options.expect?.includes(response.status)))
        return mayHaveActed ? { ...response, uncertain: true } : response;
      const status = response?.status;
      if (status === 401 || status === 403) {
        throw new ProviderError(
          "auth",
          `${name} rejects the token: ${status} for ${method} ${path}: ${errorText(response)}`,
          {
            certain: !mayHaveActed,
            remedy: this.#options.authRemedy,
          },
        );
      }
      if (status !== undefined && status < 500 && status !== 429 && status !== 408) {
        throw new ProviderError("refused", `${name} refuses ${method} ${path}: ${status} ${errorText(response)}`, {
          certain: !mayHaveActed,
        });
      }
      if (status !== 429) mayHaveActed ||= sent && method !== "GET";
      const mayNotRepeat = mayHaveActed && options.repeatable === false;
      const waitMs = status === 429 ? (response!.retryAfterMs ?? RATE_WAIT_MS) : WAITS_MS[retry]!;
      if (retry >= (options.retries ?? WAITS_MS.length) || waitMs > MAX_WAIT_MS || mayNotRepeat) {
        const call = `${name}: ${method} ${path} failed`;
        const cause = status ? `${status} ${errorText(response)}` : messageOf(error);
        throw new ProviderError(status === 429 ? "rate" : "unreachable", `${call}: ${cause}`, {
          certain: !mayHaveActed,
          ...(status === 429 && { retryAfterMs: waitMs }),
          ...(error !== undefined && { cause: error }),
        });
      }
      await clock.sleep(waitMs);
      const found = mayHaveActed ? await options.recheck?.() : undefined;
      if (found) return found;
    }
  }

  /** `sent`: the request may have reached the server. */
  async #send(method: string, path: string, { body, headers, timeoutMs }: RequestOptions): Promise<Sent> {
    const { base, fetch: send = fetch, authorize, requestIdHeader, clock } = this.#options;
    const signal = AbortSignal.timeout(timeoutMs ?? this.#options.timeoutMs ?? 15_000);
    const authorization = await authorize();
    try {
      const response = await send(base + path, {
        method,
        headers: {
          accept: "application/json",
          "user-agent": "stillwake",
          ...authorization,
          ...(body !== undefined && { "content-type": "application/json" }),
          ...headers,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        redirect: "error",
        signal,
      });
      const text = await response.text();
      const requestId = requestIdHeader ? response.headers.get(requestIdHeader) : null;
      const retryAfterMs = parseRetryAfter(response.headers.get("retry-after"), clock.now()) || undefined;
      return {
        response: {
          status: response.status,
          body: parseBody(text),
          ...(requestId && { requestId }),
          ...(retryAfterMs !== undefined && { retryAfterMs }),
        },
        sent: true,
      };
    } catch (error) {
      return { error, sent: !isConnectError(error) };
    }
  }
}

interface Sent {
  response?: ApiResponse & { requestId?: string; retryAfterMs?: number };
  error?: unknown;
  sent: boolean;
}

/** The request cannot have reached the server. */
function isConnectError(error: unknown): boolean {
  const { code } = ((error as { cause?: unknown }).cause ?? {}) as { code?: string };
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(
    code ?? "",
  );
}

function parseBody(text: string): unknown {
  try {
    return text === "" ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}

/** The error message of a response, shortened: { error }, { message } or { error: { message } }. */
function errorText(response: Sent["response"]): string {
  const body = response?.body as { error?: unknown; message?: unknown } | string | undefined;
  const message =
    typeof body === "object"
      ? ((body.error as { message?: unknown })?.message ?? body.error ?? body.message ?? "")
      : body;
  const id = response?.requestId ? ` (request ${response.requestId})` : "";
  return `${String(message ?? "").slice(0, 300)}${id}`;
}

function messageOf(error: unknown): string {
  const { cause, message, name } = error as Error & { cause?: Error };
  return name === "TimeoutError" ? "timed out" : cause?.message || message;
}

/** Allows `burst` calls at once and one more every `everyMs`; callers wait in order. */
export class TokenBucket {
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

/** More names than any fleet has; a machine whose name is dropped is later listed as a stray. */
const MAX_UNCERTAIN = 1000;

/** Names whose start got no response. Until the machine is found, no later refusal proves that it does not exist. */
export class UncertainStarts {
  readonly #names = new Set<string>();

  /** Calls `start`; an error of an uncertain machine is thrown as not `certain`. */
  async track<T>(name: string, start: () => Promise<T>): Promise<T> {
    try {
      const started = await start();
      this.#names.delete(name);
      return started;
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      if (!error.certain) this.#names.add(name);
      if (this.#names.size > MAX_UNCERTAIN) this.#names.clear();
      throw this.#names.has(name) ? asUncertain(error) : error;
    }
  }
}

/** The same error for a call that may have had an effect. */
export function asUncertain(error: ProviderError): ProviderError {
  const { kind, message, remedy, retryAfterMs } = error;
  if (!error.certain) return error;
  // The message ends with the remedy, which the constructor appends again.
  return new ProviderError(kind, remedy === undefined ? message : message.slice(0, -`. ${remedy}`.length), {
    certain: false,
    cause: error,
    ...(remedy !== undefined && { remedy }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

export function parseDate(value: string | number | undefined): Date | undefined {
  const date = value === undefined ? undefined : new Date(value);
  return date && !Number.isNaN(date.getTime()) ? date : undefined;
}

/** 9 is "SIGKILL". */
export function signalName(number: number | undefined): string | undefined {
  return Object.entries(os.constants.signals).find(([, value]) => value === number)?.[0];
}

/** Formats a memory limit such as "4096Mi" or "4Gi" as "4 GB". */
export function formatMemoryLimit(limit: string): string {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)(Mi|Gi|M|G)$/.exec(limit) ?? [];
  if (amount === undefined) return limit;
  const mb = Number(amount) * (unit!.startsWith("G") ? 1024 : 1);
  return mb < 1024 ? `${mb} MB` : `${Number((mb / 1024).toFixed(1))} GB`;
}
