// Outages that are longer than a lease, under workers that live: the database is promoted elsewhere, the network is cut, the
// server is started again, or its synchronous standby is away so that no commit ends. No job may be taken from its worker,
// and no step whose code has ended may run again.
import { describe, expect, it } from "vitest";
import { type Duration, pipeline } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { startReplicatedServer } from "../support/database/replicated-server.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

interface Outage {
  what: "promotion" | "network cut" | "restart" | "synchronous standby away";
  synchronous: boolean;
  seconds: number;
  lease: Duration;
}

const lease: Duration = FULL ? "15s" : "3s";
const outages: Outage[] = FULL
  ? [
      ...[true, false].flatMap((synchronous) =>
        [5, 20, 60].map((seconds): Outage => ({ what: "promotion", synchronous, seconds, lease })),
      ),
      ...[5, 20, 60].map((seconds): Outage => ({ what: "network cut", synchronous: false, seconds, lease })),
      { what: "restart", synchronous: false, seconds: 20, lease },
      { what: "synchronous standby away", synchronous: true, seconds: 60, lease },
    ]
  : [
      { what: "promotion", synchronous: true, seconds: 5, lease },
      { what: "network cut", synchronous: false, seconds: 5, lease },
    ];
const WORKERS = 4;
const JOBS = 16;

describe("an outage under living workers", () => {
  it.each(outages.map((outage) => [nameOf(outage), outage] as const))(
    "%s: no crash is charged and no finished step runs again",
    {
      timeout: 180_000,
    },
    async (_, outage) => {
      const { crashes, repeated } = await survive(outage);
      const { what, synchronous, seconds } = outage;
      const note = `${seconds} s, ${synchronous ? "synchronous" : "asynchronous"}, ${JOBS} jobs`;
      recordFigure(`failover: ${what}: crashes charged`, crashes, "", note);
      recordFigure(`failover: ${what}: finished steps repeated`, repeated, "", note);
      expect({ crashes, repeated }).toEqual({ crashes: 0, repeated: 0 });
    },
  );
});

function nameOf({ what, synchronous, seconds }: Outage): string {
  const replication = what === "promotion" ? `, ${synchronous ? "synchronous" : "asynchronous"}` : "";
  return `${what}, ${seconds} s${replication}`;
}

async function survive({ what, synchronous, seconds, lease }: Outage): Promise<{ crashes: number; repeated: number }> {
  const server = await startReplicatedServer({ synchronous });
  await using proxy = await faultProxy(server.primary.url);
  const stillwake = openStillwake(proxy.url, { retryTimeout: "forever" });
  const [during, end] = [deferred(), deferred()];
  const runs = new Map<string, number>();
  const run = (job: string, step: string) => runs.set(`${job} ${step}`, (runs.get(`${job} ${step}`) ?? 0) + 1);
  const work = pipeline("work", { retry: { attempts: 9, crashes: 9 } });
  const implementation = implement(work, async (job) => {
    await job.step("before", () => void run(job.id, "before"));
    await job.step("during", async () => {
      await during.promise;
      run(job.id, "during");
    });
    await end.promise;
    await job.step("after", () => void run(job.id, "after"));
  });
  await stillwake.register(work);
  const start = async (url: string, name: string) => {
    const pipelines = [implementation];
    const worker = await startRecordedWorker({ url, name, pipelines, slots: (JOBS / WORKERS) * 1.5, lease });
    await worker.waitForEvent("hints.ready");
    return worker;
  };
  const workers = await Promise.all(Array.from({ length: WORKERS }, (_, number) => start(proxy.url, `w${number}`)));
  const jobs = await stillwake.enqueueMany(
    work,
    Array.from({ length: JOBS }, () => ({})),
  );
  await waitFor(() => runs.size === JOBS, { timeout: 30_000, what: "all jobs to run" });
  // It has no job, is cut off like the others, and is back first.
  await using early = await faultProxy(server.primary.url);
  const idle = await start(early.url, "idle");
  await Promise.all(
    workers.map(async ({ worker, waitForEvent }) => {
      if (worker.health().active > 0) await waitForEvent("heartbeat", { after: performance.now() });
    }),
  );

  if (what === "synchronous standby away") await server.standby.kill();
  else {
    for (const each of [proxy, early]) {
      each.mode = "refuse";
      each.reset();
    }
    if (what !== "network cut") await server.primary.kill();
  }
  // The duration of the outage is tested. The steps end in its first half, and cannot be stored.
  await sleep(seconds * 500);
  during.resolve();
  await sleep(seconds * 500);
  if (what === "synchronous standby away") await server.standby.start();
  if (what === "restart") await server.primary.start();
  if (what === "promotion") {
    await server.promote();
    proxy.target = server.standby.url;
    early.target = server.standby.url;
  }
  const backAt = performance.now();
  early.mode = "pass";
  await idle.waitForEvent("claim.empty", { after: backAt, timeout: 30_000 });
  proxy.mode = "pass";

  const client = await connect(proxy.target);
  const kept = "select count(*)::int as n from stillwake.checkpoints where step = 'during'";
  await waitFor(async () => (await client.query(kept)).rows[0].n === JOBS, { timeout: 60_000, what: "all steps kept" });
  // Every lease has been extended or lost since.
  await sleep(3000);
  end.resolve();
  await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "60s" })));
  const { rows } = await client.query("select sum(crashes)::int as crashes from stillwake.jobs");
  const repeated = [...runs.values()].reduce((sum, count) => sum + count - 1, 0);
  await Promise.all([...workers, idle].map(({ worker }) => worker.stop()));
  return { crashes: rows[0].crashes, repeated };
}

/** Waits in real time, because the duration of the outage is tested. */
function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
