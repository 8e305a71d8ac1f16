// Demand to machines and back, with real ones: processes of this computer that are counted from outside. What an orchestrator does with a provider's API is in
// other files; here is what people see: work comes, machines come, the work is done, the machines are gone.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline, type Stillwake } from "../../src/index.ts";
import { local, type Orchestrator } from "../../src/orchestrator/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import {
  connect,
  FULL,
  isAlive,
  leasesCount,
  recordTimes,
  repeatedSteps,
  round,
  stateOf,
} from "../support/processes/aftermath.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { type LocalFleet, localFleet, startingBy, timeless } from "../support/processes/local-fleet.ts";
import { startWitness, type Witness } from "../support/processes/witness.ts";

const database = await freshDatabase();
const script = pipeline("script", { retry: { attempts: 10, crashes: 1000, initial: "10ms", max: "100ms" } });
const TIME = 60_000;
let stillwake: Stillwake;
let witness: Witness;
let client: pg.Client;
let pools = 0;
let orchestrator: Orchestrator | undefined;

beforeAll(async () => {
  buildPackage();
  stillwake = createStillwake({ url: database.url, poke: () => orchestrator?.poke() });
  witness = await startWitness();
  client = await connect(database.url);
  await leasesCount(client, "2s");
});
afterAll(async () => {
  await stillwake.close();
  await witness.close();
  await client.end();
});

/** A pool of its own for a test. */
function fleet(more?: Parameters<typeof localFleet>[2]): LocalFleet {
  const made = localFleet(database.url, `flow-${++pools}`, more);
  onTestFinished(() => made.close());
  return made;
}

const enqueue = async ({ pool }: LocalFleet, steps: object[]) =>
  (await stillwake.enqueue(script, { witness: witness.url, steps }, { pool })).id;
const gated = (gate: string) => [
  { name: "first", act: "nothing" },
  { name: "second", act: "gate", gate },
  { name: "last", act: "nothing" },
];
const done = (id: string) => stillwake.wait(id, { timeout: "60s" });
const lives = async ({ pool }: LocalFleet) =>
  (
    await client.query(
      `select l.machine, l.exit, l.ended_at, l.arrived_at, l.left_reason, (select count(*)::int from stillwake.machine_jobs j where j.life = l.id) as jobs,
        extract(epoch from coalesce(l.ended_at, stillwake.now()) - l.started_at)::float as seconds, l.busy_seconds::float as busy
      from stillwake.machine_lives l where l.pool = $1 order by l.asked_at`,
      [pool],
    )
  ).rows as {
    machine: string;
    exit: { code?: number; signal?: string } | null;
    ended_at: Date | null;
    arrived_at: Date | null;
    left_reason: string | null;
    jobs: number;
    seconds: number;
    busy: number | null;
  }[];
const closed = (of: LocalFleet) =>
  waitFor(async () => (await lives(of)).every(({ ended_at }) => ended_at !== null), {
    timeout: TIME,
    what: "all lives to be closed",
  });

describe("demand", { timeout: 2 * TIME }, () => {
  it("starts a machine for a job, which does it and is gone after its idle time", async () => {
    const pool = fleet();
    orchestrator = await pool.orchestrate();
    await orchestrator.settled();
    expect(pool.processes()).toEqual([]);
    const id = await enqueue(pool, gated("flow"));
    await witness.see(({ job, step }) => job === id && step === "second");
    const [machine, ...others] = pool.machines();
    expect(others).toEqual([]);
    expect(machine!.variables).toMatchObject({ STILLWAKE_POOL: pool.pool, STILLWAKE_SLOTS: "1" });
    witness.open("flow");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.quiet();
    await closed(pool);
    expect(await lives(pool)).toMatchObject([
      { machine: machine!.variables.STILLWAKE_MACHINE, jobs: 1, exit: { code: 0 }, left_reason: "idle" },
    ]);
    const attempts = await stillwake.attempts(id);
    expect(attempts.map(({ worker }) => worker)).toEqual([machine!.variables.STILLWAKE_MACHINE]);
  });

  it("has a machine for each of several jobs; those beyond the most wait, and are done by the ones that are there", async () => {
    const pool = fleet();
    orchestrator = await pool.orchestrate({ max: 3 });
    const ids = await Promise.all([1, 2, 3, 4, 5].map(() => enqueue(pool, gated("several"))));
    const begun = () =>
      new Set(witness.sights.filter(({ job, step }) => ids.includes(job) && step === "second").map(({ job }) => job));
    await waitFor(() => begun().size === 3, { timeout: TIME });
    await orchestrator.settled();
    const names = pool.machines().map(({ variables }) => variables.STILLWAKE_MACHINE);
    expect(new Set(names).size).toBe(3);
    expect(names).toHaveLength(3);
    const workers = await client.query("select distinct worker from stillwake.leases where worker = any ($1)", [names]);
    expect(workers.rowCount).toBe(3);
    expect(pool.said.join("\n")).toContain("as many machines as may be (3)");
    witness.open("several");
    for (const id of ids) expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.quiet();
    await closed(pool);
    expect((await lives(pool)).map(({ jobs }) => jobs).reduce((sum, jobs) => sum + jobs)).toBe(5);
    expect(await lives(pool)).toHaveLength(3);
  });
});

describe("a machine that is killed", { timeout: 2 * TIME }, () => {
  it("before it claims: the job waits and is done by the next", async () => {
    const pool = fleet();
    orchestrator = await pool.orchestrate();
    const id = await enqueue(pool, [{ name: "only", act: "nothing" }]);
    const [first] = await waitFor(() => pool.machines().length > 0 && pool.machines());
    process.kill(first!.pid, "SIGKILL");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    await pool.quiet();
    await closed(pool);
    const all = await lives(pool);
    expect(all.at(-1)).toMatchObject({ jobs: 1, exit: { code: 0 } });
    // Killed while it was a shell yet it was no machine, and is forgotten.
    expect(all.slice(0, -1)).toMatchObject(all.slice(0, -1).map(() => ({ jobs: 0, exit: { signal: "SIGKILL" } })));
    expect(all.length).toBeLessThanOrEqual(2);
  });

  it("during the job: it goes on from its checkpoint on another machine, long before the lease is over", async () => {
    const pool = fleet({ args: ["--lease", "10m"] });
    orchestrator = await pool.orchestrate();
    const id = await enqueue(pool, gated("killed"));
    const { pid } = await witness.see(({ job, step }) => job === id && step === "second");
    const [machine] = pool.machines();
    const killedAt = performance.now();
    process.kill(machine!.pid, "SIGKILL");
    const again = await witness.see(({ job, step, epoch }) => job === id && step === "second" && epoch === "2");
    recordFigure(
      "local: machine killed to its job at work on another",
      round(again.at - killedAt),
      "ms",
      "a lease of 10 minutes",
    );
    witness.open("killed");
    expect(await done(id)).toMatchObject({ state: "completed", crashes: 1 });
    expect(witness.of(id).filter(({ step }) => step === "first")).toHaveLength(1);
    expect(await repeatedSteps(client, witness, [id])).toEqual([]);
    const [lost] = await stillwake.attempts(id);
    expect(lost).toMatchObject({
      outcome: "lost",
      failure: { code: "MACHINE_DIED", message: expect.stringContaining("SIGKILL") },
    });
    expect(isAlive(pid)).toBe(false);
  });

  it("T46: suspended past its lease and resumed: nothing that it still writes is accepted", async () => {
    const pool = fleet({ args: ["--lease", "5s", "--log-level", "debug"] });
    orchestrator = await pool.orchestrate({ max: 2, grace: "60s", provider: timeless(local(pool.options)) });
    const steps = [
      { name: "first", act: "nothing" },
      { name: "long", act: "turnstile", gate: "suspended" },
      { name: "last", act: "nothing" },
    ];
    const id = await enqueue(pool, steps);
    await witness.see(({ job, step }) => job === id && step === "long");
    const frozen = pool.processes().map(({ pid }) => pid);
    const [zombie] = pool.machines();
    for (const pid of frozen) process.kill(pid, "SIGSTOP");
    await waitFor(() => frozen.every((pid) => stateOf(pid) === "T"));
    // Its log goes when it is removed; under this name it stays.
    const log = path.join(pool.dir, "zombie.log");
    fs.linkSync(path.join(pool.options.dir!, `${zombie!.variables.STILLWAKE_MACHINE}.log`), log);
    // For everybody else an hour goes by; the clock of the machine stands still.
    await travel(client, "1h");
    onTestFinished(() => travel(client, "-1h"));
    orchestrator.poke();
    const held = () =>
      client.query("select from stillwake.leases where worker = $1", [zombie!.variables.STILLWAKE_MACHINE]);
    await waitFor(async () => (await held()).rowCount === 0, { timeout: TIME, what: "its lease to be over" });
    // Nobody counts on it any more: another machine goes on with the job.
    orchestrator.poke();
    await witness.see(({ job, step, epoch }) => job === id && step === "long" && epoch === "2");
    witness.open("suspended-1");
    for (const pid of frozen) if (isAlive(pid)) process.kill(pid, "SIGCONT");
    await waitFor(() => !isAlive(zombie!.pid), { timeout: TIME, what: "the resumed machine to leave" });
    const refused = fs.readFileSync(log, "utf8").match(/"event":"write\.refused"/g) ?? [];
    expect(refused.length).toBeGreaterThan(0);
    expect(witness.of(id).filter(({ step }) => step === "last")).toEqual([]);
    expect((await stillwake.get(id)).state).toBe("running");
    witness.open("suspended-2");
    expect(await done(id)).toMatchObject({ state: "completed", crashes: 1 });
    const stale = await client.query(
      `select from stillwake.feed f where f.job_id = $1 and exists (select from stillwake.feed e where e.job_id = f.job_id and e.seq < f.seq and e.epoch > f.epoch)`,
      [id],
    );
    expect(stale.rowCount).toBe(0);
    expect(await repeatedSteps(client, witness, [id])).toEqual([]);
    recordFigure("T46: writes of a suspended machine refused (shots)", refused.length, "writes");
    recordFigure("T46: stale writes accepted from a suspended machine", stale.rowCount ?? 0, "writes");
  });
});

describe("machines that are of no use", { timeout: 2 * TIME }, () => {
  it("T43: of two that were started for one job the second finds nothing and exits 0", async () => {
    const pool = fleet();
    let second = "";
    const twice = startingBy(local(pool.options), async (provider, order) => {
      second = `${order.name}99`;
      await provider.start({ ...order, name: second, env: { ...order.env, STILLWAKE_MACHINE: second } });
      return provider.start(order);
    });
    orchestrator = await pool.orchestrate({ provider: twice });
    const id = await enqueue(pool, gated("double"));
    await witness.see(({ job, step }) => job === id && step === "second");
    const left = await waitFor(
      () => {
        const end = path.join(pool.options.dir!, `${second}.00000001.end`);
        return fs.existsSync(end) && JSON.parse(fs.readFileSync(end, "utf8"));
      },
      { timeout: TIME, what: "the second machine to leave" },
    );
    expect(left.exit).toEqual({ code: 0 });
    // The first is at work all the while.
    expect(pool.machines().map(({ variables }) => variables.STILLWAKE_MACHINE)).toEqual([second.slice(0, -2)]);
    witness.open("double");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    const seconds =
      (Date.parse(left.endedAt) - fs.statSync(path.join(pool.options.dir!, `${second}.00000001.pid`)).mtimeMs) / 1000;
    recordFigure("T43: life of the second of two machines for one job", round(seconds), "s");
  });

  it("T45: that start and crash: at most 3 for a job, then a pause with a reason, and once it is mended the job is done", async () => {
    const pool = fleet();
    const [log, mended] = [path.join(pool.dir, "starts"), path.join(pool.dir, "mended")];
    const shell = `echo x >>"${log}"; [ -e "${mended}" ] || { echo "cannot find its image" >&2; exit 9; }; exec "$@"`;
    const options = {
      ...pool.options,
      command: "/bin/sh",
      args: ["-c", shell, "sh", process.execPath, ...pool.options.args!],
    };
    orchestrator = await pool.orchestrate({ provider: timeless(local(options)) });
    const id = await enqueue(pool, [{ name: "only", act: "nothing" }]);
    const starts = () => (fs.existsSync(log) ? fs.readFileSync(log, "utf8").trim().split("\n").length : 0);
    await waitFor(
      () => pool.said.some((line) => /nothing is started for \d+ s: the last 3 machines were of no use/.test(line)),
      { timeout: TIME },
    );
    for (let poke = 0; poke < 5; poke++) {
      orchestrator.poke();
      await orchestrator.settled();
    }
    expect(starts()).toBe(3);
    recordFigure("T45: machines for a job whose machines crash at once", starts(), "machines");
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
  it("killed in the middle and started again: adopts what is there, starts no second machine for the job, leaves none over", async () => {
    const pool = fleet();
    orchestrator = undefined;
    const first = await startProcess(pool);
    const id = await enqueue(pool, gated("adopted"));
    first.child.kill("SIGUSR2");
    await witness.see(({ job, step }) => job === id && step === "second");
    const [machine] = pool.machines();
    first.child.kill("SIGKILL");
    await once(first.child, "exit");
    const second = await startProcess(pool);
    second.child.kill("SIGUSR2");
    const other = await enqueue(pool, [{ name: "only", act: "nothing" }]);
    second.child.kill("SIGUSR2");
    // There is one for each, and the first is where it was.
    expect(await done(other)).toMatchObject({ state: "completed" });
    expect(isAlive(machine!.pid)).toBe(true);
    witness.open("adopted");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    await pool.quiet();
    await closed(pool);
    expect((await lives(pool)).map(({ jobs }) => jobs)).toEqual([1, 1]);
    second.child.kill("SIGTERM");
    expect(await once(second.child, "exit")).toEqual([0, null]);
  });

  it("that take one look and end leave what they have started: it does the job, and the next look closes its life", async () => {
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
    const id = await enqueue(pool, gated("one-look"));
    await takeLook();
    await witness.see(({ job, step }) => job === id && step === "second");
    expect(pool.machines()).toHaveLength(1);
    // A look in the middle finds it at work and lets it be.
    await takeLook();
    witness.open("one-look");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    await pool.quiet();
    expect(await lives(pool)).toMatchObject([{ jobs: 1, ended_at: null }]);
    await takeLook();
    expect(await lives(pool)).toMatchObject([{ jobs: 1, ended_at: expect.any(Date), left_reason: "idle" }]);
  });

  it.runIf(FULL)("killed for good: its machines finish what they have and leave by themselves", async () => {
    const pool = fleet();
    const only = await startProcess(pool);
    const id = await enqueue(pool, gated("orphaned"));
    only.child.kill("SIGUSR2");
    await witness.see(({ job, step }) => job === id && step === "second");
    only.child.kill("SIGKILL");
    await once(only.child, "exit");
    witness.open("orphaned");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.quiet();
  });

  it.runIf(FULL)("told to stop: its machines hand back their jobs, and the next one goes on with them", async () => {
    const pool = fleet();
    orchestrator = await pool.orchestrate({ grace: "4s" });
    const id = await enqueue(pool, gated("handed"));
    await witness.see(({ job, step }) => job === id && step === "second");
    await orchestrator.stop();
    expect(pool.processes()).toEqual([]);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", crashes: 0 });
    orchestrator = await pool.orchestrate();
    witness.open("handed");
    expect(await done(id)).toMatchObject({ state: "completed", attempt: 1, crashes: 0 });
    expect(witness.of(id).filter(({ step }) => step === "first")).toHaveLength(1);
    await pool.quiet();
  });

  it("two at once start no more machines than one would", async () => {
    const pool = fleet();
    const both = [await pool.orchestrate({ max: 2 }), await pool.orchestrate({ max: 2 })];
    orchestrator = undefined;
    let most = 0;
    const counting = setInterval(() => (most = Math.max(most, pool.machines().length)), 50);
    onTestFinished(() => clearInterval(counting));
    const ids = await Promise.all([1, 2, 3, 4].map((n) => enqueue(pool, gated(n === 1 ? "pair" : "pair-2"))));
    for (const one of [...both, ...both]) one.poke();
    await waitFor(() => ids.filter((id) => witness.of(id).some(({ step }) => step === "second")).length === 2, {
      timeout: TIME,
    });
    for (const one of both) one.poke();
    for (const one of both) await one.settled();
    witness.open("pair");
    witness.open("pair-2");
    for (const id of ids) expect(await done(id)).toMatchObject({ state: "completed", attempt: 1 });
    await pool.quiet();
    expect(most).toBe(2);
    await closed(pool);
    const all = await lives(pool);
    expect(all.length).toBeLessThanOrEqual(4);
    expect(all.reduce((sum, { jobs }) => sum + jobs, 0)).toBe(4);
  });
});

describe("cold", { timeout: 5 * TIME }, () => {
  it("a poke becomes a claim: how long that takes, and how much of it is Node itself", async () => {
    const pool = fleet();
    orchestrator = await pool.orchestrate({ idleExit: "50ms" });
    const times: number[] = [];
    const upTimes: number[] = [];
    for (let n = 0; n < (FULL ? 30 : 3); n++) {
      await pool.quiet();
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
