// The network between a worker and Postgres goes bad without breaking: bytes stop, one way or both, and nobody is told. Each worker here has a
// fault proxy before its database and a rival that has none, so that a lease which is lost finds a taker at once.
import net from "node:net";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake, pipeline, type Stillwake } from "../../src/index.ts";
import { type FaultProxy, type FaultProxyMode, faultProxy, waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { countedEffects } from "../support/processes/effects.ts";
import { ownWorker } from "../support/processes/recorded-worker.ts";

const { STILLWAKE_FULL } = process.env;
/** What `statementTimeout` and the timeout of a connect are, and what a loaded machine adds. */
const STATEMENT_MS = 10_000;
const SLACK_MS = 2_500;

const database = await freshDatabase();
const sql = new pg.Client({ connectionString: database.url });
let stillwake: Stillwake;

beforeAll(async () => {
  await sql.connect();
  stillwake = createStillwake({ url: database.url });
});
afterAll(async () => {
  await stillwake.close();
  await sql.end();
});

interface Hole {
  mode: FaultProxyMode;
  forMs: number;
  lease: string;
}

describe("a black hole between the worker and Postgres", () => {
  const lengths = STILLWAKE_FULL ? [300, 3_000, 12_000, 20_000, 60_000, 120_000] : [300, 3_000, 12_000, 20_000];
  const modes: FaultProxyMode[] = ["silent", "deaf", "mute"];

  it(`T15, T16: ${lengths[0]} ms to ${lengths.at(-1)! / 1000} s, both ways and one way: no call hangs past its deadline, nothing is lost, no finished step runs again`, {
    timeout: lengths.at(-1)! + 60_000,
  }, async () => {
    // All at once: what is tested is time, and holes do not get in each other's way. Every second lease is over before the hole is.
    const holes = modes.flatMap((mode, row) =>
      lengths.map((forMs, column): Hole => ({ mode, forMs, lease: (row + column) % 2 === 0 ? "2s" : "15s" })),
    );
    const results = await Promise.all(holes.map(throughHole));
    for (const mode of modes) {
      const of = results.filter(({ hole }) => hole.mode === mode);
      const most = (figure: (result: Result) => number) => Math.max(...of.map(figure));
      recordFigure(
        `T15: longest wait on a ${mode} connection`,
        most(({ quietMs }) => quietMs),
        "ms",
      );
      recordFigure(
        `T15: longest stall after a ${mode} network healed`,
        most(({ stallMs }) => stallMs),
        "ms",
      );
      recordFigure(
        `T16: effects of unfinished steps repeated, ${mode}`,
        of.reduce((sum, { repeats }) => sum + repeats, 0),
        "",
        `of ${of.reduce((sum, { effects }) => sum + effects, 0)}; of finished steps 0`,
      );
    }
    const refused = results.reduce((sum, result) => sum + result.refused, 0);
    recordFigure("T16: late writes of replaced attempts refused", refused, "", "accepted 0");
    expect(refused, "leases must have been lost, or nothing was tried").toBeGreaterThan(0);
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
  const worker = await ownWorker({ url: proxy.url, name, ...options });
  const rival = await ownWorker({ url: database.url, name: `${name}-rival`, ...options });
  const sockets = watchSockets(proxy);

  // As many jobs come in as go out.
  let enqueued = 0;
  let feeding = true;
  const more = async (count: number) => {
    enqueued += count;
    await stillwake.enqueueMany(
      name,
      Array.from({ length: count }, () => ({})),
    );
  };
  for (const { worker: one } of [worker, rival]) {
    one.announcer.subscribe(({ kind }) => {
      if (feeding && kind === "attempt.ended") void more(1);
    });
  }
  await more(8);
  await worker.hears("attempt.ended", { times: 6 });
  await waitFor(() => worker.worker.health().active > 0, { interval: 1 });

  proxy.mode = mode;
  if (mode === "silent") proxy.freeze();
  await lasts(forMs);
  proxy.thaw();
  proxy.mode = "pass";
  const healed = performance.now();
  // By itself: it claims, works and settles again.
  const first = await worker.hears("attempt.ended", { after: healed, timeout: 40_000 });
  await worker.hears("claimed", { after: healed, timeout: 40_000 });
  await worker.hears("attempt.ended", { after: healed, times: 8, timeout: 40_000 });
  feeding = false;
  const ended = await waitFor(
    async () => {
      const rows = await states(name);
      return rows.every(({ state }) => state === "completed") && rows;
    },
    { timeout: 40_000, interval: 100, what: `every job of ${name} to end` },
  );

  const quietMs = sockets.longestQuietMs();
  expect(quietMs, `${name}: a connection was waited for too long`).toBeLessThan(STATEMENT_MS + SLACK_MS);
  expect(ended).toEqual([{ state: "completed", count: enqueued }]);
  expect(counted.afterFinish(), `${name}: effects of finished steps`).toEqual([]);
  expect(counted.finished.size).toBe(3 * enqueued);
  expect(worker.worker.state).toBe("working");
  // None is left behind: four of the pool and the direct one.
  await waitFor(() => proxy.connections() <= 5, { what: `${name} to have closed what it gave up` });
  await Promise.all([worker.worker.stop(), rival.worker.stop()]);
  return {
    hole,
    quietMs,
    stallMs: first.at - healed,
    effects: counted.effects.length,
    repeats: counted.repeats(),
    refused: worker.of("write.refused").length,
  };
}

describe("the flows of a worker are forgotten by a firewall", () => {
  it("T15: a heartbeat that nobody answers goes over a fresh connection before the lease is over", async () => {
    await using proxy = await faultProxy(database.url);
    let finish: () => void = () => {};
    const until = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const held = countedEffects("held", { steps: 1, before: () => until });
    const options = {
      pipelines: [held.implementation],
      pool: "held",
      slots: 1,
      lease: "3s",
      directUrl: false as const,
    };
    // Its one connection is the one that is forgotten.
    const worker = await ownWorker({ url: proxy.url, name: "held", connections: 1, poll: "5m", ...options });
    const { id } = await stillwake.enqueue("held", {});
    worker.worker.poke();
    await worker.hears("attempt.started");
    const rival = await ownWorker({ url: database.url, name: "held-rival", poll: "100ms", ...options });
    await worker.hears("heartbeat");
    const frozen = performance.now();
    proxy.freeze();
    // Longer than the lease, over new connections.
    await worker.hears("heartbeat", { after: frozen, times: 4, timeout: 25_000 });
    recordFigure(
      "T15: a heartbeat gets through after the flows were forgotten",
      worker.of("heartbeat").find(({ at }) => at > frozen)!.at - frozen,
      "ms",
      "lease 3 s",
    );
    finish();
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0, worker: "held" });
    expect(rival.of("recovered")).toEqual([]);
    await worker.worker.stop();
  });

  it("T15: statements that arrive after all, when their worker has given them up, change nothing", {
    timeout: 120_000,
  }, async () => {
    // One after the other: a worker that sees the lease of another watches it, and is not silent.
    await lateClaim();
    await lateHeartbeat();
  });
});

/** A claim is on the way when the flow is forgotten; it is sent again over another, its jobs end, and then the first one arrives. */
async function lateClaim(): Promise<void> {
  await using proxy = await faultProxy(database.url);
  const late = countedEffects("late", { steps: 1, stepMs: 20 });
  const worker = await ownWorker({
    url: proxy.url,
    directUrl: database.url,
    name: "late",
    pipelines: [late.implementation],
    pool: "late",
    slots: 1,
    lease: "5s",
    pollWithHints: "4s",
  });
  await worker.hears("push.ready");
  const silence = silenceOf(proxy);
  const after = performance.now();
  worker.worker.poke();
  await worker.hears("claim.empty", { after });
  await silence();
  const frozen = performance.now();
  proxy.freeze();
  await stillwake.enqueueMany(
    "late",
    Array.from({ length: 150 }, () => ({})),
  );
  await worker.hears("attempt.ended", { times: 30, timeout: 30_000 });
  const waited = worker.of("claimed")[0]!.at - frozen;
  expect(waited, "the claim was not on a forgotten flow").toBeGreaterThan(STATEMENT_MS - 500);
  proxy.thaw();
  await waitFor(async () => (await states("late")).every(({ state }) => state === "completed"), {
    timeout: 40_000,
    interval: 100,
  });
  const { rows } = await sql.query(
    "select attempt, crashes, count(*)::int from stillwake.jobs where pool = 'late' group by 1, 2",
  );
  expect(rows, "jobs that a claim without a worker has taken").toEqual([{ attempt: 1, crashes: 0, count: 150 }]);
  await worker.worker.stop();
}

/** A heartbeat is on the way when the flows are forgotten. It names the session of then; when it arrives that session is gone. */
async function lateHeartbeat(): Promise<void> {
  await using proxy = await faultProxy(database.url);
  let finish: () => void = () => {};
  const until = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const long = pipeline("long", { pool: "long" });
  const run = implement(long, () => until);
  const options = { pipelines: [run], pool: "long", slots: 2, lease: "6s" };
  await stillwake.register(long);
  const worker = await ownWorker({ url: proxy.url, name: "long", pollWithHints: "5m", ...options });
  await worker.hears("push.ready");
  const { id } = await stillwake.enqueue("long", {});
  await worker.hears("attempt.started");
  const rival = await ownWorker({ url: database.url, name: "long-rival", ...options });
  await worker.hears("heartbeat");
  const frozen = performance.now();
  proxy.freeze();
  const slow = await worker.hears("heartbeat", { after: frozen });
  expect(slow.tookMs, "the heartbeat was not on a forgotten flow").toBeGreaterThan(1_000);
  await worker.hears("push.ready", { after: frozen, timeout: 30_000 });
  await worker.hears("heartbeat", { after: frozen, times: 2, timeout: 30_000 });
  const thawed = performance.now();
  proxy.thaw();
  await worker.hears("heartbeat", { after: thawed, times: 2, timeout: 30_000 });
  finish();
  const job = await stillwake.wait(id, { timeout: "20s" });
  expect(rival.of("recovered"), "a worker that lives was taken for dead").toEqual([]);
  expect(job).toMatchObject({ state: "completed", attempt: 1, crashes: 0, worker: "long" });
  await worker.worker.stop();
}

/** The length of a fault is what is tested, so it is the one thing here that is a matter of time. */
function lasts(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Resolves when nothing has been sent for a while: connections are open and idle. To be called before the last that is sent. */
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

/** Follows every socket of this process that leads to the proxy and is waited for: how long did the longest get no byte? */
function watchSockets(proxy: FaultProxy): { longestQuietMs(): number } {
  const seen = new Map<net.Socket, { bytesRead: number; since: number }>();
  let longest = 0;
  const look = () => {
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
  const timer = setInterval(look, 25);
  return {
    longestQuietMs() {
      clearInterval(timer);
      return longest;
    },
  };
}
