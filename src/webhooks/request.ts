// Sends one webhook by HTTP POST. Never throws, follows no redirect, and ignores proxy settings of the environment.
import http from "node:http";
import https from "node:https";
import type { LookupFunction, Socket } from "node:net";
import { parseRetryAfter, parseTimestamp } from "../time.ts";
import { version } from "../version.ts";
import { type AddressGuard, BlockedAddress } from "./address-guard.ts";

/** The result of one delivery attempt. */
export interface PostResult {
  status?: number;
  /** Absent when the receiver accepted it. */
  error?: string;
  /** The beginning of the response body. */
  response?: string;
  /** The receiver's Retry-After in seconds. */
  retryAfter?: number;
}

interface PostOptions {
  url: string;
  headers: Readonly<Record<string, string>>;
  body: string;
  timeoutMs: number;
  /** The whole request was handed to the operating system. */
  onWritten?(): void;
}

export interface Poster {
  post(options: PostOptions): Promise<PostResult>;
  close(): void;
}

const MAX_RESPONSE = 1024;
/** How long to wait for the body after the status. */
const RESPONSE_MS = 1000;
/** How long an idle connection is kept for the next webhook to the same host. */
const KEEP_ALIVE_MS = 4000;

export function createPoster(guard: AddressGuard, ca?: string): Poster {
  const settings = { keepAlive: true, maxFreeSockets: 16, timeout: KEEP_ALIVE_MS };
  const plain = new http.Agent(settings);
  const secure = new https.Agent({ ...settings, ...(ca && { ca }) });
  const agentOf = (url: URL) => (url.protocol === "http:" ? plain : secure);
  return {
    async post(options) {
      let url: URL;
      try {
        url = new URL(options.url);
      } catch {
        return { error: "INVALID_URL" };
      }
      const startedAt = performance.now();
      for (;;) {
        const leftMs = options.timeoutMs - (performance.now() - startedAt);
        const { result, stale } = await postOnce(guard, agentOf(url), url, { ...options, timeoutMs: leftMs });
        // The receiver closed an idle connection while it was being reused. If it did read the request, it sees the same id again.
        if (!stale) return result;
      }
    },
    close() {
      plain.destroy();
      secure.destroy();
    },
  };
}

function postOnce(
  guard: AddressGuard,
  agent: http.Agent,
  url: URL,
  { headers, body, timeoutMs, onWritten }: PostOptions,
): Promise<{ result: PostResult; stale: boolean }> {
  return new Promise((resolve) => {
    const { request } = url.protocol === "http:" ? http : https;
    let done = false;
    let pending: http.ClientRequest | undefined;
    const end = (result: PostResult, stale = false) => {
      if (done) return;
      done = true;
      clearTimeout(timer);
      resolve({ result, stale });
    };
    const timer = setTimeout(
      () => {
        end({ error: "TIMEOUT" });
        pending?.destroy();
      },
      Math.max(timeoutMs, 1),
    );
    try {
      guard.check(url);
      pending = request(url, {
        method: "POST",
        agent,
        lookup: guard.lookup(url) as LookupFunction,
        headers: {
          "content-type": "application/json",
          "user-agent": `Stillwake/${version}`,
          ...headers,
          "content-length": Buffer.byteLength(body),
        },
      });
    } catch (error) {
      end({ error: toErrorCode(error) });
      return;
    }
    const sent = pending;
    sent.on("error", (error) => end({ error: toErrorCode(error) }, sent.reusedSocket && isReset(error)));
    sent.on("socket", (socket) => whenConnected(socket, () => checkAddress(socket, sent)));
    sent.on("finish", () => onWritten?.());
    sent.on("response", (response) => {
      const status = response.statusCode ?? 0;
      const result: PostResult = { status };
      if (status < 200 || status > 299) result.error = status > 299 && status < 400 ? "REDIRECT" : "STATUS";
      // A date is relative to the receiver's clock.
      const { date = "", "retry-after": retryAfter } = response.headers;
      const retryAfterMs = parseRetryAfter(retryAfter, parseTimestamp(date));
      if (result.error && retryAfterMs !== undefined) result.retryAfter = retryAfterMs / 1000;
      void readStart(response).then((text) => end(text ? { ...result, response: text } : result));
    });

    /** Checks the address that the socket is really connected to, before the request is written. */
    function checkAddress(socket: Socket, request: http.ClientRequest): void {
      try {
        guard.connected(url, socket.remoteAddress);
        request.end(body);
      } catch (error) {
        request.destroy(error as Error);
      }
    }
  });
}

function whenConnected(socket: Socket, then: () => void): void {
  if (socket.connecting) socket.once("connect", then);
  else then();
}

/** At most a kilobyte; the connection of a longer or slower response is closed. */
function readStart(response: http.IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let size = 0;
    let ended = false;
    const end = (complete: boolean) => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      if (!complete) response.destroy();
      // Postgres text cannot contain NUL.
      resolve(Buffer.concat(parts).subarray(0, MAX_RESPONSE).toString("utf8").replaceAll("\0", ""));
    };
    const timer = setTimeout(() => end(false), RESPONSE_MS);
    response.on("data", (data: Buffer) => {
      parts.push(data);
      size += data.length;
      if (size > MAX_RESPONSE) end(false);
    });
    response.on("end", () => end(true));
    response.on("error", () => end(false));
    response.on("close", () => end(false));
  });
}

function isReset(error: Error): boolean {
  return /^(ECONNRESET|EPIPE)$/.test((error as NodeJS.ErrnoException).code ?? "");
}

/** Codes of ours: system error texts would reveal the network of the sender. */
function toErrorCode(thrown: unknown): string {
  const error = thrown as NodeJS.ErrnoException & { errors?: unknown[] };
  if (error instanceof BlockedAddress || error.errors?.some((cause) => cause instanceof BlockedAddress)) {
    return "BLOCKED_ADDRESS";
  }
  const code = error.code ?? (error.errors?.[0] as NodeJS.ErrnoException | undefined)?.code ?? "";
  if (/^(HTTPS_ONLY|INVALID_URL|DNS_FAILED)$/.test(code)) return code;
  if (/^(ECONNRESET|EPIPE|ECONNABORTED)$/.test(code)) return "CONNECTION_LOST";
  if (/^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|ETIMEDOUT)$/.test(code)) return "UNREACHABLE";
  if (/CERT|SSL|TLS|SELF_SIGNED|UNABLE_TO/.test(code)) return "TLS_FAILED";
  if (/^HPE_/.test(code)) return "NOT_HTTP";
  return "FAILED";
}
