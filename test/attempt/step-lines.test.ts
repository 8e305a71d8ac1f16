// A step that has a checkpoint is not run again, so it does not write its log lines again either: they must be stored
// with the checkpoint or before it, whatever is killed and whenever.
import path from "node:path";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement, type JobContext, type StepHandle, type WorkerOptions } from "../../src/worker/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { installFaults } from "../support/database/sql-faults.ts";
import { ROOT } from "../support/processes/build.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { startWorker } from "../support/processes/workers.ts";

const SENTENCES = path.join(ROOT, "test/fixtures/pipelines/sentences.mjs");

const { database, stillwake, client } = await processFixture();
const faults = await installFaults(client, ["append_logs"], ["53100"]);

const start = (env: Record<string, string> = {}) =>
  startWorker({ url: database.url, pipelines: SENTENCES, args: ["--slots", "1"], env });

const enqueue = async (kind: string) => (await stillwake.enqueue("sentences", { kind, url: database.url })).id;

/** The lines of the step by the attempt that has saved its checkpoint. */
async function linesOfKeptStep(id: string): Promise<string[]> {
  const { rows } = await client.query(
    `select l.message from stillwake.logs l join stillwake.checkpoints c using (job_id, step, epoch)
    where job_id = $1 order by l.seq`,
    [id],
  );
  return rows.map(({ message }) => message);
}

const ofStep = ["Started", "Working", "Finished with 1"];
const ofList = ["Started", "Working", 'Finished with {"done":1}'];

describe("the lines of a kept step are there", () => {
  it.each([
    ["a step", "step"],
    ["a step in a transaction", "tx"],
  ])("when the runner is killed as soon as the checkpoint of %s is stored", async (_, kind) => {
    await start({ STILLWAKE_CRASH: "after:work" });
    const id = await enqueue(kind);
    const job = await stillwake.wait(id, { timeout: "30s" });
    expect(job.crashes).toBe(1);
    expect(await linesOfKeptStep(id)).toEqual(ofStep);
  });

  it.each([
    ["a step", "step", ofStep],
    ["a list", "list", ofList],
  ])("when the lines of %s wait in the buffer and the worker is killed with kill -9", async (_, kind, lines) => {
    const worker = await start();
    await faults.once("append_logs", "53100", "before", 1_000_000);
    const id = await enqueue(kind);
    const retried = async () => (await faults.raised())["53100"]! >= 5;
    await waitFor(retried, { timeout: 20_000, what: "the lines to be refused a few times" });
    worker.signal("SIGKILL");
    await worker.exited;
    await faults.none();
    await start();
    const job = await stillwake.wait(id, { timeout: "60s" });
    expect(job.crashes).toBe(1);
    expect(await linesOfKeptStep(id)).toEqual(lines);
  });
});

describe("in the worker's own process", () => {
  const texts = { start: "Started", end: (result: number) => `Finished with ${result}` };
  const run = async (name: string, options: Partial<WorkerOptions>, code: (job: JobContext) => Promise<unknown>) => {
    const contract = pipeline(name, { pool: name, retry: { attempts: 5, crashes: 5, initial: "1ms", max: "1ms" } });
    const { id } = await stillwake.enqueue(contract, null);
    await startRecordedWorker({ url: database.url, pool: name, pipelines: [implement(contract, code)], ...options });
    return id;
  };
  const oneStep = (job: JobContext) =>
    job.step("work", texts, (step: StepHandle) => {
      step.log.info("Working");
      return 1;
    });

  it("no checkpoint is stored while the lines of its step cannot be", async () => {
    await faults.once("append_logs", "53100", "before", 1_000_000);
    const id = await run("unstored", {}, oneStep);
    const retried = async () => (await faults.raised())["53100"]! >= 5;
    await waitFor(retried, { timeout: 20_000, what: "the lines to be refused a few times" });
    const { rows } = await client.query("select step from stillwake.checkpoints where job_id = $1", [id]);
    expect(rows).toEqual([]);
    await faults.none();
    expect((await stillwake.wait(id, { timeout: "20s" })).attempt).toBe(1);
    expect(await linesOfKeptStep(id)).toEqual(ofStep);
  });

  const crashOnce = () => {
    let crashed = false;
    return (point: "before" | "after") => {
      const crashes = point === "after" && !crashed;
      crashed ||= crashes;
      return crashes;
    };
  };

  it("the last line of a step is there when the attempt ends right after its checkpoint", async () => {
    const id = await run("ended", { crash: crashOnce() }, oneStep);
    expect((await stillwake.wait(id, { timeout: "20s" })).crashes).toBe(1);
    expect(await linesOfKeptStep(id)).toEqual(ofStep);
  });

  it("a transaction commits its checkpoint after the lines of its step are stored", async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    cleanUp(() => pool.end());
    const stored: string[] = [];
    const begin = async (use: (tx: pg.PoolClient) => Promise<unknown>) => {
      const tx = await pool.connect();
      await tx.query("begin");
      await use(tx);
      // Before the commit, by another connection.
      const { rows } = await client.query(
        "select message from stillwake.logs where step = 'in a transaction' order by seq",
      );
      stored.push(...rows.map(({ message }) => message));
      await tx.query("commit");
      tx.release();
    };
    const id = await run("committed", {}, (job) =>
      job.tx("in a transaction", texts, begin, (_: pg.PoolClient, step: StepHandle) => {
        step.log.info("Working");
        return 1;
      }),
    );
    await stillwake.wait(id, { timeout: "20s" });
    expect(stored).toEqual(ofStep);
  });
});

it("lines that Postgres rejects are dropped, and the checkpoint is stored without them", async () => {
  const worker = await start();
  await client.query(`
    create function refuse_lines() returns trigger language plpgsql as $$
    begin
      raise exception 'no lines' using errcode = '23514';
    end $$;
    create trigger refuse_lines before insert on stillwake.feed for each row when (new.message = 'Working')
    execute function refuse_lines()`);
  const id = await enqueue("step");
  const job = await stillwake.wait(id, { timeout: "30s" });
  await client.query("drop trigger refuse_lines on stillwake.feed");
  expect(job.attempt).toBe(1);
  expect(await linesOfKeptStep(id)).toEqual([]);
  await worker.waitForLine("logs.dropped");
});
