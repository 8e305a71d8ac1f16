// The API client of the commands. With a server URL it uses HTTP; with a database URL it creates the server in this
// process and calls it without a network. Both have the same paths, the same JSON and the same errors.
import { setTimeout as delay } from "node:timers/promises";
import type { Config } from "../config.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { readEvents, type SseEvent } from "../text/sse.ts";
import { backoffMs } from "../time.ts";
import { readDevAddress } from "./dev/address.ts";
import type { Flags } from "./flags.ts";
import type { Screen } from "./output/screen.ts";

export interface ApiRequest {
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
}

type Fetch = (request: Request) => Promise<Response>;

/** How long a stream tries to reconnect. */
const RECONNECT_MS = 60_000;
/** A connection that lasted this long resets the backoff. */
const STABLE_MS = 5000;
const DEV_SERVER = "http://127.0.0.1:4700";
const JSON_BODY = { "content-type": "application/json" };

/** Opens the client that the flags and the environment select: a server, a database, or a running `stillwake dev`. */
export async function openApiClient(flags: Flags, config: Config, screen: Screen): Promise<ApiClient> {
  const server = flags.server ?? (flags.url ? undefined : config.server);
  const database = flags.url ?? config.databaseUrl;
  if (server) {
    if (database) screen.printVerbose("Both a server and a database are configured; using the server.");
    return openServer(server, flags.token ?? config.token, screen);
  }
  if (database) return openDatabase(database, flags, config, screen);
  for (const dev of new Set([readDevAddress(config.dir), DEV_SERVER])) {
    if (dev === undefined || !(await isHealthy(`${dev}/health`))) continue;
    screen.printStderr(`Using stillwake dev at ${dev}.`);
    // It needs no token, and another program may have taken the port: the token is not sent.
    return openServer(dev, undefined, screen);
  }
  throw new InvalidInput("Neither a server nor a database is configured", {
    field: "server",
    remedy:
      "Pass --server https://… (with STILLWAKE_TOKEN) or --url postgres://…, set STILLWAKE_SERVER or DATABASE_URL, or start `stillwake dev`",
  });
}

function openServer(server: string, token: string | undefined, screen: Screen): ApiClient {
  const base = parseServerUrl(server);
  screen.printVerbose(`Using the server at ${base}${token ? " with a token" : ""}.`);
  if (token && base.startsWith("http:") && !/^http:\/\/(localhost|127\.[\d.]+|\[::1\])(:|\/|$)/.test(base)) {
    screen.printStderr("The token is sent unencrypted: the server URL starts with http:");
  }
  const send: Fetch = async (request) => {
    try {
      return await fetch(request);
    } catch (error) {
      if (request.signal.aborted) throw error;
      throw new StillwakeError("SERVER_UNAVAILABLE", formatNetworkError(base, error), {
        cause: error,
        retryable: true,
        remedy: "Check that it is running and that --server or STILLWAKE_SERVER is its URL",
      });
    }
  };
  return new ApiClient({ base, send, headers: token ? { authorization: `Bearer ${token}` } : {}, screen });
}

async function openDatabase(url: string, flags: Flags, config: Config, screen: Screen): Promise<ApiClient> {
  const [{ createServer }, { checkUrl }, { checkSecretSetting, pokeOptions }, { openStore }] = await Promise.all([
    import("../server/index.ts"),
    import("../db/database.ts"),
    import("./connection.ts"),
    import("../artifacts/open-store.ts"),
  ]);
  const store = flags.store ?? config.store;
  checkUrl(url);
  screen.printVerbose("Using the database directly.");
  // The server hides the details of internal errors from its callers. Here the caller is the owner of the database.
  let internalError: unknown;
  const server = createServer({
    url,
    schema: flags.schema ?? config.schema,
    ...(config.directUrl && { directUrl: config.directUrl }),
    ...(config.secret && { secret: checkSecretSetting(config.secret) }),
    auth: "none",
    ...(store && { store: openStore(store, config.storeCredentials) }),
    ...(config.pokeUrl && { poke: pokeOptions(config.pokeUrl, config.token) }),
    connections: 3,
    // A person waits for the result.
    retryTimeout: "3s",
    onError: (error) => {
      internalError = error;
    },
  });
  const send: Fetch = async (request) => {
    internalError = undefined;
    const response = await server.fetch(request);
    if (response.status >= 500 && internalError !== undefined) throw internalError;
    return response;
  };
  return new ApiClient({ send, screen, close: () => server.close() });
}

export interface ApiClientOptions {
  /** Default: a placeholder, for a server in this process. */
  base?: string;
  send: Fetch;
  headers?: Record<string, string>;
  screen: Screen;
  close?: () => Promise<void>;
}

export class ApiClient {
  readonly #base: string;
  readonly #send: Fetch;
  readonly #headers: Record<string, string>;
  readonly #screen: Screen;
  readonly #close: () => Promise<void>;

  constructor({ base = "http://127.0.0.1", send, headers = {}, screen, close = async () => {} }: ApiClientOptions) {
    this.#base = base;
    this.#send = send;
    this.#headers = headers;
    this.#screen = screen;
    this.#close = close;
  }

  async call(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    { query = {}, body }: ApiRequest = {},
    // biome-ignore lint/suspicious/noExplicitAny: the schema of the API describes the JSON.
  ): Promise<any> {
    const url = new URL(this.#base + path);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value));
    const response = await this.#send(
      new Request(url, {
        method,
        redirect: "manual",
        headers: { ...this.#headers, accept: "application/json", ...(body !== undefined && JSON_BODY) },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      }),
    );
    if (!response.ok) throw await toError(response);
    if (response.status === 204) return undefined;
    if (!/^application\/json\b/.test(response.headers.get("content-type") ?? "")) throw await toError(response);
    return response.json();
  }

  /** The body of the response as it arrives. */
  async download(path: string): Promise<ReadableStream<Uint8Array>> {
    const response = await this.#send(
      new Request(new URL(this.#base + path), { redirect: "manual", headers: this.#headers }),
    );
    if (!response.ok || !response.body) throw await toError(response);
    return response.body;
  }

  /** Follows a stream to its `end` event. Reconnects when the connection is lost, without missing an event. */
  async *stream(
    path: string,
    { after, signal }: { after?: string; signal?: AbortSignal } = {},
  ): AsyncGenerator<SseEvent> {
    let lastId: string | undefined;
    let lostAt: number | undefined;
    let wasConnected = false;
    for (let failures = 0; ; failures++) {
      const startedAt = performance.now();
      try {
        const url = new URL(this.#base + path);
        if (after !== undefined) url.searchParams.set("after", after);
        const headers = { ...this.#headers, accept: "text/event-stream", ...(lastId && { "last-event-id": lastId }) };
        const response = await this.#send(new Request(url, { headers, redirect: "manual", ...(signal && { signal }) }));
        if (response.status === 204) return;
        if (!response.ok) throw await toError(response);
        for await (const event of readEvents(response.body!)) {
          if (lostAt !== undefined) this.#screen.printStderr("Reconnected.");
          lostAt = undefined;
          wasConnected = true;
          lastId = event.id ?? lastId;
          yield event;
          if (event.event === "end") return;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof StillwakeError && !error.retryable) throw error;
        if (lostAt === undefined) {
          // A server that was never reached is reported at once.
          if (!wasConnected && error instanceof StillwakeError) throw error;
          this.#screen.printStderr("Connection lost, reconnecting.");
        }
        lostAt ??= performance.now();
        if (performance.now() - lostAt > RECONNECT_MS) throw error;
      }
      if (performance.now() - startedAt > STABLE_MS) failures = 0;
      await delay(backoffMs(failures, 200, 5000), undefined, signal && { signal }).catch(() => {});
      if (signal?.aborted) return;
    }
  }

  close(): Promise<void> {
    return this.#close();
  }
}

/** Not an InvalidInput, whatever the status: the arguments of the command were well formed. */
async function toError(response: Response): Promise<StillwakeError> {
  const text = await response.text().catch(() => "");
  let problem: { code?: string; detail?: string; field?: string; remedy?: string } = {};
  try {
    problem = JSON.parse(text);
  } catch {}
  const { code, detail, field, remedy } = problem;
  if (typeof code !== "string" || typeof detail !== "string") {
    return new StillwakeError(
      "SERVER_ERROR",
      `The server responded with ${response.status} ${response.statusText}`.trimEnd(),
      { retryable: response.status >= 500, remedy: "Check that the URL is that of a Stillwake server" },
    );
  }
  if (response.status === 401) {
    return new StillwakeError(code, detail.replace(/\. .*$/s, ""), {
      remedy: "Set STILLWAKE_TOKEN (an admin creates one: stillwake tokens create)",
    });
  }
  const message = remedy && detail.endsWith(`. ${remedy}`) ? detail.slice(0, -remedy.length - 2) : detail;
  return new StillwakeError(code, message, {
    retryable: response.status === 429 || response.status >= 500,
    ...(remedy && { remedy }),
    ...(field && { field }),
  });
}

function parseServerUrl(server: string): string {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url && /^https?:$/.test(url.protocol) && !url.username && !url.password) {
    return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
  }
  throw new InvalidInput("Invalid server URL", {
    field: "server",
    remedy: "Write it as https://host or http://127.0.0.1:4700, and put the token into STILLWAKE_TOKEN",
  });
}

function formatNetworkError(base: string, error: unknown): string {
  const { cause, message } = error as { cause?: { code?: string; message?: string }; message?: string };
  const code = cause?.code ?? "";
  if (code === "ECONNREFUSED") return `${base} refused the connection`;
  if (/^(ECONNRESET|EPIPE|UND_ERR_SOCKET|UND_ERR_CLOSED)$/.test(code)) return `${base} closed the connection`;
  if (/^(ENOTFOUND|EAI_AGAIN)$/.test(code)) return `The host name of ${base} cannot be resolved`;
  if (/TIMEOUT$|^ETIMEDOUT$/.test(code)) return `${base} did not respond in time`;
  return `${base} cannot be reached: ${cause?.message || message || String(error)}`;
}

async function isHealthy(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(1000) });
    const { status, version } = (await response.json()) as { status?: string; version?: string };
    return response.ok && status === "ok" && version !== undefined;
  } catch {
    return false;
  }
}
