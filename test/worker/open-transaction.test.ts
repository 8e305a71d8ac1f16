// A transaction of the application that changes a running job and stays open for longer than a lease. Other jobs of the same
// worker continue, and the job itself stays with its worker.
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { waitDatabaseTime } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

const { database, stillwake, client } = await connectedDatabase();

/** The statement waits for locks for a second, and is then sent in parts. */
const MAX_STALL_MS = 2500;

describe("while a transaction of the application stays open", () => {
  it.each([
    { verb: "signal", text: "select stillwake.signal($1, 'note')" },
    { verb: "pause", text: "select stillwake.pause($1)" },
    { verb: "priority, by a lock of the row alone", text: "select from stillwake.live_jobs where id = $1 for update" },
  ])("that called $verb, its jobs keep their worker, and other jobs save, log and complete", async ({ verb, text }) => {
    const name = verb.split(",")[0]!;
    const over = deferred();
    const steps = new Map<string, number[]>();
    const contract = pipeline(name, { pool: name });
    const implementation = implement(contract, async (job, input) => {
      const times: number[] = [];
      steps.set(job.id, times);
      let done = false;
      void over.promise.then(() => {
        done = true;
      });
      for (let number = 0; !done && input !== "short"; number++) {
        await job.step(`step ${number}`, () => new Promise((resolve) => setTimeout(resolve, 50)));
        job.log.info(`line ${number}`);
        times.push(performance.now());
      }
    });
    const options = { url: database.url, pool: name, pipelines: [implementation], slots: 6, lease: "2s" } as const;
    const worker = await startRecordedWorker({ name: `${name}-holder`, ...options });
    await worker.waitForEvent("hints.ready");
    // One after the other: each under a separate lease.
    const changed: { id: string }[] = [];
    for (let count = 0; count < 3; count++) {
      changed.push(await stillwake.enqueue(name, {}));
      await waitFor(() => steps.get(changed.at(-1)!.id)?.length);
    }
    const other = await stillwake.enqueue(name, {});
    await waitFor(() => steps.get(other.id)?.length);
    const rival = await startRecordedWorker({ name: `${name}-rival`, ...options, slots: 1 });
    await rival.waitForEvent("hints.ready");

    const application = await connect(database.url);
    await application.query("begin");
    for (const { id } of changed) await application.query(text, [id]);
    const from = performance.now();
    const short = await stillwake.enqueue(name, "short");
    expect(await stillwake.wait(short.id, { timeout: "10s" })).toMatchObject({ state: "completed", attempt: 1 });
    // Twice the length of a lease, and more.
    await waitDatabaseTime(client, "5s");
    const to = performance.now();
    await application.query("commit");
    // The rival claims, and would recover what looks expired.
    await stillwake.enqueue(name, "short");
    await rival.waitForEvent("claim.empty", { after: to });
    const times = [from, ...steps.get(other.id)!.filter((at) => at > from && at < to), to];
    const stall = Math.max(...times.slice(1).map((at, index) => at - times[index]!));
    recordFigure(`longest stall of another job while a transaction with ${name} is open`, stall, "ms", "5 s");
    expect(stall).toBeLessThan(MAX_STALL_MS);
    over.resolve();
    for (const { id } of [...changed, other]) {
      expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({
        state: "completed",
        attempt: 1,
        crashes: 0,
        worker: `${name}-holder`,
      });
    }
    expect([...worker.eventsOf("recovered"), ...rival.eventsOf("recovered")]).toEqual([]);
  });

  it("a job that ends meanwhile is settled after it, and delays no settlement of other jobs", async () => {
    const ends = deferred();
    const contract = pipeline("ends", { pool: "ends" });
    const implementation = implement(contract, async (_, input) => {
      if (input !== "short") await ends.promise;
    });
    const options = { url: database.url, pool: "ends", pipelines: [implementation], slots: 2, lease: "2s" } as const;
    const worker = await startRecordedWorker({ name: "ends", ...options });
    const changed = await stillwake.enqueue("ends", {});
    await worker.waitForEvent("attempt.started");
    const beside = await stillwake.enqueue("ends", {});
    await worker.waitForEvent("attempt.started", { times: 2 });
    const application = await connect(database.url);
    await application.query("begin");
    await application.query("select stillwake.signal($1, 'note')", [changed.id]);
    // Both end at once, and are settled in one statement.
    ends.resolve();
    const endedAt = performance.now();
    expect(await stillwake.wait(beside.id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1 });
    expect(performance.now() - endedAt).toBeLessThan(MAX_STALL_MS);
    // Longer than a lease in all: settlements that share a statement with that of the locked job are sent without it.
    const took: number[] = [];
    for (const from = performance.now(); performance.now() - from < 4000; ) {
      const enqueuedAt = performance.now();
      const { id } = await stillwake.enqueue("ends", "short");
      expect(await stillwake.wait(id, { timeout: "10s" })).toMatchObject({ state: "completed", attempt: 1 });
      took.push(performance.now() - enqueuedAt);
    }
    expect(Math.max(...took)).toBeLessThan(MAX_STALL_MS);
    expect((await stillwake.get(changed.id)).state).toBe("running");
    await application.query("commit");
    expect(await stillwake.wait(changed.id, { timeout: "10s" })).toMatchObject({
      state: "completed",
      attempt: 1,
      crashes: 0,
    });
    expect(took.length).toBeGreaterThan(1);
  });
});
