// What a scene is played on: a server on a port over a database of its own, and hands that do jobs through the verbs that workers use, so that a moment
// of a job can be held still and looked at. Whatever stands in the tables the product has written.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import type { Stillwake } from "../../../src/index.ts";
import { createServer, type ServerOptions, type StillwakeServer } from "../../../src/server/index.ts";
import { type TestDatabase, travel } from "../../../src/testing/index.ts";
import { openStore } from "../../../src/worker/index.ts";

const SECRET = "a secret of more than thirty-two characters";

export interface Stage {
  database: TestDatabase;
  /** A connection as the owner. */
  sql: pg.Client;
  /** The client of the server that is open. */
  readonly sw: Stillwake;
  origin: string;
  /** A token of an admin. */
  admin: string;
  /** Where artifacts are, as workers are told it. */
  store: string;
  /** To be done when the stage is cleared, latest first. */
  defer(done: () => unknown): void;
  /** The server ends, something may happen, and another begins at the same address. */
  restart(meanwhile?: () => Promise<unknown>): Promise<void>;
  clear(): Promise<void>;
}

export async function openStage(database: TestDatabase, options: Partial<ServerOptions> = {}): Promise<Stage> {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-stage-"));
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
    defer: (done) => void deferred.unshift(done),
    async restart(meanwhile) {
      await server.close();
      await meanwhile?.();
      server = start();
      await server.listen({ port });
    },
    async clear() {
      for (const done of deferred) await done();
      await server.close();
      await sql.end();
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Lets the database's time pass. */
export async function pass({ sql }: Stage, ms: number): Promise<void> {
  await travel(sql, `${Math.round(ms)}ms`);
}

/** Puts the database's time back to the present, from a scene that was begun in the past. */
export async function toPresent({ sql }: Stage): Promise<void> {
  const { rows } = await sql.query("select -extract(epoch from shift) * 1000 as left from stillwake.test_clock");
  await travel(sql, `${Math.max(0, Math.round(rows[0].left))}ms`);
}

export interface HandLine {
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

/** Does one job, as slowly or as quickly as the scene wants. */
export class Hand {
  readonly claimed: Claimed;
  readonly #stage: Stage;

  private constructor(stage: Stage, claimed: Claimed) {
    this.#stage = stage;
    this.claimed = claimed;
  }

  /** Takes the next job of a pipeline, under a lease that outlasts the scene. */
  static async take(stage: Stage, pipeline: string, worker: string, pool = "default"): Promise<Hand> {
    const { rows } = await stage.sql.query(
      "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, $2, array[$3], 1, '20 hours')",
      [worker, pool, pipeline],
    );
    if (rows.length === 0) throw new Error(`No job of ${pipeline} in pool ${pool} can be taken`);
    return new Hand(stage, rows[0]);
  }

  get job(): string {
    return this.claimed.job;
  }

  async say(...lines: (HandLine | string)[]): Promise<void> {
    const all = lines.map((line) => (typeof line === "string" ? { message: line } : line));
    await this.#call("append_logs", [{ ...this.claimed, lines: all }]);
  }

  /** A step that has taken so long, with what it says at its beginning and its end. */
  async step(name: string, ms: number, start: string, end: string, output: unknown = null): Promise<void> {
    await this.say({ step: name, message: start });
    await pass(this.#stage, ms);
    await this.say({ step: name, message: end, level: "success" });
    await this.#call("save_checkpoints", [{ ...this.claimed, step: name, output, took_ms: ms }]);
  }

  async progress(progress: { done: number; total: number; sentence?: string }): Promise<void> {
    const { job, epoch, lease } = this.claimed;
    await this.#stage.sql.query("select stillwake.progress($1, $2, $3, $4)", [job, epoch, lease, progress]);
  }

  /** However it ends: completed, failed, lost, slept, paused, released, cancelled, with what belongs to it. */
  async settle(outcome: string, details: object = {}): Promise<void> {
    await this.#call("settle", [{ ...this.claimed, outcome, ...details }]);
  }

  async #call(verb: string, elements: object[]): Promise<void> {
    await this.#stage.sql.query(`select stillwake.${verb}($1)`, [JSON.stringify(elements)]);
  }
}
