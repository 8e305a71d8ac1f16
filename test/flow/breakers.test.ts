// Breakers in SQL: which jobs may run, which wait, which probe.
import { describe, expect, it } from "vitest";
import { breaker, pipeline } from "../../src/index.ts";
import { travel } from "../../src/testing/index.ts";
import { claim, type HeldJob, type Outcome, settle } from "../model/actors.ts";
import { connectedDatabase } from "../support/database/connections.ts";

const { stillwake, client: sql } = await connectedDatabase();
let number = 0;

async function own(needed = true) {
  const name = `broken-${number++}`;
  const llm = breaker(name, { failures: 3, pause: "30s", growth: 2, max: "100s" });
  const contract = pipeline(name, { pool: name, needs: needed ? [llm] : [] });
  await stillwake.register(contract);
  if (!needed) await sql.query("select stillwake.register_breaker($1, $2)", [name, JSON.stringify(llm.settings)]);
  return {
    name,
    contract,
    claim: (limit = 1) => claim(sql, "w", [name], { pool: name, limit, lease: "15s" }),
    ask: async ({ job, epoch, lease }: HeldJob) =>
      (await sql.query("select * from stillwake.check_breaker($1, $2, $3, $4)", [name, job, epoch, lease])).rows[0],
    tell: async ({ job, lease }: HeldJob, ok: boolean, reason?: string) => {
      const values = [name, job, lease, ok, reason];
      return (await sql.query("select * from stillwake.report_breaker_result($1, $2, $3, $4, $5)", values)).rows[0];
    },
    settle: (held: HeldJob, outcome: object) => settle(sql, held, outcome as Outcome),
    state: async () => (await stillwake.flow.breakers()).find((breaker) => breaker.name === name)!,
  };
}

describe("a breaker", () => {
  it("opens after N consecutive failures; a success in between resets the count", async () => {
    const { contract, claim, ask, tell, state } = await own();
    await stillwake.enqueue(contract, 1);
    const [held] = await claim();
    expect((await ask(held!)).resume_at).toBeNull();
    await tell(held!, false, "500");
    await tell(held!, false, "500");
    await tell(held!, true);
    expect(await state()).toMatchObject({ state: "closed", failures: 0 });
    for (const reason of ["500", "501"]) expect((await tell(held!, false, reason)).resume_at).toBeNull();
    const opened = await tell(held!, false, "502 Bad Gateway");
    expect(opened.resume_at).toBeInstanceOf(Date);
    expect(opened.reason).toContain("502 Bad Gateway");
    expect(await state()).toMatchObject({ state: "open", reason: "502 Bad Gateway", probes: 0 });
  });

  it("shows every waiting job of the pipelines that need it as paused, with reason and time, without updating them", async () => {
    const { contract, claim, tell, settle, name } = await own();
    const jobs = await stillwake.enqueueMany(contract, new Array(5).fill(0));
    const [held] = await claim();
    for (let count = 0; count < 3; count++) await tell(held!, false, "no answer");
    expect(await claim(10)).toEqual([]);
    const job = await stillwake.get(jobs[4]!.id);
    expect(job).toMatchObject({ state: "paused", pause: { breaker: name, reason: "no answer" } });
    expect(Date.parse(job.pause!.resume_at!)).toBeGreaterThan(Date.now());
    expect((await stillwake.list({ pool: name, state: "paused" })).jobs).toHaveLength(4);
    expect(await settle(held!, { outcome: "paused", reason: "x", breaker: name })).toBe("queued");
    expect(await stillwake.get(held!.job)).toMatchObject({ state: "paused", attempt: 0 });
    const { rows } = await sql.query("select claimable, next_due from stillwake.demand(array[$1])", [name]);
    expect(rows[0].claimable).toBe(0);
    expect(rows[0].next_due.getTime()).toBeGreaterThan(Date.now() + 10_000);
  });

  it("lets one job probe at the resume time; a failure extends the pause, a success resumes all", async () => {
    const { contract, claim, tell, settle, state, name } = await own();
    await stillwake.enqueueMany(contract, new Array(5).fill(0));
    const [held] = await claim();
    for (let count = 0; count < 3; count++) await tell(held!, false, "no answer");
    await settle(held!, { outcome: "paused", reason: "x", breaker: name });
    await travel(sql, "31s");
    const probes = await claim(10);
    expect(probes).toHaveLength(1);
    expect(await claim(10)).toEqual([]);
    await tell(probes[0]!, false, "still none");
    await settle(probes[0]!, { outcome: "paused", reason: "x", breaker: name });
    expect(await state()).toMatchObject({ state: "open", probes: 1 });
    await travel(sql, "31s");
    expect(await claim(10)).toEqual([]);
    await travel(sql, "31s");
    const [second] = await claim(10);
    expect((await tell(second!, true)).resume_at).toBeNull();
    expect(await state()).toMatchObject({ state: "closed", failures: 0, probes: 0 });
    expect(await claim(10)).toHaveLength(4);
  });

  it("lets another job probe if the first has died", async () => {
    const { contract, claim, tell, settle, name } = await own();
    await stillwake.enqueueMany(contract, new Array(3).fill(0));
    const [held] = await claim();
    for (let count = 0; count < 3; count++) await tell(held!, false, "no answer");
    await settle(held!, { outcome: "paused", reason: "x", breaker: name });
    await travel(sql, "31s");
    const [probe] = await claim(10);
    await settle(probe!, { outcome: "lost", failure: {} });
    expect(await claim(10)).toHaveLength(1);
  });

  it("pauses jobs of pipelines that do not declare it one by one, and resumes them when it closes", async () => {
    const { contract, claim, ask, tell, settle, name } = await own(false);
    await stillwake.enqueueMany(contract, new Array(3).fill(0));
    const [one, two] = await claim(2);
    for (let count = 0; count < 3; count++) await tell(one!, false, "no answer");
    expect((await ask(two!)).resume_at).toBeInstanceOf(Date);
    expect(await settle(two!, { outcome: "paused", reason: "no answer", resume_in: "30 seconds", breaker: name })).toBe(
      "paused",
    );
    expect(await stillwake.get(two!.job)).toMatchObject({ state: "paused", attempt: 0, pause: { breaker: name } });
    await stillwake.flow.close(name);
    expect(await stillwake.get(two!.job)).toMatchObject({ state: "queued", pause: null });
    expect((await claim(10)).map(({ job }) => job)).toContain(two!.job);
  });

  it("can be opened and closed by an operator, and a success does not close one that was opened without an end", async () => {
    const { contract, claim, tell, state, name } = await own();
    await stillwake.enqueueMany(contract, [1, 2]);
    const [held] = await claim();
    await stillwake.flow.open(name, { reason: "maintenance", by: "ada" });
    expect(await state()).toMatchObject({ state: "open", openedBy: "ada", reason: "maintenance", resumeAt: null });
    await tell(held!, true);
    expect(await claim()).toEqual([]);
    const { rows } = await sql.query("select note from stillwake.watchdog() where act = 'skipped'");
    expect(rows.map(({ note }) => note)).toContainEqual(
      expect.stringContaining(`${name} is open until it is closed by hand`),
    );
    await stillwake.flow.close(name);
    expect(await claim()).toHaveLength(1);
  });
});
