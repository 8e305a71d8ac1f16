// The orchestrator with the local provider, end to end: jobs arrive, machines start as processes, jobs complete, machines
// exit. Processes are counted through the system. Provider APIs are tested in other files.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { local, type Orchestrator } from "../../src/orchestrator/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import {
  FULL,
  isAlive,
  processState,
  recordTimes,
  repeatedSteps,
  round,
  waitForStartupGrace,
} from "../support/processes/fault-checks.ts";
import { type LocalFleet, localFleet, withoutTimes, withStart } from "../support/processes/local-fleet.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { gated, nothing, turnstile } from "../support/processes/script-steps.ts";

let orchestrator: Orchestrator | undefined;
const { database, stillwake, client, observer } = await processFixture({ poke: () => orchestrator?.poke() });
const script = pipeline("script", { retry: { attempts: 10, crashes: 1000, initial: "10ms", max: "100ms" } });
const TIME = 60_000;
let pools = 0;
beforeAll(() => waitForStartupGrace(client, "2s"));

/** A separate pool for a test. */
function fleet(more?: Parameters<typeof localFleet>[2]): LocalFleet {
  const created = localFleet(database.url, `flow-${++pools}`, more);
  onTestFinished(() => created.close());
  return created;
}

const enqueue = async ({ pool }: LocalFleet, steps: object[]) =>
  (await stillwake.enqueue(script, { observer: observer.url, steps }, { pool })).id;
const threeSteps = (gate: string) => [nothing("first"), gated("second", gate), nothing("last")];
const done = (id: string) => stillwake.wait(id, { timeout: "60s" });
const lives = async ({ pool }: LocalFleet) =>
  (
    await client.query(
      `select l.machine, l.exit, l.ended_at, l.registered_at, l.left_reason, (select count(*)::int from stillwake.machine_jobs j where j.life = l.id) as jobs,
        extract(epoch from coalesce(l.ended_at, stillwake.now()) - l.started_at)::float as seconds, l.busy_seconds::float as busy
      from stillwake.machine_lives l where l.pool = $1 order by l.requested_at`,
      [pool],
    )
  ).rows as {
    machine: string;
    exit: { code?: number; signal?: string } | null;
    ended_at: Date | null;
    registered_at: Date | null;
    left_reason: string | null;
    jobs: number;
    seconds: number;
    busy: number | null;
  }[];
const closed = (fleet: LocalFleet) =>
  waitFor(async () => (await lives(fleet)).every(({ ended_at }) => ended_at !== null), {
    timeout: TIME,
    what: "all lives to be closed",
  });

describe("demand", { timeout: 2 * TIME }, () => {
  it("starts a machine for a job, which runs it and exits after its idle time", async () => {
    const pool = fleet();
    orchestrator = await pool.startOrchestrator();
    await orchestrator.settled();
    expect(pool.processes()).toEqual([]);
    const id = await enqueue(pool, threeSteps("flow"));
    await observer.waitForReport(({ job, step }) => job === id && step === "second");
    const [machine, ...others] = pool.machines();
    expect(others).toEqual([]);
    expect(machine!.variables).toMatchObject({ STILLWAKE_POOL: pool.pool, STILLWAKE_SLOTS: "1" });
    observer.openGate("flow");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.waitUntilGone();
    await closed(pool);
    expect(await lives(pool)).toMatchObject([
      { machine: machine!.variables.STILLWAKE_MACHINE, jobs: 1, exit: { code: 0 }, left_reason: "idle" },
    ]);
    const attempts = await stillwake.attempts(id);
    expect(attempts.map(({ worker }) => worker)).toEqual([machine!.variables.STILLWAKE_MACHINE]);
  });

  it("starts a machine per job; jobs beyond max wait and run on the existing machines", async () => {
    const pool = fleet();
    orchestrator = await pool.startOrchestrator({ max: 3 });
    const ids = await Promise.all([1, 2, 3, 4, 5].map(() => enqueue(pool, threeSteps("several"))));
    const begun = () =>
      new Set(observer.reports.filter(({ job, step }) => ids.includes(job) && step === "second").map(({ job }) => job));
    await waitFor(() => begun().size === 3, { timeout: TIME });
    await orchestrator.settled();
    const names = pool.machines().map(({ variables }) => variables.STILLWAKE_MACHINE);
    expect(new Set(names).size).toBe(3);
    expect(names).toHaveLength(3);
    const workers = await client.query("select distinct worker from stillwake.leases where worker = any ($1)", [names]);
    expect(workers.rowCount).toBe(3);
    expect(pool.messages.join("\n")).toContain("the pool is at its maximum of 3 machines");
    observer.openGate("several");
    for (const id of ids) expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.waitUntilGone();
    await closed(pool);
    expect((await lives(pool)).map(({ jobs }) => jobs).reduce((sum, jobs) => sum + jobs)).toBe(5);
    expect(await lives(pool)).toHaveLength(3);
  });
});

describe("a killed machine", { timeout: 2 * TIME }, () => {
  it("before its claim: the job waits and runs on the next machine", async () => {
    const pool = fleet();
    orchestrator = await pool.startOrchestrator();
    const id = await enqueue(pool, [{ name: "only", act: "nothing" }]);
    const [first] = await waitFor(() => pool.machines().length > 0 && pool.machines());
    process.kill(first!.pid, "SIGKILL");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    await pool.waitUntilGone();
    await closed(pool);
    const all = await lives(pool);
    expect(all.at(-1)).toMatchObject({ jobs: 1, exit: { code: 0 } });
    // Killed while it was still the start script it never was a machine and has no life.
    expect(all.slice(0, -1)).toMatchObject(all.slice(0, -1).map(() => ({ jobs: 0, exit: { signal: "SIGKILL" } })));
    expect(all.length).toBeLessThanOrEqual(2);
  });

  it("during its job: the job resumes from its checkpoint on another machine, long before the lease expires", async () => {
    const pool = fleet({ args: ["--lease", "10m"] });
    orchestrator = await pool.startOrchestrator();
    const id = await enqueue(pool, threeSteps("killed"));
    const { pid } = await observer.waitForReport(({ job, step }) => job === id && step === "second");
    const [machine] = pool.machines();
    const killedAt = performance.now();
    process.kill(machine!.pid, "SIGKILL");
    const again = await observer.waitForReport(
      ({ job, step, epoch }) => job === id && step === "second" && epoch === "2",
    );
    recordFigure(
      "local: machine killed to its job at work on another",
      round(again.at - killedAt),
      "ms",
      "a lease of 10 minutes",
    );
    observer.openGate("killed");
    expect(await done(id)).toMatchObject({ state: "completed", crashes: 1 });
    expect(observer.reportsOf(id).filter(({ step }) => step === "first")).toHaveLength(1);
    expect(await repeatedSteps(client, observer, [id])).toEqual([]);
    const [lost] = await stillwake.attempts(id);
    expect(lost).toMatchObject({
      outcome: "lost",
      failure: { code: "MACHINE_DIED", message: expect.stringContaining("SIGKILL") },
    });
    expect(isAlive(pid)).toBe(false);
  });

  it("suspended past its lease and resumed: its writes are rejected", async () => {
    const pool = fleet({ args: ["--lease", "5s", "--log-level", "debug"] });
    orchestrator = await pool.startOrchestrator({ max: 2, grace: "60s", provider: withoutTimes(local(pool.options)) });
    const steps = [nothing("first"), turnstile("long", "suspended"), nothing("last")];
    const id = await enqueue(pool, steps);
    await observer.waitForReport(({ job, step }) => job === id && step === "long");
    const frozen = pool.processes().map(({ pid }) => pid);
    const [zombie] = pool.machines();
    for (const pid of frozen) process.kill(pid, "SIGSTOP");
    await waitFor(() => frozen.every((pid) => processState(pid) === "T"));
    // Its log is deleted with the machine; keep a link.
    const log = path.join(pool.dir, "zombie.log");
    fs.linkSync(path.join(pool.options.dir!, `${zombie!.variables.STILLWAKE_MACHINE}.log`), log);
    // An hour passes for everything except the suspended machine.
    await travel(client, "1h");
    onTestFinished(() => travel(client, "-1h"));
    orchestrator.poke();
    const leases = () =>
      client.query("select from stillwake.leases where worker = $1", [zombie!.variables.STILLWAKE_MACHINE]);
    await waitFor(async () => (await leases()).rowCount === 0, { timeout: TIME, what: "its lease to expire" });
    // Its slots no longer count: another machine resumes the job.
    orchestrator.poke();
    await observer.waitForReport(({ job, step, epoch }) => job === id && step === "long" && epoch === "2");
    observer.openGate("suspended-1");
    for (const pid of frozen) if (isAlive(pid)) process.kill(pid, "SIGCONT");
    await waitFor(() => !isAlive(zombie!.pid), { timeout: TIME, what: "the resumed machine to exit" });
    const refused = fs.readFileSync(log, "utf8").match(/"event":"write\.refused"/g) ?? [];
    expect(refused.length).toBeGreaterThan(0);
    expect(observer.reportsOf(id).filter(({ step }) => step === "last")).toEqual([]);
    expect((await stillwake.get(id)).state).toBe("running");
    observer.openGate("suspended-2");
    expect(await done(id)).toMatchObject({ state: "completed", crashes: 1 });
    const stale = await client.query(
      `select from stillwake.feed f where f.job_id = $1 and exists (select from stillwake.feed e where e.job_id = f.job_id and e.seq < f.seq and e.epoch > f.epoch)`,
      [id],
    );
    expect(stale.rowCount).toBe(0);
    expect(await repeatedSteps(client, observer, [id])).toEqual([]);
    recordFigure("writes of a suspended machine that were rejected", refused.length, "writes");
    recordFigure("stale writes accepted from a suspended machine", stale.rowCount ?? 0, "writes");
  });
});

describe("unneeded and broken machines", { timeout: 2 * TIME }, () => {
  it("a second machine started for one job finds nothing and exits 0", async () => {
    const pool = fleet();
    let second = "";
    const twice = withStart(local(pool.options), async (provider, order) => {
      second = `${order.name}99`;
      await provider.start({ ...order, name: second, env: { ...order.env, STILLWAKE_MACHINE: second } });
      return provider.start(order);
    });
    orchestrator = await pool.startOrchestrator({ provider: twice });
    const id = await enqueue(pool, threeSteps("double"));
    await observer.waitForReport(({ job, step }) => job === id && step === "second");
    const left = await waitFor(
      () => {
        const end = path.join(pool.options.dir!, `${second}.00000001.end`);
        return fs.existsSync(end) && JSON.parse(fs.readFileSync(end, "utf8"));
      },
      { timeout: TIME, what: "the second machine to exit" },
    );
    expect(left.exit).toEqual({ code: 0 });
    // The first one is still running its job.
    expect(pool.machines().map(({ variables }) => variables.STILLWAKE_MACHINE)).toEqual([second.slice(0, -2)]);
    observer.openGate("double");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    const seconds =
      (Date.parse(left.endedAt) - fs.statSync(path.join(pool.options.dir!, `${second}.00000001.pid`)).mtimeMs) / 1000;
    recordFigure("lifetime of the second of two machines for one job", round(seconds), "s");
  });

  it("machines that crash at start: at most 3 per job, then a pause with a reason; after a fix the job completes", async () => {
    const pool = fleet();
    const [log, mended] = [path.join(pool.dir, "starts"), path.join(pool.dir, "mended")];
    const shell = `echo x >>"${log}"; [ -e "${mended}" ] || { echo "cannot find its image" >&2; exit 9; }; exec "$@"`;
    const options = {
      ...pool.options,
      command: "/bin/sh",
      args: ["-c", shell, "sh", process.execPath, ...pool.options.args!],
    };
    orchestrator = await pool.startOrchestrator({ provider: withoutTimes(local(options)) });
    const id = await enqueue(pool, [{ name: "only", act: "nothing" }]);
    const starts = () => (fs.existsSync(log) ? fs.readFileSync(log, "utf8").trim().split("\n").length : 0);
    await waitFor(
      () =>
        pool.messages.some((line) =>
          /starts are paused for \d+ s: the last 3 machines ended without running a job/.test(line),
        ),
      { timeout: TIME },
    );
    for (let poke = 0; poke < 5; poke++) {
      orchestrator.poke();
      await orchestrator.settled();
    }
    expect(starts()).toBe(3);
    recordFigure("machines for a job whose machines crash at once", starts(), "machines");
    expect((await lives(pool)).map(({ exit }) => exit)).toEqual(
      [1, 2, 3].map(() => ({ code: 9, reason: "cannot find its image" })),
    );
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0 });
    fs.writeFileSync(mended, "");
    await travel(client, "11m");
    onTestFinished(() => travel(client, "-11m"));
    orchestrator.poke();
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
  });
});

describe("orchestrators", { timeout: 2 * TIME }, () => {
  it("killed and restarted: adopts the existing machines, starts no second one for a job, and leaves none behind", async () => {
    const pool = fleet();
    orchestrator = undefined;
    const first = await startProcess(pool);
    const id = await enqueue(pool, threeSteps("adopted"));
    first.child.kill("SIGUSR2");
    await observer.waitForReport(({ job, step }) => job === id && step === "second");
    const [machine] = pool.machines();
    first.child.kill("SIGKILL");
    await once(first.child, "exit");
    const second = await startProcess(pool);
    second.child.kill("SIGUSR2");
    const other = await enqueue(pool, [{ name: "only", act: "nothing" }]);
    second.child.kill("SIGUSR2");
    // One machine per job, and the first one is unchanged.
    expect(await done(other)).toMatchObject({ state: "completed" });
    expect(isAlive(machine!.pid)).toBe(true);
    observer.openGate("adopted");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    await pool.waitUntilGone();
    await closed(pool);
    expect((await lives(pool)).map(({ jobs }) => jobs)).toEqual([1, 1]);
    second.child.kill("SIGTERM");
    expect(await once(second.child, "exit")).toEqual([0, null]);
  });

  it("run with --once: the machine outlives the process and runs the job, and the next run closes its life", async () => {
    const pool = fleet();
    const settings = { max: 1, idleExit: "300ms", grace: "10s" };
    const config = path.join(pool.dir, "stillwake.config.mjs");
    fs.writeFileSync(
      config,
      `import { local } from ${JSON.stringify(path.join(ROOT, "dist/orchestrator/index.js"))};
const provider = local(${JSON.stringify(pool.options)});
export default { pools: { ${JSON.stringify(pool.pool)}: { ...${JSON.stringify(settings)}, provider } } };\n`,
    );
    const takeLook = async () => {
      const { PATH = "", HOME = "" } = process.env;
      const cli = path.join(ROOT, "dist/cli/index.js");
      const child = spawn(process.execPath, [cli, "orchestrator", "--once", "--config", config], {
        env: { PATH, HOME, STILLWAKE_DATABASE_URL: database.url },
        stdio: ["ignore", "pipe", "inherit"],
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      expect(await once(child, "exit")).toEqual([0, null]);
    };
    await takeLook();
    expect(pool.processes()).toEqual([]);
    const id = await enqueue(pool, threeSteps("one-look"));
    await takeLook();
    await observer.waitForReport(({ job, step }) => job === id && step === "second");
    expect(pool.machines()).toHaveLength(1);
    // A run in between finds it busy and leaves it alone.
    await takeLook();
    observer.openGate("one-look");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    await pool.waitUntilGone();
    expect(await lives(pool)).toMatchObject([{ jobs: 1, ended_at: null }]);
    await takeLook();
    expect(await lives(pool)).toMatchObject([{ jobs: 1, ended_at: expect.any(Date), left_reason: "idle" }]);
  });

  it.runIf(FULL)("killed and not restarted: its machines finish their jobs and exit", async () => {
    const pool = fleet();
    const only = await startProcess(pool);
    const id = await enqueue(pool, threeSteps("orphaned"));
    only.child.kill("SIGUSR2");
    await observer.waitForReport(({ job, step }) => job === id && step === "second");
    only.child.kill("SIGKILL");
    await once(only.child, "exit");
    observer.openGate("orphaned");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.waitUntilGone();
  });

  it.runIf(FULL)("stopped: its machines release their jobs, and the next orchestrator resumes them", async () => {
    const pool = fleet();
    orchestrator = await pool.startOrchestrator({ grace: "4s" });
    const id = await enqueue(pool, threeSteps("handed"));
    await observer.waitForReport(({ job, step }) => job === id && step === "second");
    await orchestrator.stop();
    expect(pool.processes()).toEqual([]);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", crashes: 0 });
    orchestrator = await pool.startOrchestrator();
    observer.openGate("handed");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    expect(observer.reportsOf(id).filter(({ step }) => step === "first")).toHaveLength(1);
    await pool.waitUntilGone();
  });

  it("two at a time start no more machines than one", async () => {
    const pool = fleet();
    const both = [await pool.startOrchestrator({ max: 2 }), await pool.startOrchestrator({ max: 2 })];
    orchestrator = undefined;
    let most = 0;
    const counting = setInterval(() => (most = Math.max(most, pool.machines().length)), 50);
    onTestFinished(() => clearInterval(counting));
    const ids = await Promise.all([1, 2, 3, 4].map((n) => enqueue(pool, threeSteps(n === 1 ? "pair" : "pair-2"))));
    for (const one of [...both, ...both]) one.poke();
    await waitFor(() => ids.filter((id) => observer.reportsOf(id).some(({ step }) => step === "second")).length === 2, {
      timeout: TIME,
    });
    for (const one of both) one.poke();
    for (const one of both) await one.settled();
    observer.openGate("pair");
    observer.openGate("pair-2");
    for (const id of ids) expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.waitUntilGone();
    expect(most).toBe(2);
    await closed(pool);
    const all = await lives(pool);
    expect(all.length).toBeLessThanOrEqual(4);
    expect(all.reduce((sum, { jobs }) => sum + jobs, 0)).toBe(4);
  });
});

describe("cold start", { timeout: 5 * TIME }, () => {
  it("measures the time from a poke to the claim, and the part of Node's startup", async () => {
    const pool = fleet();
    orchestrator = await pool.startOrchestrator({ idleExit: "50ms" });
    const times: number[] = [];
    const upTimes: number[] = [];
    for (let n = 0; n < (FULL ? 30 : 3); n++) {
      await pool.waitUntilGone();
      await closed(pool);
      const began = Date.now();
      const id = await enqueue(pool, [{ name: "only", act: "nothing" }]);
      await done(id);
      const { rows } = await client.query(
        `select extract(epoch from j.claimed_at)::float * 1000 as claimed, extract(epoch from l.started_at)::float * 1000 as started
        from stillwake.machine_jobs j join stillwake.machine_lives l on l.id = j.life where j.job_id = $1`,
        [id],
      );
      times.push(rows[0].claimed - began);
      upTimes.push(rows[0].started - began);
    }
    const node: number[] = [];
    for (let n = 0; n < 5; n++) {
      const began = performance.now();
      await once(spawn(process.execPath, ["-e", "0"]), "exit");
      node.push(performance.now() - began);
    }
    const { p50 } = recordTimes("local: poke to claim, cold", times);
    recordTimes("local: poke to process", upTimes);
    const bare = node.toSorted((a, b) => a - b)[2]!;
    recordFigure("local: node -e 0", round(bare), "ms");
    recordFigure(
      "local: share of two starts of Node (keeper, runner) in poke to claim",
      Math.round((200 * bare) / p50),
      "%",
    );
    expect(p50).toBeLessThan(15_000);
  });
});

async function startProcess(pool: LocalFleet): Promise<{ child: ChildProcess }> {
  const what = {
    url: database.url,
    pool: pool.pool,
    options: pool.options,
    settings: { idleExit: "300ms", grace: "10s", max: 3 },
  };
  const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/orchestrator.mjs"), JSON.stringify(what)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let text = "";
  child.stdout!.on("data", (data) => (text += data));
  await waitFor(() => text.includes("fleet "), { timeout: TIME, what: "the orchestrator's process" });
  return { child };
}
