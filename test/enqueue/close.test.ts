// close(): calls in flight, a pool that was passed in, and the exit of the process.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import { createStillwake, pipeline, type StillwakeError } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage } from "../support/processes/build.ts";

const database = await freshDatabase();
const sql = await connect(database.url);
const report = pipeline("report");

beforeAll(() => sql.query("select stillwake.register_pipeline('report')"));

describe("close", () => {
  it("rejects calls that wait for Postgres with CLOSED, at once", async () => {
    await using proxy = await faultProxy(database.url);
    const stillwake = createStillwake({ url: proxy.url, retryTimeout: "1m" });
    await stillwake.enqueue(report, 1);
    proxy.mode = "refuse";
    proxy.reset();
    const calls = [
      stillwake.enqueue(report, 2),
      stillwake.list(),
      stillwake.wait("00000000-0000-7000-8000-000000000000"),
    ];
    const endings = Promise.all(calls.map(caught));
    await waitFor(() => proxy.connections() === 0);
    const startedAt = performance.now();
    await stillwake.close();
    for (const ending of await endings)
      expect(ending).toMatchObject({ code: "CLOSED", retryable: false, remedy: expect.any(String) });
    expect(performance.now() - startedAt).toBeLessThan(1000);
  });

  it("lets statements in flight finish", async () => {
    const stillwake = createStillwake({ url: database.url });
    await stillwake.register(report);
    const blocker = await connect(database.url);
    await blocker.query("begin; lock table stillwake.live_jobs in exclusive mode");
    const enqueued = stillwake.enqueue(report, "in flight");
    await waitFor(async () => {
      const waiting = "select from pg_stat_activity where application_name = 'stillwake' and wait_event_type = 'Lock'";
      return (await sql.query(waiting)).rowCount;
    });
    const closed = stillwake.close();
    await blocker.query("commit");
    await blocker.end();
    await closed;
    const { rowCount } = await sql.query("select from stillwake.jobs where id = $1", [(await enqueued).id]);
    expect(rowCount).toBe(1);
  });

  it("may be called twice, also by leaving a block; calls after it are rejected", async () => {
    const stillwake = createStillwake({ url: database.url });
    {
      await using scoped = stillwake;
      await scoped.enqueue(report, 1);
      await Promise.all([scoped.close(), scoped.close()]);
    }
    for (const call of [
      () => stillwake.enqueue(report, 1),
      () => stillwake.list(),
      () => stillwake.register(pipeline("new")),
    ]) {
      expect(await caught(call())).toMatchObject({ code: "CLOSED" });
    }
  });

  it("works for a client that was never used", async () => {
    await createStillwake({ url: "postgres://nobody@127.0.0.1:1/nothing" }).close();
  });
});

describe("a pool that was passed in", () => {
  it("is used, stays open and keeps no listener of the client", async () => {
    const pool = new pg.Pool({ connectionString: database.url });
    const listeners = pool.listenerCount("error");
    const stillwake = createStillwake({ pool });
    const { id } = await stillwake.enqueue(report, "through yours");
    expect((await stillwake.get(id)).input).toBe("through yours");
    await stillwake.close();
    expect(pool.listenerCount("error")).toBe(listeners);
    expect(await caught(stillwake.get(id))).toMatchObject({ code: "CLOSED" });
    expect((await pool.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
    await pool.end();
  });

  it("or a URL is required", () => {
    expect(() => createStillwake({})).toThrow(/Neither url nor pool is set/);
  });
});

describe("an idle client", () => {
  it("lets the process exit", async () => {
    buildPackage();
    const program = `
      import { createStillwake } from ${JSON.stringify(path.resolve(import.meta.dirname, "../../dist/index.js"))};
      const stillwake = createStillwake({ url: process.argv[1] });
      await Promise.all([1, 2, 3].map((n) => stillwake.enqueue("report", n)));
      await stillwake.list();
      console.log("done", Date.now());`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program, database.url], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [output] = await once(child.stdout, "data");
    const [code] = await once(child, "exit");
    expect(code).toBe(0);
    expect(Date.now() - Number(String(output).split(" ")[1])).toBeLessThan(2000);
  });

  it("keeps no connection", async () => {
    await using stillwake = createStillwake({ url: database.url });
    await Promise.all([stillwake.list(), stillwake.list(), stillwake.list()]);
    const open = async () =>
      (
        await sql.query(
          "select from pg_stat_activity where application_name = 'stillwake' and datname = current_database()",
        )
      ).rowCount;
    expect(await open()).toBeGreaterThan(0);
    await waitFor(async () => (await open()) === 0, {
      timeout: 8000,
      interval: 100,
      what: "every connection to be closed",
    });
    await stillwake.list();
  });
});

async function caught(promise: Promise<unknown>): Promise<StillwakeError> {
  return promise.then(
    () => {
      throw new Error("it was accepted");
    },
    (error) => error,
  );
}
