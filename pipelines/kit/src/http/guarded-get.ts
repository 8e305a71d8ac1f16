// GET requests for URLs of users, protected like webhooks: every address is checked by the guard, also after redirects, and the
// socket's address is checked before the request is written. Proxy settings of the environment are ignored.
import http from "node:http";
import https from "node:https";
import type { Socket } from "node:net";
import type { AddressGuard } from "stillwake/worker";

export interface GetOptions {
  guard: AddressGuard;
  headers?: Readonly<Record<string, string>>;
  /** Aborts the request and the response. */
  signal: AbortSignal;
  /** Default 5. */
  maxRedirects?: number;
}

export interface GetResponse {
  /** After redirects. */
  url: URL;
  status: number;
  headers: http.IncomingHttpHeaders;
  /** The caller reads or destroys it. */
  body: http.IncomingMessage;
}

/** Throws BlockedAddress, or the error of the connection. A response of any status is returned. */
export async function guardedGet(url: URL, options: GetOptions): Promise<GetResponse> {
  const { maxRedirects = 5 } = options;
  for (let redirects = 0; ; redirects++) {
    const response = await sendGuarded(url, { ...options, method: "GET" });
    const { status, headers, body } = response;
    if (![301, 302, 303, 307, 308].includes(status) || headers.location === undefined) return response;
    body.destroy();
    if (redirects >= maxRedirects || !URL.canParse(headers.location, url.href)) {
      throw Object.assign(new Error("Too many redirects, or an invalid one"), { code: "REDIRECT" });
    }
    url = new URL(headers.location, url);
  }
}

/** One request without redirects. */
export function sendGuarded(
  url: URL,
  { guard, headers = {}, signal, method }: Omit<GetOptions, "maxRedirects"> & { method: string },
): Promise<GetResponse> {
  return new Promise((resolve, reject) => {
    guard.check(url);
    const { request: send } = url.protocol === "http:" ? http : https;
    const request = send(url, { method, headers, signal, agent: false, lookup: guard.lookup(url) });
    request.on("error", reject);
    request.on("response", (body) => resolve({ url, status: body.statusCode ?? 0, headers: body.headers, body }));
    request.on("socket", (socket) =>
      whenConnected(socket, () => {
        try {
          guard.connected(url, socket.remoteAddress);
          request.end();
        } catch (error) {
          request.destroy(error as Error);
        }
      }),
    );
  });
}

function whenConnected(socket: Socket, then: () => void): void {
  if (socket.connecting) socket.once("connect", then);
  else then();
}
