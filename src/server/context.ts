// What a server holds while it is open: the client, who may come in, the counters, the streams. Handlers are given it.
import type { Stillwake } from "../client/client.ts";
import { checkSecrets } from "../client/read-token.ts";
import type { PipelineInfo, Reader } from "../client/reader.ts";
import { InvalidInput } from "../errors.ts";
import { durationMs } from "../time.ts";
import type { Identity } from "./http/access.ts";
import { credentialOf, Identifier } from "./http/identify.ts";
import { OpenStreams, Rate } from "./http/rate-limits.ts";
import type { KnownSchemas } from "./http/validate-input.ts";
import type { ServerOptions } from "./options.ts";

const PIPELINE_MS = 2000;
const DEFAULT_RATE = { perSecond: 100, burst: 400 };
const DEFAULT_STREAMS = { perToken: 100, total: 10_000, recheck: "60s" };
/** Words that open nothing, from one address. */
const FAILED_RATE = { perSecond: 5, burst: 50 };

export class ServerContext {
  readonly stillwake: Stillwake;
  readonly options: ServerOptions;
  readonly secrets: readonly string[];
  readonly identifier: Identifier;
  readonly rate: Rate;
  readonly failures: Rate;
  readonly streams: OpenStreams;
  readonly recheckMs: number;
  /** The path it is mounted at, with a slash at both ends. */
  readonly base: string;
  readonly schemas: KnownSchemas = new Map();
  readonly #pipelines = new Map<string, { info: PipelineInfo; until: number }>();
  /** Ends every stream when the server closes. */
  readonly closing = new AbortController();

  constructor(stillwake: Stillwake, options: ServerOptions) {
    this.stillwake = stillwake;
    this.options = options;
    this.secrets = checkSecrets(options.secret);
    this.identifier = new Identifier(stillwake.tokens, this.secrets);
    this.rate = new Rate(options.rate ?? DEFAULT_RATE);
    this.failures = new Rate(FAILED_RATE);
    const streams = { ...DEFAULT_STREAMS, ...options.streams };
    this.streams = new OpenStreams(streams);
    this.recheckMs = durationMs(streams.recheck, "streams.recheck");
    this.base = checkPath(options.path ?? "/");
  }

  /** What somebody may see. For a tenant the database itself shows no more than that. */
  readingOf(who: Identity): Reader {
    if (who.tenant === null) return this.stillwake;
    return this.stillwake.tenant(who.tenant);
  }

  /** Whether somebody who has come in may stay. */
  async stillMay(request: Request, who: Identity): Promise<boolean> {
    if (this.options.auth === "none") return true;
    const own = await this.options.authenticate?.(request);
    const credential = credentialOf(request);
    const now = own ?? (credential && (await this.identifier.identify(credential.token, { fresh: true })));
    return now !== undefined && now.id === who.id && now.role === who.role && now.tenant === who.tenant;
  }

  /** Remembered for a moment: who enqueues much asks for it each time. */
  async pipeline(name: string): Promise<PipelineInfo> {
    const known = this.#pipelines.get(name);
    if (known && known.until > performance.now()) return known.info;
    const info = await this.stillwake.pipeline(name);
    this.#pipelines.set(name, { info, until: performance.now() + PIPELINE_MS });
    return info;
  }

  onError(error: unknown, request: { method: string; path: string }): void {
    if (this.options.onError) this.options.onError(error, request);
    else console.error(`${request.method} ${request.path}:`, error);
  }
}

function checkPath(path: string): string {
  if (/^(\/[\w.~-]+)*\/?$/.test(path) && path !== "") return path.endsWith("/") ? path : `${path}/`;
  throw new InvalidInput(`The path ${JSON.stringify(path)} is none that a server can be mounted at`, {
    field: "path",
    remedy: 'Write it as "/stillwake"',
  });
}
