// Silent network faults between a worker and Postgres: bytes stop in one or both directions without an error. Each
// worker connects through a fault proxy. A second worker connects directly and claims jobs whose lease is lost.
import net from "node:net";
import { describe, expect, it } from "vitest";
import { type Duration, pipeline } from "../../src/index.ts";
import { type FaultProxy, type FaultProxyMode, faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { countedEffects } from "../support/processes/effects.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

const { STILLWAKE_FULL } = process.env;
/** `statementTimeout`, the connection timeout, and a margin for a loaded machine. */
const STATEMENT_MS = 10_000;
const SLACK_MS = 2_500;

const { database, stillwake, client: sql } = await connectedDatabase();

interface Hole {
  mode: FaultProxyMode;
  forMs: number;
  lease: Duration;
}

describe("a black hole between the worker and Postgres", () => {
  const lengths = STILLWAKE_FULL ? [300, 3_000, 12_000, 20_000, 60_000, 120_000] : [300, 3_000, 12_000];
  const modes: FaultProxyMode[] = ["silent", "deaf", "mute"];

  it(`of ${lengths[0]} ms to ${lengths.at(-1)! / 1000} s, in one or both directions: no call exceeds its deadline, no job is lost, no finished step runs again`, {
    timeout: lengths.at(-1)! + 60_000,
  }, async () => {
    // In parallel, because the faults are independent. Every second lease expires before its fault ends.
    const holes = modes.flatMap((mode, row) =>
      lengths.map((forMs, column): Hole => ({ mode, forMs, lease: (row + column) % 2 === 0 ? "2s" : "8s" })),
    );
    const results = await Promise.all(holes.map(throughHole));
    for (const mode of modes) {
      const ofMode = results.filter(({ hole }) => hole.mode === mode);
      const max = (figure: (result: Result) => number) => Math.max(...ofMode.map(figure));
      recordFigure(
        `longest wait on a ${mode} connection`,
        max(({ quietMs }) => quietMs),
        "ms",
      );
      recordFigure(
        `longest stall after a ${mode} network healed`,
        max(({ stallMs }) => stallMs),
        "ms",
      );
      recordFigure(
        `effects of unfinished steps repeated, ${mode}`,
        ofMode.reduce((sum, { repeats }) => sum + repeats, 0),
        "",
        `of ${ofMode.reduce((sum, { effects }) => sum + effects, 0)}; of finished steps 0`,
      );
    }
    const refused = results.reduce((sum, result) => sum + result.refused, 0);
    recordFigure("late writes of replaced attempts refused", refused, "", "accepted 0");
    expect(refused, "leases must have been lost, or nothing was tested").toBeGreaterThan(0);
  });
});

interface Result {
  hole: Hole;
  quietMs: number;
  stallMs: number;
  effects: number;
  repeats: number;
  refused: number;
}

async function throughHole(hole: Hole): Promise<Result> {
  const { mode, forMs, lease } = hole;
  const name = `${mode}-${forMs}`;
  await using proxy = await faultProxy(database.url);
  const counted = countedEffects(name, { stepMs: 40 });
  const options = { pipelines: [counted.implementation], pool: name, slots: 2, lease };
  const worker = await startRecordedWorker({ url: proxy.url, name, ...options });
  const rival = await startRecordedWorker({ url: database.url, name: `${name}-rival`, ...options });
  const sockets = watchSockets(proxy);

  // One job is enqueued for each attempt that ends.
  let enqueued = 0;
  let feeding = true;
  const enqueueMore = async (count: number) => {
    enqueued += count;
    await stillwake.enqueueMany(name, new Array(count).fill({}));
  };
  for (const { worker: one } of [worker, rival]) {
    one.events.subscribe(({ kind }) => {
      if (feeding && kind === "attempt.ended") void enqueueMore(1);
    });
  }
  await enqueueMore(8);
  await worker.waitForEvent("attempt.ended", { times: 6 });
  await waitFor(() => worker.worker.health().active > 0, { interval: 1 });

  proxy.mode = mode;
  if (mode === "silent") proxy.freeze();
  await sleep(forMs);
  proxy.thaw();
  proxy.mode = "pass";
  const healed = performance.now();
  // It claims, runs and settles again without a restart.
  const first = await worker.waitForEvent("attempt.ended", { after: healed, timeout: 40_000 });
  await worker.waitForEvent("claimed", { after: healed, timeout: 40_000 });
  await worker.waitForEvent("attempt.ended", { after: healed, times: 8, timeout: 40_000 });
  feeding = false;
  const ended = await waitFor(
    async () => {
      const rows = await states(name);
      return rows.every(({ state }) => state === "completed") && rows;
    },
    { timeout: 40_000, interval: 100, what: `every job of ${name} to end` },
  );

  const quietMs = sockets.longestQuietMs();
  expect(quietMs, `${name}: a call waited too long for a response`).toBeLessThan(STATEMENT_MS + SLACK_MS);
  expect(ended).toEqual([{ state: "completed", count: enqueued }]);
  expect(counted.afterFinish(), `${name}: effects of finished steps`).toEqual([]);
  expect(counted.finished.size).toBe(3 * enqueued);
  expect(worker.worker.state).toBe("working");
  // No connection is left over: four of the pool and the direct one.
  await waitFor(() => proxy.connections() <= 5, { what: `${name} to close the connections that it abandoned` });
  await Promise.all([worker.worker.stop(), rival.worker.stop()]);
  return {
    hole,
    quietMs,
    stallMs: first.at - healed,
    effects: counted.effects.length,
    repeats: counted.repeats(),
    refused: worker.eventsOf("write.refused").length,
  };
}

describe("when a firewall drops the state of a worker's connections", () => {
  it("a heartbeat without a response is repeated over a new connection before the lease expires", async () => {
    await using proxy = await faultProxy(database.url);
    const { promise: until, resolve: finish } = deferred();
    const held = countedEffects("held", { steps: 1, before: () => until });
    const options = {
      pipelines: [held.implementation],
      pool: "held",
      slots: 1,
      lease: "3s" as const,
      directUrl: false as const,
    };
    // It has only this connection.
    const worker = await startRecordedWorker({ url: proxy.url, name: "held", connections: 1, poll: "5m", ...options });
    const { id } = await stillwake.enqueue("held", {});
    worker.worker.poke();
    await worker.waitForEvent("attempt.started");
    const rival = await startRecordedWorker({ url: database.url, name: "held-rival", poll: "100ms", ...options });
    await worker.waitForEvent("heartbeat");
    const frozen = performance.now();
    proxy.freeze();
    // For longer than the lease, over new connections.
    await worker.waitForEvent("heartbeat", { after: frozen, times: 4, timeout: 25_000 });
    recordFigure(
      "a heartbeat succeeds after a firewall dropped its connections",
      worker.eventsOf("heartbeat").find(({ at }) => at > frozen)!.at - frozen,
      "ms",
      "lease 3 s",
    );
    finish();
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0, worker: "held" });
    expect(rival.eventsOf("recovered")).toEqual([]);
    await worker.worker.stop();
  });

  it("a claim and a recovery that arrive after the worker's lease expired do not recover its own job", async () => {
    await using proxy = await faultProxy(database.url);
    const { promise: until, resolve: finish } = deferred();
    const frozen = pipeline("frozen", { pool: "frozen" });
    const worker = await startRecordedWorker({
      url: proxy.url,
      directUrl: false,
      name: "frozen",
      pipelines: [implement(frozen, () => until)],
      pool: "frozen",
      slots: 2,
      lease: "1s",
      poll: "100ms",
    });
    const { id } = await stillwake.enqueue(frozen, {} as never);
    await worker.waitForEvent("attempt.started");
    for (const first of ["recovery", "claim"]) {
      const at = performance.now();
      await worker.waitForEvent("heartbeat", { after: at });
      await worker.waitForEvent("claim.empty", { after: at });
      // Sent over a frozen connection. A heartbeat that finds none free gets no new one.
      proxy.freeze();
      proxy.mode = "refuse";
      if (first === "claim") worker.worker.poke();
      await waitFor(
        async () =>
          (await sql.query("select from stillwake.leases where pool = 'frozen' and until < stillwake.now()")).rowCount,
      );
      const thawed = performance.now();
      proxy.thaw();
      await worker.waitForEvent("claim.empty", { after: thawed });
      proxy.mode = "pass";
      await worker.waitForEvent("heartbeat", { after: thawed });
    }
    expect(await stillwake.get(id)).toMatchObject({ state: "running", attempt: 1, crashes: 0 });
    finish();
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1, crashes: 0 });
    expect(worker.eventsOf("recovered")).toEqual([]);
    await worker.worker.stop();
  });

  it("statements that arrive after their worker abandoned them change nothing", {
    timeout: 120_000,
  }, async () => {
    // One after the other: a worker that sees the lease of another checks its presence and is not idle.
    await lateClaim();
    await lateHeartbeat();
  });
});

/** A claim is in flight when its connection is frozen; it is repeated over another one, its jobs end, and then the first claim arrives. */
async function lateClaim(): Promise<void> {
  await using proxy = await faultProxy(database.url);
  const late = countedEffects("late", { steps: 1, stepMs: 20 });
  const worker = await startRecordedWorker({
    url: proxy.url,
    directUrl: database.url,
    name: "late",
    pipelines: [late.implementation],
    pool: "late",
    slots: 1,
    lease: "5s",
    pollWithHints: "4s",
  });
  await worker.waitForEvent("hints.ready");
  const silence = silenceOf(proxy);
  const after = performance.now();
  worker.worker.poke();
  await worker.waitForEvent("claim.empty", { after });
  await silence();
  const frozen = performance.now();
  proxy.freeze();
  await stillwake.enqueueMany("late", new Array(150).fill({}));
  await worker.waitForEvent("attempt.ended", { times: 30, timeout: 30_000 });
  const waited = worker.eventsOf("claimed")[0]!.at - frozen;
  expect(waited, "the claim was not sent over the frozen connection").toBeGreaterThan(STATEMENT_MS - 500);
  proxy.thaw();
  await waitFor(async () => (await states("late")).every(({ state }) => state === "completed"), {
    timeout: 40_000,
    interval: 100,
  });
  const { rows } = await sql.query(
    "select attempt, crashes, count(*)::int from stillwake.jobs where pool = 'late' group by 1, 2",
  );
  expect(rows, "jobs claimed by an abandoned statement").toEqual([{ attempt: 1, crashes: 0, count: 150 }]);
  await worker.worker.stop();
}

/** A heartbeat is in flight when its connection is frozen. When it arrives, the session that it names is gone. */
async function lateHeartbeat(): Promise<void> {
  await using proxy = await faultProxy(database.url);
  const { promise: until, resolve: finish } = deferred();
  const long = pipeline("long", { pool: "long" });
  const run = implement(long, () => until);
  const options = { pipelines: [run], pool: "long", slots: 2, lease: "6s" as const };
  await stillwake.register(long);
  const worker = await startRecordedWorker({ url: proxy.url, name: "long", pollWithHints: "5m", ...options });
  await worker.waitForEvent("hints.ready");
  const { id } = await stillwake.enqueue("long", {});
  await worker.waitForEvent("attempt.started");
  const rival = await startRecordedWorker({ url: database.url, name: "long-rival", ...options });
  await worker.waitForEvent("heartbeat");
  let frozen = 0;
  let slow = { at: 0, tookMs: 0 };
  // Another statement may occupy the frozen connection, so that the heartbeat uses a new one: then both are frozen.
  for (let round = 0; round < 5 && slow.tookMs < 1_000; round++) {
    frozen = performance.now();
    proxy.freeze();
    slow = await worker.waitForEvent("heartbeat", { after: frozen });
    // One that was sent before the freeze may be reported after it.
    if (slow.at - slow.tookMs < frozen) slow = await worker.waitForEvent("heartbeat", { after: slow.at + 1 });
  }
  expect(slow.tookMs, "the heartbeat was not sent over the frozen connection").toBeGreaterThan(1_000);
  await worker.waitForEvent("hints.ready", { after: frozen, timeout: 30_000 });
  await worker.waitForEvent("heartbeat", { after: frozen, times: 2, timeout: 30_000 });
  const thawed = performance.now();
  proxy.thaw();
  await worker.waitForEvent("heartbeat", { after: thawed, times: 2, timeout: 30_000 });
  finish();
  const job = await stillwake.wait(id, { timeout: "20s" });
  expect(rival.eventsOf("recovered"), "jobs of a live worker were recovered").toEqual([]);
  expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0, worker: "long" });
  await worker.worker.stop();
}

/** Waits in real time, because the duration of the fault is tested. */
function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Resolves when nothing has been sent for a while: connections are open and idle. Call it before the last statement. */
function silenceOf(proxy: FaultProxy): () => Promise<void> {
  let sentAt = performance.now();
  void proxy.cutAfterServerReceives(() => {
    sentAt = performance.now();
    return false;
  });
  return () => waitFor(() => performance.now() - sentAt > 300, { interval: 5, what: "silence" }).then(() => {});
}

async function states(pool: string): Promise<{ state: string; count: number }[]> {
  const { rows } = await sql.query("select state, count(*)::int from stillwake.jobs where pool = $1 group by 1", [
    pool,
  ]);
  return rows;
}

/** Measures the longest time that a socket to the proxy waited for a byte. */
function watchSockets(proxy: FaultProxy): { longestQuietMs(): number } {
  const seen = new Map<net.Socket, { bytesRead: number; since: number }>();
  let longest = 0;
  const sample = () => {
    const now = performance.now();
    const handles = (process as unknown as { _getActiveHandles(): unknown[] })._getActiveHandles();
    const awaited = new Set(
      handles.filter((one): one is net.Socket => one instanceof net.Socket && one.remotePort === proxy.port),
    );
    for (const socket of seen.keys()) if (!awaited.has(socket)) seen.delete(socket);
    for (const socket of awaited) {
      const { bytesRead } = socket;
      const last = seen.get(socket);
      if (last?.bytesRead === bytesRead && !socket.writableEnded) longest = Math.max(longest, now - last.since);
      else seen.set(socket, { bytesRead, since: now });
    }
  };
  const timer = setInterval(sample, 25);
  return {
    longestQuietMs() {
      clearInterval(timer);
      return longest;
    },
  };
}
