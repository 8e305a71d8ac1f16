// One POST: its bytes, its time limit, and what came of it. Never throws, never follows a redirect, never goes through a proxy of the environment.
import http from "node:http";
import https from "node:https";
import type { LookupFunction, Socket } from "node:net";
import { version } from "../version.ts";
import { type AddressGuard, BlockedAddress } from "./address-guard.ts";

/** What came of one try. */
export interface Answer {
  status?: number;
  /** Absent when the receiver took it. */
  error?: string;
  /** The beginning of what it said. */
  response?: string;
  /** Seconds it asked to be left alone. */
  retryAfter?: number;
}

interface PostOptions {
  url: string;
  headers: Readonly<Record<string, string>>;
  body: string;
  timeoutMs: number;
  /** The whole request has been handed over to the system. */
  onWritten?(): void;
}

export interface Poster {
  post(options: PostOptions): Promise<Answer>;
  close(): void;
}

const MAX_RESPONSE = 1024;
/** A receiver that has given its status is not waited for much longer. */
const RESPONSE_MS = 1000;
/** How long a connection is kept for the next webhook to the same host. */
const KEPT_MS = 4000;

export function createPoster(guard: AddressGuard, ca?: string): Poster {
  const settings = { keepAlive: true, maxFreeSockets: 16, timeout: KEPT_MS };
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
      const began = performance.now();
      for (;;) {
        const leftMs = options.timeoutMs - (performance.now() - began);
        const { answer, stale } = await once(guard, agentOf(url), url, { ...options, timeoutMs: leftMs });
        // The receiver closed a connection that was kept, just as it was used again. Should it have read the request: the id is the same.
        if (!stale) return answer;
      }
    },
    close() {
      plain.destroy();
      secure.destroy();
    },
  };
}

function once(
  guard: AddressGuard,
  agent: http.Agent,
  url: URL,
  { headers, body, timeoutMs, onWritten }: PostOptions,
): Promise<{ answer: Answer; stale: boolean }> {
  return new Promise((resolve) => {
    const { request } = url.protocol === "http:" ? http : https;
    let done = false;
    let sent: http.ClientRequest | undefined;
    const end = (answer: Answer, stale = false) => {
      if (done) return;
      done = true;
      clearTimeout(timer);
      resolve({ answer, stale });
    };
    const timer = setTimeout(
      () => {
        end({ error: "TIMEOUT" });
        sent?.destroy();
      },
      Math.max(timeoutMs, 1),
    );
    try {
      guard.check(url);
      sent = request(url, {
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
      end({ error: codeOf(error) });
      return;
    }
    const made = sent;
    made.on("error", (error) => end({ error: codeOf(error) }, made.reusedSocket && isReset(error)));
    made.on("socket", (socket) => whenConnected(socket, () => judge(socket, made)));
    made.on("finish", () => onWritten?.());
    made.on("response", (response) => {
      const status = response.statusCode ?? 0;
      const answer: Answer = { status };
      if (status < 200 || status > 299) answer.error = status > 299 && status < 400 ? "REDIRECT" : "STATUS";
      const retryAfter = retryAfterOf(response.headers);
      if (answer.error && retryAfter !== undefined) answer.retryAfter = retryAfter;
      void beginningOf(response).then((text) => end(text ? { ...answer, response: text } : answer));
    });

    /** The lookup has judged every address; this is what the socket came to. The request is not written before it. */
    function judge(socket: Socket, request: http.ClientRequest): void {
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

/** Up to a kilobyte; what is longer or too slow is cut off with its connection. */
function beginningOf(response: http.IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let size = 0;
    let ended = false;
    const end = (whole: boolean) => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      if (!whole) response.destroy();
      // Postgres stores no NUL.
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

/** Seconds, or a date, which is held against the receiver's own clock. */
export function retryAfterOf(headers: http.IncomingHttpHeaders): number | undefined {
  const value = headers["retry-after"]?.trim();
  if (!value) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const then = Date.parse(value);
  const now = headers.date ? Date.parse(headers.date) : Number.NaN;
  return Number.isNaN(then) ? undefined : Math.max(0, (then - (Number.isNaN(now) ? Date.now() : now)) / 1000);
}

function isReset(error: Error): boolean {
  return /^(ECONNRESET|EPIPE)$/.test((error as NodeJS.ErrnoException).code ?? "");
}

/** Words of ours: those of the system tell about the network behind the sender. */
function codeOf(thrown: unknown): string {
  const error = thrown as NodeJS.ErrnoException & { errors?: unknown[] };
  if (error instanceof BlockedAddress || error.errors?.some((one) => one instanceof BlockedAddress)) {
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
