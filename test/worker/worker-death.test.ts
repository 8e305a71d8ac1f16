// A worker is killed with SIGKILL and cannot release its jobs. Without a direct connection they wait for the lease to expire; with one, its
// session ends and other workers notice within a second. A session that only broke is not a death.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake } from "../../src/index.ts";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import {
  endedAttempts,
  FULL,
  isAlive,
  recordTimes,
  repeatedSteps,
  round,
  waitDatabaseTime,
  waitForEnd,
  waitForStartupGrace,
} from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { gated, nothing } from "../support/processes/script-steps.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();
const besides = await freshDatabase();
/** Without a direct connection there is no presence: only the lease counts. */
const leaseAlone = path.join(os.tmpdir(), `stillwake-lease-alone-${process.pid}.config.mjs`);

beforeAll(async () => {
  fs.writeFileSync(leaseAlone, "export default { directUrl: false };");
});
afterAll(async () => {
  fs.rmSync(leaseAlone, { force: true });
});

/** Repeatedly kills the keeper that runs the job and starts another. Returns how long the job was interrupted. */
async function killKeepers(
  kills: number,
  start: () => Promise<WorkerProcess>,
  queue = stillwake,
): Promise<{ id: string; times: number[]; workers: WorkerProcess[] }> {
  const workers = [await start(), await start()];
  const alive = () => workers.filter(({ child }) => child.exitCode === null && child.signalCode === null);
  const gate = `keepers-${Math.random()}`;
  const steps = [nothing("one"), gated("two", gate)];
  const { id } = await queue.enqueue("script", { observer: observer.url, steps }, { attempts: 1000 });
  const times: number[] = [];
  for (let epoch = 1; epoch <= kills; epoch++) {
    const at =
      (wanted: number) =>
      ({ job, step, epoch: seen }: { job: string; step?: string; epoch: string }) =>
        job === id && step === "two" && seen === String(wanted);
    const { pid } = await observer.waitForReport(at(epoch));
    const victim = alive().find((worker) => worker.runners().includes(pid))!;
    const runners = victim.runners();
    const killedAt = performance.now();
    victim.signal("SIGKILL");
    const next = await observer.waitForReport(at(epoch + 1), { timeout: 30_000 });
    times.push(next.at - killedAt);
    await waitFor(() => !runners.some(isAlive), { what: "the runners to be gone" });
    workers.push(await start());
  }
  observer.openGate(gate);
  expect(await queue.wait(id, { timeout: "20s" })).toMatchObject({
    state: "completed",
    attempt: kills + 1,
    crashes: kills,
  });
  return { id, times, workers };
}

describe("a worker killed with SIGKILL", () => {
  it("has its jobs recovered within a second after the lease expired, without a direct connection", async () => {
    const short = async () => {
      await waitForStartupGrace(client, "2s");
      const args = ["--slots", "1", "--lease", "2s", "--config", leaseAlone];
      const { times, id } = await killKeepers(FULL ? 20 : 4, () => startWorker({ url: database.url, args }));
      const { most } = recordTimes("worker kill -9 to its job's next effect, lease of 2 s alone", times);
      expect(Math.min(...times)).toBeGreaterThan(1000);
      // A worker that has just started cannot tell the death of the only other one from an outage, and waits for a second lease.
      expect(most).toBeLessThan(3000 + 2000 + 2000);
      expect(await repeatedSteps(client, observer, [id])).toEqual([]);
    };
    const ordinary = async () => {
      const beside = createStillwake({ url: besides.url });
      const args = ["--slots", "1", "--config", leaseAlone];
      const { times } = await killKeepers(1, () => startWorker({ url: besides.url, args }), beside);
      await beside.close();
      recordFigure("worker kill -9 to its job's next effect, lease of 15 s alone", round(times[0]!), "ms");
      expect(times[0]).toBeGreaterThan(9000);
      expect(times[0]).toBeLessThan(16_000 + 2000);
    };
    await Promise.all([short(), ordinary()]);
  }, 600_000);

  it("has its jobs recovered within a second by a worker that checks its presence, and no finished step runs again", async () => {
    await waitForStartupGrace(client, "15s");
    const start = () => startWorker({ url: database.url, args: ["--slots", "1"] });
    const { id, times, workers } = await killKeepers(FULL ? 50 : 6, start);
    const { most } = recordTimes("worker kill -9 to its job's next effect, with presence", times);
    expect(most).toBeLessThan(5000);
    expect(observer.reportsOf(id).filter(({ step }) => step === "one")).toHaveLength(1);
    expect(await repeatedSteps(client, observer, [id])).toEqual([]);
    expect(await endedAttempts(client, [id])).toEqual({ lost: times.length });
    const reasons = workers
      .flatMap(({ lines }) => lines)
      .filter(({ event }) => event === "recovered")
      .map(({ reason }) => reason);
    expect(reasons).toContain("absent");
  }, 600_000);

  it("is noticed by a worker that was idle when the job was enqueued", async () => {
    await waitForStartupGrace(client, "15s");
    const start = () => startWorker({ url: database.url, args: ["--slots", "1"] });
    const workers = [await start(), await start()];
    const times: number[] = [];
    for (let n = 0; n < (FULL ? 20 : 2); n++) {
      for (const worker of workers.slice(-2)) await worker.waitForLine("hints.ready");
      // No lease exists, so no worker checks presences.
      await waitFor(async () => (await client.query("select from stillwake.leases")).rowCount === 0);
      const gate = `idle-${n}`;
      const { id } = await stillwake.enqueue("script", {
        observer: observer.url,
        steps: [{ name: "one", act: "gate", gate }],
      });
      const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "one");
      const place = workers.findIndex((worker) => worker.child.signalCode === null && worker.runners().includes(pid));
      const killedAt = performance.now();
      workers[place]!.signal("SIGKILL");
      const next = await observer.waitForReport(
        ({ job, step, epoch }) => job === id && step === "one" && epoch === "2",
      );
      times.push(next.at - killedAt);
      observer.openGate(gate);
      await stillwake.wait(id, { timeout: "20s" });
      workers.splice(place, 1);
      workers.push(await start());
    }
    const { most } = recordTimes("worker kill -9 right after its claim, with presence", times);
    expect(most).toBeLessThan(5000);
  }, 600_000);

  it("is listed as lost as soon as its session has ended, not as idle", async () => {
    const { url } = await freshDatabase();
    await using queue = createStillwake({ url });
    const worker = await startWorker({ url, args: ["--slots", "1", "--name", "doomed"] });
    await worker.waitForLine("hints.ready");
    await waitFor(async () => (await queue.machines()).length === 1);
    expect(await queue.machines()).toMatchObject([{ worker: "doomed", state: "idle", listening: true }]);
    worker.signal("SIGKILL");
    expect(await worker.exited).toBe("SIGKILL");
    const killedAt = performance.now();
    await waitFor(async () => (await queue.machines())[0]?.state !== "idle");
    expect(await queue.machines()).toMatchObject([{ worker: "doomed", state: "lost", listening: false }]);
    expect(performance.now() - killedAt).toBeLessThan(5000);
  });

  it("leaves no runner and no command behind", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "3"] });
    const file = path.join(worker.scratch, "pids");
    const command = `echo $$ >> ${file}; (setsid sh -c 'trap "" TERM HUP INT; echo $$ >> ${file}; while :; do sleep 1; done' &) ; exec sleep 1000`;
    const scripts = [
      [{ name: "run", act: "exec", command: "sh", args: ["-c", command] }],
      [{ name: "run", act: "block", ms: 600_000 }],
      [{ name: "run", act: "hang" }],
    ];
    const ids: string[] = [];
    for (const steps of scripts)
      ids.push((await stillwake.enqueue("script", { observer: observer.url, steps }, { attempts: 1 })).id);
    for (const id of ids) await observer.waitForReport(({ job, step }) => job === id && step === "run");
    const pids = () => fs.readFileSync(file, "utf8").trim().split("\n").map(Number);
    await waitFor(() => pids().length === 2);
    const all = [...worker.runners(), ...pids()];
    expect(all.length).toBeGreaterThanOrEqual(5);
    expect(all.every(isAlive)).toBe(true);
    const killedAt = performance.now();
    worker.signal("SIGKILL");
    await waitFor(() => !all.some(isAlive), { what: "all that it had started to be gone" });
    recordFigure(
      "SIGKILL of a worker to the exit of all its processes",
      round(performance.now() - killedAt),
      "ms",
      `${all.length} processes, one of them in a blocked loop`,
    );
    await waitFor(async () => {
      await client.query("select stillwake.recover_absent('test')");
      return (await client.query("select from stillwake.leases")).rowCount === 0;
    });
  });
});

describe("a broken session", () => {
  /** Counts presence checks that see the lock free while the lease still names it. */
  async function countLooks(): Promise<{ shots(): Promise<number>; [Symbol.asyncDispose](): Promise<void> }> {
    await client.query(`create table public.shots (lease uuid);
      create function public.shot() returns trigger language plpgsql security definer as $$ begin insert into public.shots values (new.id); return null; end $$;
      create trigger shot after update on stillwake.leases for each row when (new.absent_since is not null) execute function public.shot()`);
    return {
      shots: async () => (await client.query("select count(*)::int as n from public.shots")).rows[0].n,
      async [Symbol.asyncDispose]() {
        await client.query(
          "drop trigger shot on stillwake.leases; drop function public.shot(); drop table public.shots",
        );
      },
    };
  }

  /** Terminates the session that a worker's leases name. */
  async function endSession(worker: string): Promise<number | null> {
    const { rowCount } = await client.query(
      `select pg_terminate_backend(l.pid) from pg_locks l
      join stillwake.leases s on l.mode = 'ExclusiveLock' and l.locktype = 'advisory' and s.presence = (l.classid::bigint << 32) | l.objid::bigint
      where s.worker = $1`,
      [worker],
    );
    return rowCount;
  }

  it(
    "does not count as a death, however often it breaks while the job runs",
    async () => {
      await waitForStartupGrace(client, "15s");
      await using looks = await countLooks();
      const name = "reconnecting";
      const worker = await startWorker({ url: database.url, args: ["--slots", "1", "--name", name] });
      const { id } = await stillwake.enqueue("script", {
        observer: observer.url,
        steps: [{ name: "one", act: "gate", gate: "reconnect" }],
      });
      await observer.waitForReport(({ job, step }) => job === id && step === "one");
      const other = await startWorker({ url: database.url, args: ["--slots", "1"] });
      // Simulates many other workers: the same function and grace period, as often as one connection can call it.
      const watcher = await connect(database.url);
      let recovered = 0;
      let breaks = 0;
      let watching = true;
      const isTaken = () => recovered > 0 || other.lines.some(({ event }) => event === "recovered");
      const watch = (async () => {
        while (watching)
          recovered += (await watcher.query("select recovered from stillwake.recover_absent('watcher')")).rows[0]
            .recovered;
      })();
      for (const wanted = FULL ? 40 : 7; breaks < wanted && !isTaken(); breaks++) {
        const ready = () => worker.lines.filter(({ event }) => event === "hints.ready").length;
        await waitFor(() => ready() > breaks);
        if ((await endSession(name)) === 0) breaks -= 1;
      }
      watching = false;
      await watch;
      await watcher.end();
      expect(recovered).toBe(0);
      expect(other.lines.filter(({ event }) => event === "recovered")).toEqual([]);
      observer.openGate("reconnect");
      expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({
        state: "completed",
        attempt: 1,
        crashes: 0,
      });
      const shots = await looks.shots();
      expect(shots).toBeGreaterThan(0);
      recordFigure("direct sessions ended under a running job", breaks, "sessions");
      recordFigure("looks that found its lock free", shots, "looks");
      recordFigure("jobs taken from it", recovered, "jobs");
    },
    FULL ? 400_000 : 120_000,
  );

  it("does not count as a death if a claim was in flight when it broke", async () => {
    await waitForStartupGrace(client, "15s");
    await using proxy = await faultProxy(database.url);
    const args = ["--slots", "1", "--name", "claiming", "--direct-url", database.url];
    const worker = await startWorker({ url: proxy.url, args });
    await worker.waitForLine("hints.ready");
    const presence = async () => (await client.query("select presence from stillwake.leases")).rows[0]?.presence;
    let id = "";
    let before: unknown;
    // The claim arrives, but its response does not: the lease names a session that then ends. The worker must have an
    // open connection, so it has just run a job; otherwise the proxy would mute it before it can claim.
    for (let round = 0; before === undefined && round < 10; round++) {
      proxy.mode = "pass";
      if (id) {
        await stillwake.cancel(id);
        await waitForEnd(stillwake, id);
      }
      const first = await stillwake.enqueue("script", { steps: [] });
      await stillwake.wait(first.id, { timeout: "20s" });
      proxy.mode = "mute";
      const steps = [{ name: "one", act: "gate", gate: "claiming" }];
      ({ id } = await stillwake.enqueue("script", { observer: observer.url, steps }));
      before = await waitFor(presence, { timeout: 2000 }).catch(() => undefined);
    }
    expect(before).toBeDefined();
    expect(await endSession("claiming")).toBe(1);
    await waitFor(() => worker.lines.filter(({ event }) => event === "hints.ready").length === 2);
    proxy.mode = "pass";
    let recovered = 0;
    await waitFor(async () => {
      const { rows } = await client.query("select recovered from stillwake.recover_absent('test')");
      recovered += rows[0].recovered;
      return recovered > 0 || (await presence()) !== before;
    });
    expect(recovered).toBe(0);
    observer.openGate("claiming");
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
  });
});

describe("workers that check presences", () => {
  it("check at most five times a second, however many jobs they run", async () => {
    const holder = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [{ name: "one", act: "gate", gate: "watched" }];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    await observer.waitForReport(({ job, step }) => job === id && step === "one");
    const watcher = await startWorker({ url: database.url, args: ["--slots", "2"] });
    await watcher.waitForLine("hints.ready");
    for (let n = 0; n < 30; n++) {
      const job = await stillwake.enqueue("script", { steps: [] });
      await stillwake.wait(job.id, { timeout: "20s" });
    }
    await client.query(`create sequence public.looks;
      alter function stillwake.recover_absent(text, interval) rename to recover_absent_itself;
      create function stillwake.recover_absent(p_worker text, p_grace interval) returns table (recovered integer, watched integer)
      language sql as $$ select nextval('public.looks'); select * from stillwake.recover_absent_itself(p_worker, p_grace) $$`);
    await waitDatabaseTime(client, "3s");
    const { rows } = await client.query("select last_value::int as looks from public.looks");
    await client.query(`drop function stillwake.recover_absent(text, interval);
      alter function stillwake.recover_absent_itself(text, interval) rename to recover_absent; drop sequence public.looks`);
    recordFigure("looks at the session of another worker", round(rows[0].looks / 3), "per second", "after 30 jobs");
    expect(rows[0].looks).toBeGreaterThan(5);
    expect(rows[0].looks).toBeLessThan(20);
    expect(holder.lines.filter(({ event }) => event === "attempt.ended")).toEqual([]);
    observer.openGate("watched");
    await stillwake.wait(id, { timeout: "20s" });
  });

  it("recover many leases of a worker as quickly as a single one", async () => {
    await waitForStartupGrace(client, "15s");
    const watcher = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [{ name: "one", act: "gate", gate: "many" }];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    await observer.waitForReport(({ job, step }) => job === id && step === "one");
    // A manual worker: any client may claim. It claims its jobs one by one.
    const many = await connect(database.url);
    await many.query("select stillwake.hold_presence(4711)");
    const jobs = await stillwake.enqueueMany("script", new Array(100).fill({ steps: [] }));
    for (const _ of jobs) {
      await many.query("select stillwake.claim('by hand', 'default', '{script}', 1, '15 seconds', null, 4711)");
    }
    const leases = async () =>
      (await client.query("select count(*)::int as n from stillwake.leases where worker = 'by hand'")).rows[0].n;
    expect(await leases()).toBe(100);
    observer.openGate("many");
    await stillwake.wait(id, { timeout: "20s" });
    const endedAt = performance.now();
    await many.end();
    await waitFor(async () => (await leases()) === 0, { timeout: 20_000 });
    const tookMs = performance.now() - endedAt;
    expect(tookMs).toBeLessThan(3000);
    recordFigure("worker with 100 leases gone to the last of them recovered", round(tookMs), "ms");
    expect(watcher.lines.filter(({ event, reason }) => event === "recovered" && reason === "stale")).toEqual([]);
    for (const job of jobs) await stillwake.wait(job.id, { timeout: "20s" });
  });
});
