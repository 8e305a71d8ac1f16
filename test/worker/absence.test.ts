// A dead worker is noticed although no other worker has a free slot: by busy workers, by the server and by the orchestrator.
import { describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { createOrchestrator } from "../../src/orchestrator/index.ts";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect, connectedDatabase } from "../support/database/connections.ts";
import { deferred } from "../support/deferred.ts";
import { recordTimes } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { MemoryCloud } from "../support/providers/in-memory-provider.ts";

const { database, stillwake, client } = await connectedDatabase();
/** Far less than the lease of 15 s. */
const MAX_MS = 3000;
let presence = 4000;

/** Another worker claims a job of the pool; the returned function ends its session, as its death does. */
async function workerThatDies(pool: string): Promise<{ id: string; die(): Promise<number> }> {
  const name = `${pool}-job`;
  await stillwake.register(pipeline(name, { pool }));
  const { id } = await stillwake.enqueue(name, {});
  const session = await connect(database.url);
  await session.query("select stillwake.hold_presence($1)", [++presence]);
  const claimed = "select from stillwake.claim($1, $2, array[$3], 1, '15 seconds', p_presence => $4)";
  expect((await session.query(claimed, [`${pool}-dead`, pool, name, presence])).rowCount).toBe(1);
  return {
    id,
    async die() {
      const at = performance.now();
      await session.end();
      const queued = async () => (await stillwake.get(id)).state === "queued";
      await waitFor(queued, { interval: 20, timeout: 20_000, what: "the job to be queued again" });
      return performance.now() - at;
    },
  };
}

describe("a dead worker", () => {
  it("is noticed by a worker without a free slot, and its job is queued again in about a second", async () => {
    const { promise: until, resolve: finish } = deferred();
    const busy = implement(pipeline("busy", { pool: "full" }), () => until);
    const worker = await startRecordedWorker({
      url: database.url,
      pool: "full",
      pipelines: [busy],
      slots: 1,
      lease: "3s",
    });
    await worker.waitForEvent("hints.ready");
    await stillwake.enqueueMany("busy", [{}, {}, {}]);
    await worker.waitForEvent("attempt.started");
    const times: number[] = [];
    for (let number = 0; number < 3; number++) {
      const { id, die } = await workerThatDies("full");
      // A worker that is full looks for others with its heartbeats.
      await worker.waitForEvent("heartbeat", { after: performance.now() });
      times.push(await die());
      await stillwake.cancel(id);
    }
    expect(worker.worker.health().active).toBe(1);
    expect(recordTimes("death of a worker to its job queued again, all others full", times).most).toBeLessThan(MAX_MS);
    await worker.waitForEvent("recovered", { times: 3 });
    expect(worker.eventsOf("recovered").map(({ reason }) => reason)).toEqual(["absent", "absent", "absent"]);
    finish();
    await worker.worker.stop();
  });

  it("is noticed by the server", async () => {
    const server = createServer({ url: database.url, auth: "none" });
    onTestFinished(() => server.close());
    const { id, die } = await workerThatDies("served");
    const enqueued = new Request("http://127.0.0.1/v1/jobs", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ pipeline: "served-job", input: {} }),
    });
    expect((await server.fetch(enqueued)).status).toBeLessThan(300);
    expect(await die()).toBeLessThan(MAX_MS);
    expect((await stillwake.get(id)).crashes).toBe(1);
  });

  it("is noticed by the orchestrator", async () => {
    const { id, die } = await workerThatDies("grown");
    const cloud = new MemoryCloud({ url: database.url, pipelines: [], onStart: async () => {} });
    const orchestrator = createOrchestrator({
      url: database.url,
      pools: { grown: { provider: cloud.provider, max: 1 } },
    });
    onTestFinished(() => orchestrator.stop());
    await orchestrator.start();
    expect(await die()).toBeLessThan(MAX_MS);
    expect((await stillwake.get(id)).crashes).toBe(1);
  });

  it("that never existed is not looked for: without leases the watch ends", async () => {
    await client.query("select stillwake.cancel(id) from stillwake.live_jobs");
    const server = createServer({ url: database.url, auth: "none" });
    onTestFinished(() => server.close());
    await server.fetch(new Request("http://127.0.0.1/v1/poke", { method: "POST" }));
    const last = `select max(query_start) as at from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`;
    const at = async () => (await client.query(last)).rows[0].at?.getTime() ?? null;
    let before: unknown;
    await waitFor(
      async () => {
        const now = await at();
        const quiet = now === before;
        before = now;
        return quiet;
      },
      { interval: 1500, timeout: 15_000, what: "no further statements" },
    );
  });
});
