// The way to Postgres: one pool, statements that are repeated when the connection is lost, errors turned into our own. In a pool
// opened here time limits end in a destroyed socket, so nothing waits for ever on a connection that is half open. A user's own pool has the
// limits the user gave it: without a `query_timeout` of theirs a statement on a half-open connection waits as long as the kernel does.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import {
  DatabaseUnavailable,
  fromDatabase,
  InvalidInput,
  isConflict,
  isConnectionLoss,
  isFull,
  isPassing,
  StillwakeError,
} from "../errors.ts";
import { backoffMs, type Duration, durationMs } from "../time.ts";
import { taken } from "./connection.ts";
import { checkSchema, schemaName } from "./schema-check.ts";

export interface DatabaseOptions {
  /** postgres://user:password@host:port/database */
  url?: string;
  /** A pool of yours, instead of a URL. It stays yours: close() leaves it open, and its size and time limits are what you set. */
  pool?: pg.Pool;
  /** The schema this Stillwake lives in. Default "stillwake". */
  schema?: string;
  /** Connections at most. Default 10. */
  connections?: number;
  /** How long a call goes on trying while Postgres cannot be reached; "forever" is allowed. Default "30s". */
  patience?: Duration;
  /** How long one statement may take before its connection is given up. Default "10s". */
  statementTimeout?: Duration;
  /** How long a connection that nobody uses is kept. Default "5s". */
  idleTimeout?: Duration;
  /** Told once when Postgres cannot be reached, and once when it is back. */
  onOutage?: (outage: { lost: unknown } | { awayMs: number }) => void;
}

/** How a statement behaves when it is repeated after its answer was lost. */
export interface Repeat {
  /** Called before each try with true from the second on; returns the values to send. */
  values(again: boolean): unknown[];
  /** Instead of the patience of the whole. */
  patienceMs?: number;
  /** How one try is made, where it takes more than the statement: see scoped-database.ts. */
  through?: Through;
}

export type Through = <Row extends pg.QueryResultRow>(
  pool: pg.Pool,
  text: string,
  values: unknown[],
) => Promise<pg.QueryResult<Row>>;

/** What reads need of a database: the whole one has it, and one that shows the rows of a tenant alone. */
export type Queries = Pick<Database, "query" | "schema">;

/** What the driver says when a statement's time is over. */
const SILENT = "Query read timeout";

export class Database {
  readonly schema: string;
  readonly #open: (() => pg.Pool) | undefined;
  #pool: pg.Pool;
  #former: Promise<void> | undefined;
  readonly #patienceMs: number;
  readonly #stopping = new AbortController();
  readonly #onIdleError = () => {};
  readonly #onOutage: DatabaseOptions["onOutage"];
  /** While Postgres is away one probe of this process asks for it, and every call waits for that one. */
  #returning: Promise<void> | undefined;
  #waiting = 0;
  #backAt = Number.NEGATIVE_INFINITY;
  #checked: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: DatabaseOptions) {
    this.schema = schemaName(options.schema);
    this.#patienceMs =
      options.patience === "forever" ? Number.POSITIVE_INFINITY : durationMs(options.patience ?? "30s", "patience");
    this.#onOutage = options.onOutage;
    // An idle connection that breaks is replaced by the next call; without a listener Node would exit.
    const open = () => openPool(options).on("error", this.#onIdleError);
    this.#open = options.pool ? undefined : open;
    this.#pool = options.pool?.on("error", this.#onIdleError) ?? open();
  }

  /** How long Postgres has been within reach since it was last out of it; for ever when it never was. */
  get steadyMs(): number {
    return this.#returning ? 0 : performance.now() - this.#backAt;
  }

  /** Reads, and writes that are the same when repeated. */
  async query<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[] = [],
    patienceMs?: number,
  ): Promise<Row[]> {
    return this.repeat<Row>(text, { values: () => values, ...(patienceMs !== undefined && { patienceMs }) });
  }

  /** query(), and what passes is waited out too, such as a statement that was cancelled or a full disk: for the results of work that is done. */
  async insist<Row extends pg.QueryResultRow>(text: string, values: unknown[]): Promise<Row[]> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.query<Row>(text, values);
      } catch (error) {
        if (!isPassing(error)) throw error;
        await this.#sleep(backoffMs(attempt, 20, 2000), error);
      }
    }
  }

  /**
   * Sends a statement until it is answered or patience ends; after the first lost answer once more in any case. A conflict with others was
   * undone as a whole and is simply repeated.
   */
  async repeat<Row extends pg.QueryResultRow>(text: string, repeat: Repeat): Promise<Row[]> {
    if (this.#stopping.signal.aborted) throw closed();
    await this.#check();
    const deadline = performance.now() + (repeat.patienceMs ?? this.#patienceMs);
    let unknown = false;
    for (let attempt = 0; ; attempt++) {
      try {
        return (await this.#send<Row>(text, repeat.values(unknown), repeat.patienceMs, repeat.through)).rows;
      } catch (error) {
        const lost = isConnectionLoss(error);
        // An id that a lost try of ours is about to commit: the next try sees it.
        const ours = unknown && (error as { code?: string }).code === "23505";
        if (!lost && !ours && !isConflict(error)) throw this.#explain(error);
        // Most often only a connection broke: the first repetition is soon and in any case. From then on all calls wait for one probe.
        if (lost && unknown) {
          await this.#untilBack(error, deadline);
          // A server may answer the probe and refuse the statement for ever.
          if (attempt > 1) await this.#pauseOrGiveUp(error, attempt, deadline);
        } else await this.#pauseOrGiveUp(error, attempt, lost ? Number.POSITIVE_INFINITY : deadline);
        unknown ||= lost;
      }
    }
  }

  /** Lets statements in flight finish; calls that wait for Postgres to come back end at once. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#stopping.abort();
    if (this.#open) await Promise.all([this.#former, this.#pool.end()]);
    else this.#pool.off("error", this.#onIdleError);
  }

  /** One try. Who has little patience waits no longer than that, for a connection and an answer together, and a second at least. */
  async #send<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[] = [],
    patienceMs?: number,
    through?: Through,
  ) {
    const pool = this.#pool;
    const answer = (through ?? oneStatement)<Row>(pool, text, values);
    try {
      return await (patienceMs === undefined ? answer : within(Math.max(patienceMs, 1000), answer));
    } catch (error) {
      if ((error as Error).message === SILENT && pool === this.#pool) this.#renew();
      throw error;
    }
  }

  /**
   * Where one connection has fallen silent those beside it have too, most often: what is open is not used again. Not while statements of
   * the pool before are under way: a database that is slow must not be met with ever more connections.
   */
  #renew(): void {
    if (!this.#open || this.#former || this.#stopping.signal.aborted) return;
    this.#former = this.#pool.end().finally(() => {
      this.#former = undefined;
    });
    this.#pool = this.#open();
  }

  /** Once per process, before the first statement: is the schema one this version can work with? */
  #check(): Promise<void> {
    this.#checked ??= this.#checkPatiently().catch((error) => {
      this.#checked = undefined;
      throw error;
    });
    return this.#checked;
  }

  async #checkPatiently(): Promise<void> {
    const deadline = performance.now() + this.#patienceMs;
    for (;;) {
      try {
        return await checkSchema((text) => this.#send(text), this.schema);
      } catch (error) {
        if (!isConnectionLoss(error)) throw this.#explain(error);
        await this.#untilBack(error, deadline);
      }
    }
  }

  /** An own pool that has been ended refuses in words of its own. */
  #explain(error: unknown): unknown {
    const explained = fromDatabase(error);
    return this.#stopping.signal.aborted && explained === error ? closed(error) : explained;
  }

  async #pauseOrGiveUp(error: unknown, attempt: number, deadline: number): Promise<void> {
    const pauseMs = reconnectMs(error, attempt, 2000);
    if (performance.now() + pauseMs > deadline) {
      throw unavailable(error, this.#patienceMs);
    }
    await this.#sleep(pauseMs, error);
  }

  async #sleep(ms: number, error: unknown): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopping.signal }).catch(() => {
      throw closed(error);
    });
  }

  /** Waits until the probe was answered, as long as patience lasts. */
  async #untilBack(error: unknown, deadline: number): Promise<void> {
    this.#waiting += 1;
    this.#returning ??= this.#probe(error).finally(() => {
      this.#returning = undefined;
      this.#backAt = performance.now();
    });
    try {
      for (const { signal } = this.#stopping; this.#returning; ) {
        const leftMs = deadline - performance.now();
        if (leftMs <= 0) throw unavailable(error, this.#patienceMs);
        if (signal.aborted) throw closed(error);
        const over = new AbortController();
        const limit = delay(Math.min(leftMs, 2 ** 30), undefined, { signal: AbortSignal.any([signal, over.signal]) });
        await Promise.race([this.#returning, limit.catch(() => {})]);
        over.abort();
      }
      // Not all at once, each over a connection of its own: the one that the probe has opened serves them all.
      if (this.#waiting > 1) await this.#sleep(Math.random() * Math.min(25 * this.#waiting, 1000), error);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Goes on as long as somebody waits for it. */
  async #probe(error: unknown): Promise<void> {
    const began = performance.now();
    let said = false;
    let last = error;
    for (let attempt = 1; !this.#stopping.signal.aborted && this.#waiting > 0; attempt++) {
      await delay(reconnectMs(last, attempt, 2000), undefined, { signal: this.#stopping.signal }).catch(() => {});
      if (attempt > 1 && !said) {
        said = true;
        this.#onOutage?.({ lost: error });
      }
      try {
        // A standby answers too, and takes no write.
        const { rows } = await this.#send<{ off: string }>("select current_setting('transaction_read_only') as off");
        if (rows[0]?.off === "on") {
          // It may have been the primary once: only a new connection finds the one that is it now.
          this.#renew();
          continue;
        }
        if (said) this.#onOutage?.({ awayMs: performance.now() - began });
        return;
      } catch (again) {
        last = again;
      }
    }
  }
}

/** How long to wait after a connection was lost or refused; longer where there is no room for another. */
export function reconnectMs(error: unknown, attempt: number, mostMs: number): number {
  return backoffMs(attempt, isFull(error) ? 500 : 20, mostMs);
}

/** As pool.query(), which gives up the connection with every refusal: a verb that says no would cost a new one each time. */
async function oneStatement<Row extends pg.QueryResultRow>(pool: pg.Pool, text: string, values: unknown[]) {
  const client = await taken(pool, ignore);
  let broken: Error | undefined;
  try {
    return await client.query<Row>(text, values);
  } catch (error) {
    if (isConnectionLoss(error)) broken = error as Error;
    throw error;
  } finally {
    client.off("error", ignore);
    client.release(broken);
  }
}

export function ignore(): void {}

async function within<T>(ms: number, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(SILENT)), ms);
  });
  answer.catch(() => {});
  return Promise.race([answer, over]).finally(() => clearTimeout(timer));
}

export function unavailable(cause: unknown, patienceMs: number): DatabaseUnavailable {
  return new DatabaseUnavailable(
    `Postgres could not be reached ${Number.isFinite(patienceMs) ? `for ${patienceMs} ms` : "in time"}: ${(cause as Error).message || "connection refused"}`,
    {
      cause,
      remedy: "Check that it is running and the URL is right; whether the last try was carried out is not known",
    },
  );
}

function closed(cause?: unknown): StillwakeError {
  return new StillwakeError("CLOSED", "This Stillwake is closed", {
    cause,
    remedy: cause
      ? "Close it after its calls have ended; whether the last try was carried out is not known"
      : "Close it after its last call, or create another",
  });
}

/** The error does not repeat the URL: there is a password in it. */
export function checkUrl(url: string): string {
  if (URL.canParse(url) && ["postgres:", "postgresql:", "socket:"].includes(new URL(url).protocol)) return url;
  throw new InvalidInput("url is not the URL of a Postgres", {
    field: "url",
    remedy: "Write it as postgres://user:password@host:5432/database, special characters in the password as %40",
  });
}

function openPool(options: DatabaseOptions): pg.Pool {
  if (!options.url) {
    throw new InvalidInput("Neither url nor pool is given", {
      field: "url",
      remedy: "Pass the URL of your Postgres, as in createStillwake({ url: process.env.DATABASE_URL })",
    });
  }
  return new pg.Pool({
    connectionString: checkUrl(options.url),
    application_name: "stillwake",
    max: options.connections ?? 10,
    query_timeout: durationMs(options.statementTimeout ?? "10s", "statementTimeout"),
    connectionTimeoutMillis: 5000,
    // Idle means silent: with nothing to do the pool holds no connection and the database may sleep.
    // Nothing at all would mean for ever to the driver.
    idleTimeoutMillis: Math.max(1, durationMs(options.idleTimeout ?? "5s", "idleTimeout")),
    allowExitOnIdle: true,
    keepAlive: true,
  });
}
