// A step that has a checkpoint is not run again, so it does not write its log lines again either: they must be stored
// with the checkpoint or before it, whatever is killed and whenever.
import path from "node:path";
import { describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { installFaults } from "../support/database/sql-faults.ts";
import { ROOT } from "../support/processes/build.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
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
