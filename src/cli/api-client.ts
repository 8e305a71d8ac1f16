// The way to the API. With a server's address it is HTTP; with a database the server is made in this process and asked without a network. Commands
// cannot tell them apart: the same paths, the same JSON, the same refusals.
import { setTimeout as delay } from "node:timers/promises";
import type { Config } from "../config.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { backoffMs } from "../time.ts";
import { checkSecretSetting, pokeAt } from "./checks.ts";
import { readDevAddress } from "./dev/address.ts";
import type { Flags } from "./flags.ts";
import type { Screen } from "./output/screen.ts";
import { readEvents, type Told } from "./sse.ts";

export interface Ask {
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
}

export interface Door {
  // biome-ignore lint/suspicious/noExplicitAny: what the API answers is described by its schema, not here.
  call(method: "GET" | "POST" | "PUT" | "DELETE", path: string, ask?: Ask): Promise<any>;
  /** Comes back by itself when the connection is cut, without missing a line, until the job has ended. */
  stream(path: string, options?: { after?: string; signal?: AbortSignal }): AsyncIterable<Told>;
  close(): Promise<void>;
}

type Fetch = (request: Request) => Promise<Response>;

/** How long a server that was there may be away. */
const PATIENCE_MS = 60_000;
/** A connection that lasted so long was a good one. */
const STEADY_MS = 5000;
const DEV_SERVER = "http://127.0.0.1:4700";

/** A word of the caller's as a part of a path; two of them would be read as steps in it. */
export function inPath(word: string): string {
  if (word !== "." && word !== ".." && word !== "") return encodeURIComponent(word);
  throw new InvalidInput(`${JSON.stringify(word)} is neither an id nor a name`, { remedy: "Write the id or the name" });
}

export async function openDoor(flags: Flags, config: Config, screen: Screen): Promise<Door> {
  const server = flags.server ?? (flags.url ? undefined : config.server);
  if (server) {
    if (flags.url ?? config.databaseUrl) screen.mention("Both a server and a database are named; the server is asked.");
    return serverDoor(server, flags.token ?? config.token, screen);
  }
  const url = flags.url ?? config.databaseUrl;
  if (url) return databaseDoor(url, flags, config, screen);
  for (const dev of new Set([readDevAddress(config.dir), DEV_SERVER])) {
    if (dev === undefined || !(await answers(`${dev}/health`))) continue;
    screen.say(`Asking stillwake dev at ${dev}.`);
    // It asks for no token, and who has the port may be anybody.
    return serverDoor(dev, undefined, screen);
  }
  throw new InvalidInput("Neither a server nor a database is named", {
    field: "server",
    remedy:
      "Pass --server https://… (with STILLWAKE_TOKEN) or --url postgres://…, set STILLWAKE_SERVER or DATABASE_URL, or start `stillwake dev`",
  });
}

function serverDoor(server: string, token: string | undefined, screen: Screen): Door {
  const base = addressOf(server);
  screen.mention(`Asking the server at ${base}${token ? " with a token" : ""}.`);
  if (token && base.startsWith("http:") && !/^http:\/\/(localhost|127\.[\d.]+|\[::1\])(:|\/|$)/.test(base)) {
    screen.say("The token travels unencrypted: the server's address begins with http:");
  }
  const send: Fetch = async (request) => {
    try {
      return await fetch(request);
    } catch (error) {
      if (request.signal.aborted) throw error;
      throw new StillwakeError("SERVER_UNAVAILABLE", troubleWith(base, error), {
        cause: error,
        retryable: true,
        remedy: "Check that it is running and that --server or STILLWAKE_SERVER names it",
      });
    }
  };
  return new ApiDoor(base, send, token ? { authorization: `Bearer ${token}` } : {}, screen, async () => {});
}

async function databaseDoor(url: string, flags: Flags, config: Config, screen: Screen): Promise<Door> {
  const [{ createServer }, { checkUrl }] = await Promise.all([
    import("../server/index.ts"),
    import("../db/database.ts"),
  ]);
  checkUrl(url);
  screen.mention("Asking the database itself.");
  // The server tells strangers little of what went wrong inside. Here nobody is a stranger.
  let inside: unknown;
  const server = createServer({
    url,
    schema: flags.schema ?? config.schema,
    ...(config.directUrl && { directUrl: config.directUrl }),
    ...(config.secret && { secret: checkSecretSetting(config.secret) }),
    auth: "none",
    ...(config.pokeUrl && { poke: pokeAt(config.pokeUrl, config.token) }),
    connections: 3,
    // Somebody sits there and waits.
    patience: "3s",
    onError: (error) => {
      inside = error;
    },
  });
  const send: Fetch = async (request) => {
    inside = undefined;
    const response = await server.fetch(request);
    if (response.status >= 500 && inside !== undefined) throw inside;
    return response;
  };
  return new ApiDoor("http://127.0.0.1", send, {}, screen, () => server.close());
}

/** To a server in this process that somebody else has made, and closes. */
export function doorTo(fetch: Fetch, screen: Screen): Door {
  return new ApiDoor("http://127.0.0.1", fetch, {}, screen, async () => {});
}

class ApiDoor implements Door {
  readonly #base: string;
  readonly #send: Fetch;
  readonly #headers: Record<string, string>;
  readonly #screen: Screen;
  readonly #close: () => Promise<void>;

  constructor(base: string, send: Fetch, headers: Record<string, string>, screen: Screen, close: () => Promise<void>) {
    this.#base = base;
    this.#send = send;
    this.#headers = headers;
    this.#screen = screen;
    this.#close = close;
  }

  async call(method: string, path: string, { query = {}, body }: Ask = {}) {
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
    if (!response.ok) throw await refusalOf(response);
    if (response.status === 204) return undefined;
    if (!/^application\/json\b/.test(response.headers.get("content-type") ?? "")) throw await refusalOf(response);
    return response.json();
  }

  async *stream(path: string, { after, signal }: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<Told> {
    let last: string | undefined;
    let lostAt: number | undefined;
    let reached = false;
    for (let tries = 0; ; tries++) {
      const began = performance.now();
      try {
        const url = new URL(this.#base + path);
        if (after !== undefined) url.searchParams.set("after", after);
        const headers = { ...this.#headers, accept: "text/event-stream", ...(last && { "last-event-id": last }) };
        const response = await this.#send(new Request(url, { headers, redirect: "manual", ...(signal && { signal }) }));
        if (response.status === 204) return;
        if (!response.ok) throw await refusalOf(response);
        for await (const told of readEvents(response.body!)) {
          if (lostAt !== undefined) this.#screen.say("Connected again.");
          lostAt = undefined;
          reached = true;
          last = told.id ?? last;
          yield told;
          if (told.event === "end") return;
        }
      } catch (error) {
        if (signal?.aborted) return;
        // What is refused now is refused the next time.
        if (error instanceof StillwakeError && !error.retryable) throw error;
        if (lostAt === undefined) {
          // One that was never reached is said at once.
          if (!reached && error instanceof StillwakeError) throw error;
          this.#screen.say("The connection was lost; trying again.");
        }
        lostAt ??= performance.now();
        if (performance.now() - lostAt > PATIENCE_MS) throw error;
      }
      // One that is cut again and again is not knocked at again and again.
      if (performance.now() - began > STEADY_MS) tries = 0;
      await delay(backoffMs(tries, 200, 5000), undefined, signal && { signal }).catch(() => {});
      if (signal?.aborted) return;
    }
  }

  close(): Promise<void> {
    return this.#close();
  }
}

const JSON_BODY = { "content-type": "application/json" };

/** What the server says, as an error of the library. Its class is not that of wrong arguments: the call itself was well formed. */
async function refusalOf(response: Response): Promise<StillwakeError> {
  const text = await response.text().catch(() => "");
  let problem: { code?: string; detail?: string; field?: string; remedy?: string } = {};
  try {
    problem = JSON.parse(text);
  } catch {}
  const { code, detail, field, remedy } = problem;
  if (typeof code !== "string" || typeof detail !== "string") {
    return new StillwakeError(
      "SERVER_ERROR",
      `The server answered ${response.status} ${response.statusText}`.trimEnd(),
      {
        retryable: response.status >= 500,
        remedy: "Check that the address is that of a Stillwake server",
      },
    );
  }
  if (response.status === 401) {
    return new StillwakeError(code, detail.replace(/\. .*$/s, ""), {
      remedy: "Set STILLWAKE_TOKEN (an admin makes one: stillwake tokens create)",
    });
  }
  const without = remedy && detail.endsWith(`. ${remedy}`) ? detail.slice(0, -remedy.length - 2) : detail;
  return new StillwakeError(code, without, {
    retryable: response.status === 429 || response.status >= 500,
    ...(remedy && { remedy }),
    ...(field && { field }),
  });
}

function addressOf(server: string): string {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url && /^https?:$/.test(url.protocol) && !url.username && !url.password) {
    return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
  }
  throw new InvalidInput("The server's address is not one", {
    field: "server",
    remedy: "Write it as https://host or http://127.0.0.1:4700; the token belongs into STILLWAKE_TOKEN",
  });
}

/** Codes of Node and of its fetch, as people say it. */
function troubleWith(base: string, error: unknown): string {
  const { cause, message } = error as { cause?: { code?: string; message?: string }; message?: string };
  const code = cause?.code ?? "";
  if (code === "ECONNREFUSED") return `The connection was refused by ${base}`;
  if (/^(ECONNRESET|EPIPE|UND_ERR_SOCKET|UND_ERR_CLOSED)$/.test(code)) return `The connection was closed by ${base}`;
  if (/^(ENOTFOUND|EAI_AGAIN)$/.test(code)) return `The name of ${base} is not known here`;
  if (/TIMEOUT$|^ETIMEDOUT$/.test(code)) return `There was no answer from ${base}`;
  return `The server at ${base} cannot be reached: ${cause?.message || message || String(error)}`;
}

async function answers(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(1000) });
    const { status, version } = (await response.json()) as { status?: string; version?: string };
    return response.ok && status === "ok" && version !== undefined;
  } catch {
    return false;
  }
}
