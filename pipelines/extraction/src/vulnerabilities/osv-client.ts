// The client of OSV.dev's API: asks which advisories packages have (POST /v1/querybatch), and reads advisories
// (GET /v1/vulns/{id}). Answers are untrusted and limited. Failures that may pass are retried a few times; a request to wait
// (Retry-After) holds back all requests of this client.
import { setTimeout as delay } from "node:timers/promises";
import { fieldsOf, objectsIn, textOf } from "../untrusted.ts";
import { isLocal, readWhole, reasonOf } from "./feeds.ts";

/** Queries per request that the API accepts. */
export const MAX_BATCH = 1000;

const LIMITS = {
  /** The API sends no more over HTTP/1.1. */
  batchBytes: 32 * 2 ** 20,
  advisoryBytes: 4 * 2 ** 20,
  /** Advisories per package and page; the API sends at most 1,000. */
  vulns: 5000,
};
const TRIES = 3;
const REQUEST_MS = 20_000;
const BACKOFF_MS = 500;
/** A longer Retry-After is not waited for: the machine is billed by the second. */
const MAX_WAIT_MS = 30_000;

/** No further request will succeed. The message is shown to people. */
export class OsvUnavailable extends Error {}

/** The request is invalid, because of one of its queries. The API does not say which one. */
export class RejectedBatch extends Error {}

export interface Query {
  purl: string;
  /** Of the previous page. */
  token?: string;
}

export interface Answer {
  /** `modified` changes with the advisory. */
  vulns: Array<{ id: string; modified: string }>;
  /** There are more pages, even if this one is empty. */
  nextToken: string | undefined;
}

export interface OsvClientOptions {
  /** Base URL, such as "https://api.osv.dev". */
  url: string;
  signal: AbortSignal;
  /** For all requests together. */
  timeoutMs: number;
}

export class OsvClient {
  readonly #url: string;
  readonly #signal: AbortSignal;
  readonly #timeout: AbortSignal;
  readonly #timeoutMs: number;
  /** performance.now() before which no request is sent. */
  #waitUntil = 0;
  #unavailable: OsvUnavailable | undefined;

  constructor({ url, signal, timeoutMs }: OsvClientOptions) {
    this.#url = url.replace(/\/+$/, "");
    this.#signal = signal;
    this.#timeoutMs = timeoutMs;
    this.#timeout = AbortSignal.timeout(timeoutMs);
  }

  /** The answers in the order of the queries, of which there are at most MAX_BATCH. */
  async query(queries: readonly Query[]): Promise<Answer[]> {
    const body = JSON.stringify({
      queries: queries.map(({ purl, token }) => ({
        package: { purl },
        ...(token !== undefined && { page_token: token }),
      })),
    });
    const answer = await this.#request("/v1/querybatch", LIMITS.batchBytes, body);
    const results = fieldsOf(answer)?.results;
    if (!Array.isArray(results) || results.length !== queries.length)
      throw this.#giveUp("its answer does not match the request");
    return results.map((result: unknown) => {
      const fields = fieldsOf(result);
      const vulns = objectsIn(fields?.vulns, LIMITS.vulns).flatMap(({ id, modified }) => {
        const name = textOf(id, 100);
        return name === undefined ? [] : [{ id: name, modified: textOf(modified, 100) ?? "" }];
      });
      return { vulns, nextToken: textOf(fields?.next_page_token, 2000) };
    });
  }

  /** The OSV record. Undefined if there is none with this id, or if it is too large. */
  async advisory(id: string): Promise<unknown> {
    try {
      return await this.#request(`/v1/vulns/${encodeURIComponent(id)}`, LIMITS.advisoryBytes);
    } catch (error) {
      if (error instanceof TooLarge) return undefined;
      throw error;
    }
  }

  /** Undefined for 404. */
  async #request(path: string, maxBytes: number, body?: string): Promise<unknown> {
    for (let attempt = 1; ; attempt += 1) {
      await this.#waitForTurn();
      const { value, failure } = await this.#try(path, maxBytes, body);
      if (!failure) return value;
      if (attempt === TRIES) throw this.#giveUp(failure.reason);
      const waitMs = failure.retryAfterMs ?? BACKOFF_MS * 2 ** (attempt - 1) * (1 + Math.random() / 4);
      if (waitMs > MAX_WAIT_MS)
        throw this.#giveUp(`${failure.reason}, to be repeated after ${Math.ceil(waitMs / 1000)} s`);
      this.#waitUntil = Math.max(this.#waitUntil, performance.now() + waitMs);
    }
  }

  /** One request. `failure`: it may succeed if it is repeated. */
  async #try(path: string, maxBytes: number, body: string | undefined): Promise<Try> {
    let response: Response;
    let text: string;
    try {
      response = await fetch(this.#url + path, {
        method: body === undefined ? "GET" : "POST",
        ...(body !== undefined && { body }),
        headers: {
          accept: "application/json",
          "user-agent": "stillwake-extraction",
          ...(body !== undefined && { "content-type": "application/json" }),
        },
        // Redirects fail: package names are sent to the configured host only.
        redirect: "manual",
        signal: AbortSignal.any([this.#signal, this.#timeout, AbortSignal.timeout(REQUEST_MS)]),
      });
      const stream = (response.body ?? []) as unknown as AsyncIterable<Uint8Array>;
      text = await readWhole(stream, maxBytes, () => new TooLarge());
    } catch (error) {
      this.#throwIfStopped();
      if (error instanceof TooLarge) {
        if (body === undefined) throw error;
        throw this.#giveUp(`its answer is larger than ${maxBytes / 2 ** 20} MB`);
      }
      const isTimeout = (error as Error).name === "TimeoutError";
      return { failure: { reason: isTimeout ? `no answer within ${REQUEST_MS / 1000} s` : reasonOf(error) } };
    }
    const { status, headers } = response;
    if (status === 429 || status >= 500)
      return { failure: { reason: `HTTP ${status}`, ...retryAfterOf(headers.get("retry-after")) } };
    if (status === 404 && body === undefined) return {};
    if (status === 400 && body !== undefined) throw new RejectedBatch();
    if (status !== 200) throw this.#giveUp(`HTTP ${status}`);
    try {
      return { value: JSON.parse(text) };
    } catch {
      return { failure: { reason: "its answer is not JSON" } };
    }
  }

  async #waitForTurn(): Promise<void> {
    for (;;) {
      this.#throwIfStopped();
      const waitMs = this.#waitUntil - performance.now();
      if (waitMs <= 0) return;
      const signal = AbortSignal.any([this.#signal, this.#timeout]);
      await delay(waitMs, undefined, { signal }).catch(() => {});
    }
  }

  #throwIfStopped(): void {
    this.#signal.throwIfAborted();
    if (this.#unavailable) throw this.#unavailable;
    if (this.#timeout.aborted) throw this.#giveUp(`not finished after ${this.#timeoutMs / 1000} s`);
  }

  /** All later requests fail with the same error. */
  #giveUp(reason: string): OsvUnavailable {
    this.#unavailable ??= new OsvUnavailable(reason);
    return this.#unavailable;
  }
}

/** Throws unless it is https, or http on this machine. */
export function checkOsvUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "https:" || (url?.protocol === "http:" && isLocal(url))) return text;
  throw new Error(
    `EXTRACTION_OSV_URL is "${text}" but must be an https URL such as https://api.osv.dev, or "none" to send no requests`,
  );
}

class TooLarge extends Error {}

interface Try {
  value?: unknown;
  failure?: { reason: string; retryAfterMs?: number };
}

/** Seconds or a date. */
function retryAfterOf(header: string | null): { retryAfterMs?: number } {
  if (header === null) return {};
  const ms = /^\d{1,9}$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? {} : { retryAfterMs: Math.max(ms, 0) };
}
