// The options of a server, and its state while it is open: client, authentication, rate limits, streams. Handlers
// receive the ServerContext with every call.
import type { Stillwake } from "../client/client.ts";
import type { PokeTarget } from "../client/poke.ts";
import { checkSecrets } from "../client/read-token.ts";
import { type ArtifactSource, type PipelineInfo, Reader } from "../client/reader.ts";
import { inputError } from "../contract/pipeline.ts";
import { withPlaceholders } from "../contract/sealed-paths.ts";
import { AbsenceWatch } from "../db/absence-watch.ts";
import { Database, type DatabaseOptions } from "../db/database.ts";
import { Housekeeping } from "../db/housekeeping.ts";
import { searchDatabase } from "../db/tenant-database.ts";
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";
import { callerName, type Identity } from "./http/access.ts";
import { Authenticator, readToken } from "./http/identify.ts";
import { ConcurrencyLimiter, RateLimiter, StreamLimiter } from "./http/rate-limits.ts";
import { type InputSchema, readInputSchema } from "./http/request-input.ts";

export interface ServerOptions extends DatabaseOptions {
  /** Notified of new work, if another process starts the machines: see the client's option. */
  poke?: PokeTarget;
  /** A URL that bypasses the pooler, for hints of new log lines. Default: the database URL. */
  directUrl?: string;
  /** For downloading artifacts: the result of openStore() of stillwake/worker. */
  store?: ArtifactSource;
  /**
   * Signs and verifies read tokens, at least 32 characters. The first of several signs, all are accepted. Without a
   * secret there are no read tokens.
   */
  secret?: string | readonly string[];
  /** "tokens": callers need a token. "none": every caller is an admin; on loopback addresses only. Default "tokens". */
  auth?: "tokens" | "none";
  /** Called first, for a server mounted in an application with its own sign-in. Undefined: use the token. */
  authenticate?: (request: Request) => Identity | undefined | Promise<Identity | undefined>;
  /**
   * The client's address, for rate limits and audit entries. Default: by `trustProxy`.
   */
  clientAddress?: (request: Request) => string | null;
  /**
   * How many proxies in front of the server append the address of their caller to X-Forwarded-For. Default 0: the remote
   * address of the connection. Without any proxy it must be 0: callers could choose their address.
   */
  trustProxy?: number;
  /** Other origins whose pages may call the server, such as "https://app.example.com". Default: none. */
  origins?: readonly string[];
  /** The mount path, such as "/stillwake": for the dashboard's URLs and the path of its cookie. Default "/". */
  path?: string;
  /**
   * Requests per token, and per tenant: sustained rate and burst, default 100 and 400. `concurrent`: how many are
   * processed at once, default half of `connections`; further ones wait. Enqueues and searches are not counted.
   */
  rate?: { perSecond: number; burst: number; concurrent?: number };
  /**
   * Open streams: per token, and in total. Default 100 and 10,000. `recheck`: how often an open stream's token is
   * checked again, because another server may have revoked it. Default "60s".
   */
  streams?: { perToken?: number; total?: number; recheck?: Duration };
  /**
   * Called when new machines may be needed: by POST /v1/poke with its pool, and by POST /v1/watchdog. For an orchestrator in this process.
   */
  onPoke?: (pool?: string) => void;
  /** Receives internal errors, whose details the response hides. Default: prints them to stderr. */
  onError?: (error: unknown, request: { method: string; path: string }) => void;
}

const PIPELINE_CACHE_MS = 2000;
/** Workers check more often; the server does it for the last one. */
const ABSENCE = { leaseMs: 15_000, everyMs: 500 };
const DEFAULT_RATE = { perSecond: 100, burst: 400 };
const DEFAULT_STREAMS = { perToken: 100, total: 10_000, recheck: "60s" };
/** Invalid tokens from one address. */
const FAILED_RATE = { perSecond: 5, burst: 50 };
/** Requests of one caller that may wait to be processed. */
const MAX_WAITING = 500;
/** Searches read the contents of jobs: they have separate connections, and each is limited in time. */
const SEARCHES = { perCaller: 1, total: 2, waiting: 4 };
const SEARCH_TIMEOUT_MS = 3000;

export class ServerContext {
  readonly stillwake: Stillwake;
  readonly options: ServerOptions;
  readonly secrets: readonly string[];
  /** Does its work while requests arrive. */
  readonly housekeeping: Housekeeping;
  readonly authenticator: Authenticator;
  readonly requestLimiter: RateLimiter;
  readonly failureLimiter: RateLimiter;
  readonly concurrencyLimiter: ConcurrencyLimiter;
  readonly #searchLimiter = new ConcurrencyLimiter(SEARCHES);
  #searchDatabase: Database | undefined;
  readonly streams: StreamLimiter;
  readonly recheckMs: number;
  /** The mount path, with a slash at both ends. */
  readonly base: string;
  readonly #pipelines = new Map<string, { info: PipelineInfo; until: number }>();
  readonly #schemas = new Map<string, { updatedAt: number; schema: InputSchema | undefined }>();
  /** Aborted when the server closes; ends every stream. */
  readonly closing = new AbortController();
  /** Starts with each request and runs as long as workers hold leases. */
  readonly absenceWatch: AbsenceWatch;

  constructor(stillwake: Stillwake, options: ServerOptions) {
    this.stillwake = stillwake;
    this.options = options;
    this.secrets = checkSecrets(options.secret);
    this.housekeeping = new Housekeeping({ database: stillwake.database });
    this.authenticator = new Authenticator(stillwake.tokens, this.secrets);
    this.requestLimiter = new RateLimiter(options.rate ?? DEFAULT_RATE);
    this.failureLimiter = new RateLimiter(FAILED_RATE);
    const concurrent = options.rate?.concurrent ?? Math.ceil((options.connections ?? 10) / 2);
    this.concurrencyLimiter = new ConcurrencyLimiter({ perCaller: concurrent, waiting: MAX_WAITING });
    const streams = { ...DEFAULT_STREAMS, ...options.streams };
    this.streams = new StreamLimiter(streams);
    this.recheckMs = durationMs(streams.recheck, "streams.recheck");
    this.base = checkPath(options.path ?? "/");
    this.absenceWatch = new AbsenceWatch({ database: stillwake.database, worker: null, ...ABSENCE });
    this.closing.signal.addEventListener("abort", () => this.absenceWatch.stop());
  }

  /** For a tenant's caller the database itself shows only that tenant's rows. */
  readerFor(caller: Identity): Reader {
    if (caller.tenant === null) return this.stillwake;
    return this.stillwake.tenant(caller.tenant);
  }

  /** Runs a search for the caller. Many searches of one caller delay neither its other requests nor other callers. */
  search<Result>(caller: Identity, run: (reader: Reader) => Promise<Result>): Promise<Result> {
    return this.#searchLimiter.run(callerName(caller), () => {
      const { pool, store, onOutage: _reportedByTheClient, ...database } = this.options;
      // A pool of the application is shared; the number of searches is limited all the same.
      this.#searchDatabase ??= pool
        ? this.stillwake.database
        : new Database({ retryTimeout: "5s", ...database, connections: SEARCHES.total });
      return run(new Reader(searchDatabase(this.#searchDatabase, caller.tenant, SEARCH_TIMEOUT_MS), store));
    });
  }

  async close(): Promise<void> {
    await this.housekeeping.stop();
    if (!this.options.pool) await this.#searchDatabase?.close();
  }

  /** Whether the caller of an open stream still has the same access. */
  async isStillAllowed(request: Request, caller: Identity): Promise<boolean> {
    if (this.options.auth === "none") return true;
    const identity = await this.options.authenticate?.(request);
    const token = readToken(request);
    const now =
      identity ?? (token === undefined ? undefined : await this.authenticator.identify(token, { fresh: true }));
    return now !== undefined && now.id === caller.id && now.role === caller.role && now.tenant === caller.tenant;
  }

  /** Cached briefly, because every enqueue needs it. */
  async pipeline(name: string): Promise<PipelineInfo> {
    const cached = this.#pipelines.get(name);
    if (cached && cached.until > performance.now()) return cached.info;
    const info = await this.stillwake.pipeline(name);
    this.#pipelines.set(name, { info, until: performance.now() + PIPELINE_CACHE_MS });
    return info;
  }

  /**
   * Validates an input with the JSON Schema that the pipeline was registered with, as the client does with the
   * contract; applies defaults too. An input is accepted as it is if zod cannot read the schema.
   */
  validateInput(info: PipelineInfo, input: unknown, at: string): unknown {
    const schema = this.#inputSchema(info);
    if (!schema) return input;
    const replaced = withPlaceholders(input, info.sealed);
    const result = schema.safeParse(replaced.input);
    if (result.success) return replaced.restore(result.data);
    throw inputError(info.name, at, result.error.issues);
  }

  onError(error: unknown, request: { method: string; path: string }): void {
    if (this.options.onError) this.options.onError(error, request);
    else console.error(`${request.method} ${request.path}:`, error);
  }

  #inputSchema({ name, inputSchema, updatedAt }: PipelineInfo): InputSchema | undefined {
    const cached = this.#schemas.get(name);
    if (cached?.updatedAt === updatedAt.getTime()) return cached.schema;
    const schema = readInputSchema(inputSchema);
    this.#schemas.set(name, { updatedAt: updatedAt.getTime(), schema });
    return schema;
  }
}

function checkPath(path: string): string {
  if (/^(\/[\w.~-]+)*\/?$/.test(path) && path !== "") return path.endsWith("/") ? path : `${path}/`;
  throw new InvalidInput(`path ${JSON.stringify(path)} is not a valid mount path`, {
    field: "path",
    remedy: 'Write it as "/stillwake"',
  });
}
