// Access to Postgres: one connection pool, statements that are repeated when the connection is lost, and database
// errors mapped to Stillwake errors. In a pool opened here every timeout destroys its socket, so no call waits for ever
// on a half-open connection. A pool passed by the user keeps its own timeouts: without a `query_timeout`, a statement
// on a half-open connection waits until the kernel gives up.
import { setMaxListeners } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import {
  DatabaseUnavailable,
  fromDatabase,
  InvalidInput,
  isConflict,
  isConnectionLoss,
  isMissingPartition,
  isNotConnected,
  isTooManyConnections,
  isTransient,
  StillwakeError,
} from "../errors.ts";
import { backoffMs, type Duration, durationMs } from "../time.ts";
import { withTimeout } from "../timeout.ts";
import { checkoutClient } from "./connection.ts";
import { clientFor, splitHosts } from "./hosts.ts";
import { COMMITS_WAIT_REMEDY, readReplication, whyCommitsWait } from "./replication.ts";
import { checkSchema, schemaName } from "./schema-check.ts";

export interface DatabaseOptions {
  /** postgres://user:password@host:port/database */
  url?: string;
  /** Your own pool, instead of a URL. close() leaves it open; its size and timeouts are yours. */
  pool?: pg.Pool;
  /** The schema of this Stillwake. Default "stillwake". */
  schema?: string;
  /** The maximum number of connections. Default 10. */
  connections?: number;
  /** How long a call retries while Postgres cannot be reached; "forever" is allowed. Default "30s". */
  retryTimeout?: Duration | "forever";
  /** How long one statement may take before its connection is destroyed. Default "10s". */
  statementTimeout?: Duration;
  /** How long an unused connection is kept. Default "5s". */
  idleTimeout?: Duration;
  /** Called once when Postgres cannot be reached, and once when it is back. */
  onOutage?: (outage: { lost: unknown } | { awayMs: number }) => void;
}

/** How a statement is repeated after its response was lost. */
export interface RepeatOptions {
  /** Called before each try, from the second one on with true; returns the values to send. */
  values(again: boolean): unknown[];
  /** Overrides the retry timeout of the database. */
  retryTimeoutMs?: number;
  /** It changes nothing, so a lost response leaves nothing unknown. */
  read?: boolean;
  /** How one try is executed, where it takes more than the statement: see tenant-database.ts. */
  execute?: Execute;
}

export type Execute = <Row extends pg.QueryResultRow>(
  pool: pg.Pool,
  text: string,
  values: unknown[],
) => Promise<pg.QueryResult<Row>>;

/** What read calls need: implemented by Database, and by a database limited to one tenant. */
export type Queries = Pick<Database, "read" | "schema">;

/** The driver's message when query_timeout is over. */
const QUERY_TIMEOUT = "Query read timeout";

export class Database {
  readonly schema: string;
  readonly #open: (() => pg.Pool) | undefined;
  #pool: pg.Pool;
  /** The replaced pool, while statements in it are still running. */
  #previousPool: Promise<void> | undefined;
  readonly #retryTimeoutMs: number;
  readonly #stopping = new AbortController();
  readonly #onIdleError = () => {};
  readonly #onOutage: DatabaseOptions["onOutage"];
  /** While Postgres is unreachable, one probe of this process tries to reach it, and every call waits for that probe. */
  #returning: Promise<void> | undefined;
  #waiting = 0;
  #backAt = Number.NEGATIVE_INFINITY;
  #checked: Promise<void> | undefined;
  #identity: string | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: DatabaseOptions) {
    this.schema = schemaName(options.schema);
    this.#retryTimeoutMs =
      options.retryTimeout === "forever"
        ? Number.POSITIVE_INFINITY
        : durationMs(options.retryTimeout ?? "30s", "retryTimeout");
    this.#onOutage = options.onOutage;
    // Every call that waits for Postgres listens: more than ten are no leak.
    setMaxListeners(0, this.#stopping.signal);
    // An idle connection that breaks is replaced by the next call; without a listener Node would exit.
    const open = () => openPool(options).on("error", this.#onIdleError);
    this.#open = options.pool ? undefined : open;
    this.#pool = options.pool?.on("error", this.#onIdleError) ?? open();
  }

  /** How long Postgres has been reachable since the last outage; Infinity without one. */
  get reachableForMs(): number {
    return this.#returning ? 0 : performance.now() - this.#backAt;
  }

  /** For statements that change nothing. */
  async read<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[] = [],
    retryTimeoutMs?: number,
  ): Promise<Row[]> {
    const limit = retryTimeoutMs !== undefined && { retryTimeoutMs };
    return this.repeat<Row>(text, { values: () => values, read: true, ...limit });
  }

  /** For writes that are idempotent. */
  async query<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[] = [],
    retryTimeoutMs?: number,
  ): Promise<Row[]> {
    return this.repeat<Row>(text, { values: () => values, ...(retryTimeoutMs !== undefined && { retryTimeoutMs }) });
  }

  /**
   * Identifies the database, to tell whether a caller's transaction belongs to it. Read once, or again if it may have changed.
   * Undefined while a pool of the caller has no free connection: the transaction may hold the only one.
   */
  async identity(again = false): Promise<string | undefined> {
    if (this.#identity !== undefined && !again) return this.#identity;
    if (!this.#open && !hasFreeConnection(this.#pool)) return this.#identity;
    const [row] = await this.query<{ identity: string }>(`select ${this.schema}.database_identity() as identity`);
    this.#identity = row!.identity;
    return this.#identity;
  }

  /**
   * query() that also retries transient errors, such as a full disk or a cancelled statement: for results of finished work.
   * Errors that `except` accepts are thrown.
   */
  async queryUntilDone<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[],
    except?: (error: unknown) => boolean,
  ): Promise<Row[]> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.query<Row>(text, values);
      } catch (error) {
        if (!isTransient(error) || except?.(error)) throw error;
        await this.#sleep(backoffMs(attempt, 20, 2000), error, false);
      }
    }
  }

  /**
   * Sends a statement until a response arrives or the retry timeout is over, and at least once more after the first lost
   * response. A serialization conflict or deadlock was rolled back as a whole and is simply repeated; so is, once, a write
   * without a partition, after the partition was made.
   */
  async repeat<Row extends pg.QueryResultRow>(text: string, repeat: RepeatOptions): Promise<Row[]> {
    if (this.#stopping.signal.aborted) throw closed();
    await this.#check();
    const deadline = performance.now() + (repeat.retryTimeoutMs ?? this.#retryTimeoutMs);
    let unknown = false;
    let mayBeDone = false;
    let prepared = false;
    for (let attempt = 0; ; attempt++) {
      try {
        return (await this.#send<Row>(text, repeat.values(unknown), repeat.retryTimeoutMs, repeat.execute)).rows;
      } catch (error) {
        if (isMissingPartition(error) && !prepared) {
          prepared = true;
          // If this fails, the statement fails again and reports why.
          await this.#send(`select ${this.schema}.make_partitions()`).catch(() => {});
          continue;
        }
        const lost = isConnectionLoss(error);
        mayBeDone ||= lost && !repeat.read && !isNotConnected(error);
        // An earlier try whose response was lost is committing this id: the next try sees it.
        const ownDuplicate = unknown && (error as { code?: string }).code === "23505";
        if (!lost && !ownDuplicate && !isConflict(error)) throw this.#explain(error);
        // Most often only one connection broke: the first repeat is immediate and unconditional. After that, wait for the probe.
        if (lost && unknown) {
          await this.#untilBack(error, deadline, mayBeDone);
          // A server may accept the probe and reject the statement every time.
          if (attempt > 1) await this.#pauseOrGiveUp(error, attempt, deadline, mayBeDone);
        } else await this.#pauseOrGiveUp(error, attempt, lost ? Number.POSITIVE_INFINITY : deadline, mayBeDone);
        unknown ||= lost;
      }
    }
  }

  /** Throws DatabaseUnavailable when no commit is acknowledged: a synchronous standby is away. */
  async checkCommits(): Promise<void> {
    const why = whyCommitsWait(await readReplication((text) => this.read(text)));
    if (why) throw new DatabaseUnavailable(`Postgres acknowledges no commits: ${why}`, { remedy: COMMITS_WAIT_REMEDY });
  }

  /** Lets statements in flight finish; calls that wait for Postgres fail at once. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#stopping.abort();
    if (this.#open) await Promise.all([this.#previousPool, this.#pool.end()]);
    else this.#pool.off("error", this.#onIdleError);
  }

  /** One try. A short retry timeout also limits the wait for a connection and a response, to no less than a second. */
  async #send<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[] = [],
    retryTimeoutMs?: number,
    execute: Execute = executeStatement,
  ) {
    const pool = this.#pool;
    const response = execute<Row>(pool, text, values);
    try {
      return await (retryTimeoutMs === undefined
        ? response
        : withTimeout(response, Math.max(retryTimeoutMs, 1000), throwQueryTimeout));
    } catch (error) {
      if ((error as Error).message === QUERY_TIMEOUT && pool === this.#pool) this.#replacePool();
      throw error;
    }
  }

  /**
   * When one connection stops responding, the others usually have too: none of them is used again. Not while statements
   * of the previous pool are still running: a slow database must not receive ever more connections.
   */
  #replacePool(): void {
    if (!this.#open || this.#previousPool || this.#stopping.signal.aborted) return;
    this.#previousPool = this.#pool.end().finally(() => {
      this.#previousPool = undefined;
    });
    this.#pool = this.#open();
  }

  /** Once per process, before the first statement: checks that this version supports the schema. */
  #check(): Promise<void> {
    this.#checked ??= this.#checkWithRetries().catch((error) => {
      this.#checked = undefined;
      throw error;
    });
    return this.#checked;
  }

  async #checkWithRetries(): Promise<void> {
    const deadline = performance.now() + this.#retryTimeoutMs;
    for (;;) {
      try {
        return await checkSchema((text) => this.#send(text), this.schema);
      } catch (error) {
        if (!isConnectionLoss(error)) throw this.#explain(error);
        await this.#untilBack(error, deadline, false);
      }
    }
  }

  /** A pool that has been ended rejects with its own message. */
  #explain(error: unknown): unknown {
    const explained = fromDatabase(error);
    return this.#stopping.signal.aborted && explained === error ? closed(error, true) : explained;
  }

  /** `mayBeDone`: the response to a write was lost. */
  async #pauseOrGiveUp(error: unknown, attempt: number, deadline: number, mayBeDone: boolean): Promise<void> {
    const pauseMs = reconnectMs(error, attempt, 2000);
    if (performance.now() + pauseMs > deadline) {
      throw unavailableError(error, this.#retryTimeoutMs, mayBeDone);
    }
    await this.#sleep(pauseMs, error, mayBeDone);
  }

  async #sleep(ms: number, error: unknown, mayBeDone: boolean): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopping.signal }).catch(() => {
      throw closed(error, mayBeDone);
    });
  }

  /** Waits until the probe succeeds or the retry timeout is over. */
  async #untilBack(error: unknown, deadline: number, mayBeDone: boolean): Promise<void> {
    this.#waiting += 1;
    this.#returning ??= this.#probe(error).finally(() => {
      this.#returning = undefined;
      this.#backAt = performance.now();
    });
    try {
      for (const { signal } = this.#stopping; this.#returning; ) {
        const leftMs = deadline - performance.now();
        if (leftMs <= 0) throw unavailableError(error, this.#retryTimeoutMs, mayBeDone);
        if (signal.aborted) throw closed(error, mayBeDone);
        const over = new AbortController();
        const limit = delay(Math.min(leftMs, 2 ** 30), undefined, { signal: AbortSignal.any([signal, over.signal]) });
        await Promise.race([this.#returning, limit.catch(() => {})]);
        over.abort();
      }
      // Not all at once, each on a new connection: the one that the probe opened serves them all.
      if (this.#waiting > 1) await this.#sleep(Math.random() * Math.min(25 * this.#waiting, 1000), error, mayBeDone);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Runs as long as a call waits for it. */
  async #probe(error: unknown): Promise<void> {
    const startedAt = performance.now();
    let reported = false;
    let last = error;
    for (let attempt = 1; !this.#stopping.signal.aborted && this.#waiting > 0; attempt++) {
      await delay(reconnectMs(last, attempt, 2000), undefined, { signal: this.#stopping.signal }).catch(() => {});
      if (attempt > 1 && !reported) {
        reported = true;
        this.#onOutage?.({ lost: last });
      }
      try {
        // A standby responds too, but is read-only.
        const { rows } = await this.#send<{ off: string }>("select current_setting('transaction_read_only') as off");
        if (rows[0]?.off === "on") {
          // After a failover only a new connection reaches the current primary.
          this.#replacePool();
          continue;
        }
        // Not with a write: each one would leave another session that waits, because Postgres does not notice there
        // that its client is gone.
        const why = whyCommitsWait(await readReplication(async (text) => (await this.#send(text)).rows as never[]));
        if (why) {
          last = new Error(why);
          continue;
        }
        if (reported) this.#onOutage?.({ awayMs: performance.now() - startedAt });
        return;
      } catch (again) {
        last = again;
      }
    }
  }
}

/** The delay after a connection was lost or refused; longer when the server has no free connection slots. */
export function reconnectMs(error: unknown, attempt: number, maxMs: number): number {
  return backoffMs(attempt, isTooManyConnections(error) ? 500 : 20, maxMs);
}

/** Like pool.query(), but keeps the connection after an error raised by SQL; pool.query() would discard it. */
async function executeStatement<Row extends pg.QueryResultRow>(pool: pg.Pool, text: string, values: unknown[]) {
  const client = await checkoutClient(pool, ignoreError);
  let broken: Error | undefined;
  try {
    return await client.query<Row>(text, values);
  } catch (error) {
    if (isConnectionLoss(error)) broken = error as Error;
    throw error;
  } finally {
    client.off("error", ignoreError);
    client.release(broken);
  }
}

export function ignoreError(): void {}

function hasFreeConnection({ idleCount, totalCount, waitingCount, options }: pg.Pool): boolean {
  return waitingCount === 0 && (idleCount > 0 || totalCount < (options?.max ?? 10));
}

function throwQueryTimeout(): never {
  throw new Error(QUERY_TIMEOUT);
}

/** "$1, $2, …" for the arguments of a function call. */
export function placeholders(values: readonly unknown[]): string {
  return values.map((_, index) => `$${index + 1}`).join(", ");
}

const MAY_BE_DONE = "; the last call may or may not have been committed";

export function unavailableError(cause: unknown, retryTimeoutMs: number, mayBeDone: boolean): DatabaseUnavailable {
  return new DatabaseUnavailable(
    `Postgres could not be reached ${Number.isFinite(retryTimeoutMs) ? `for ${retryTimeoutMs} ms` : "in time"}: ${(cause as Error).message || "connection refused"}`,
    {
      cause,
      remedy: `Check that it is running and that the URL is right${mayBeDone ? MAY_BE_DONE : ""}`,
    },
  );
}

function closed(cause?: unknown, mayBeDone = false): StillwakeError {
  return new StillwakeError("CLOSED", "The client is closed", {
    cause,
    remedy: cause
      ? `Close it after its calls have finished${mayBeDone ? MAY_BE_DONE : ""}`
      : "Close it after its last call, or create another",
  });
}

/** The error message omits the URL because it contains a password. */
export function checkUrl(url: string): string {
  const [first] = splitHosts(url);
  if (URL.canParse(first!) && ["postgres:", "postgresql:", "socket:"].includes(new URL(first!).protocol)) return url;
  throw new InvalidInput("url is not a Postgres URL", {
    field: "url",
    remedy:
      "Use postgres://user:password@host:5432/database, with special characters in the password escaped as in %40",
  });
}

function openPool(options: DatabaseOptions): pg.Pool {
  if (!options.url) {
    throw new InvalidInput("Neither url nor pool is set", {
      field: "url",
      remedy: "Pass the URL of your Postgres, as in createStillwake({ url: process.env.DATABASE_URL })",
    });
  }
  return new pg.Pool({
    ...clientFor(checkUrl(options.url)),
    application_name: "stillwake",
    max: options.connections ?? 10,
    query_timeout: durationMs(options.statementTimeout ?? "10s", "statementTimeout"),
    connectionTimeoutMillis: 5000,
    // Without work the pool closes all connections, so that the database may suspend. The driver reads 0 as never.
    idleTimeoutMillis: Math.max(1, durationMs(options.idleTimeout ?? "5s", "idleTimeout")),
    allowExitOnIdle: true,
    keepAlive: true,
  });
}
