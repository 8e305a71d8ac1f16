// A server for browser tests with its own database, and a manual worker that runs jobs through the same SQL functions
// as real workers, so that a test can stop a job at any moment.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import type { Stillwake } from "../../../src/index.ts";
import { createServer, type ServerOptions, type StillwakeServer } from "../../../src/server/index.ts";
import { type TestDatabase, travel } from "../../../src/testing/index.ts";
import { openStore } from "../../../src/worker/index.ts";

const SECRET = "a secret of more than thirty-two characters";

export interface Dashboard {
  database: TestDatabase;
  /** A connection as the owner. */
  sql: pg.Client;
  /** The client of the current server. */
  readonly sw: Stillwake;
  origin: string;
  /** An admin token. */
  admin: string;
  /** The URL of the artifact store, for workers. */
  store: string;
  /** Registers a clean-up, run in reverse order. */
  onClose(done: () => unknown): void;
  /** Stops the server, runs `whileDown`, and starts another one on the same port. */
  restart(whileDown?: () => Promise<unknown>): Promise<void>;
  close(): Promise<void>;
}

export async function startDashboard(database: TestDatabase, options: Partial<ServerOptions> = {}): Promise<Dashboard> {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-dashboard-"));
  const store = `file:${dir}`;
  const sql = new pg.Client({ connectionString: database.url, application_name: "test" });
  await sql.connect();
  const deferred: (() => unknown)[] = [];
  const start = (): StillwakeServer =>
    createServer({
      url: database.url,
      secret: SECRET,
      store: openStore(store),
      rate: { perSecond: 1e6, burst: 1e6 },
      ...options,
    });
  let server = start();
  const { url: origin, port } = await server.listen({ port: 0 });
  const { token: admin } = await server.stillwake.tokens.create({ name: "you", role: "admin" });
  return {
    database,
    sql,
    get sw() {
      return server.stillwake;
    },
    origin,
    admin,
    store,
    onClose: (done) => void deferred.unshift(done),
    async restart(whileDown) {
      await server.close();
      await whileDown?.();
      server = start();
      await server.listen({ port });
    },
    async close() {
      for (const done of deferred) await done();
      await server.close();
      await sql.end();
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Moves the database's clock forward. */
export async function passTime({ sql }: Dashboard, ms: number): Promise<void> {
  await travel(sql, `${Math.round(ms)}ms`);
}

/** Moves the database's clock to the present, from a scenario that started in the past. */
export async function returnToPresent({ sql }: Dashboard): Promise<void> {
  const { rows } = await sql.query("select -extract(epoch from shift) * 1000 as left from stillwake.test_clock");
  await travel(sql, `${Math.max(0, Math.round(rows[0].left))}ms`);
}

export interface LogLine {
  message: string;
  level?: "info" | "success" | "warning" | "error";
  step?: string;
  data?: unknown;
  ago_ms?: number;
}

interface Claimed {
  job: string;
  epoch: string;
  lease: string;
}

/** Runs one job at the pace of the test. */
export class ManualWorker {
  readonly claimed: Claimed;
  readonly #dashboard: Dashboard;

  private constructor(dashboard: Dashboard, claimed: Claimed) {
    this.#dashboard = dashboard;
    this.claimed = claimed;
  }

  /** Claims the next job of a pipeline with a lease that outlasts the test. */
  static async claim(dashboard: Dashboard, pipeline: string, worker: string, pool = "default"): Promise<ManualWorker> {
    const { rows } = await dashboard.sql.query(
      "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, $2, array[$3], 1, '20 hours')",
      [worker, pool, pipeline],
    );
    if (rows.length === 0) throw new Error(`No job of ${pipeline} in pool ${pool} can be claimed`);
    return new ManualWorker(dashboard, rows[0]);
  }

  get job(): string {
    return this.claimed.job;
  }

  async log(...lines: (LogLine | string)[]): Promise<void> {
    const all = lines.map((line) => (typeof line === "string" ? { message: line } : line));
    await this.#call("append_logs", [{ ...this.claimed, lines: all }]);
  }

  /** A step of the given duration, with log lines at its start and end. */
  async runStep(name: string, ms: number, start: string, end: string, output: unknown = null): Promise<void> {
    await this.log({ step: name, message: start });
    await passTime(this.#dashboard, ms);
    await this.log({ step: name, message: end, level: "success" });
    await this.#call("save_checkpoints", [{ ...this.claimed, step: name, output, took_ms: ms }]);
  }

  async reportProgress(progress: { done: number; total: number; sentence?: string }): Promise<void> {
    const { job, epoch, lease } = this.claimed;
    await this.#dashboard.sql.query("select stillwake.progress($1, $2, $3, $4)", [job, epoch, lease, progress]);
  }

  /** `outcome`: completed, failed, lost, slept, paused, released or cancelled. */
  async settle(outcome: string, details: object = {}): Promise<void> {
    await this.#call("settle", [{ ...this.claimed, outcome, ...details }]);
  }

  async #call(verb: string, elements: object[]): Promise<void> {
    await this.#dashboard.sql.query(`select stillwake.${verb}($1)`, [JSON.stringify(elements)]);
  }
}
