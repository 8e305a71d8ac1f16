// The client reads and controls jobs: get, list, wait, cancel, retry, pause, resume.
import { beforeAll, describe, expect, it } from "vitest";
import { settleAndClaim } from "../../src/db/calls/worker.ts";
import {
  InvalidInput,
  type Job,
  JobFailed,
  JobNotFound,
  type ListOptions,
  NotAllowed,
  pipeline,
  type StillwakeError,
  UnknownPool,
} from "../../src/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";

const { stillwake, client: sql } = await connectedDatabase();
const report = pipeline("report", { pool: "reports", retry: { attempts: 1 } });
const listed = pipeline("listed", { pool: "shelf" });
const unknownId = "00000000-0000-7000-8000-000000000000";

beforeAll(() => stillwake.register(report, listed));

describe("get", () => {
  it("returns times as dates and all other fields by name", async () => {
    const { id } = await stillwake.enqueue(report, { month: "2030-01" }, { tenant: "acme" });
    const job = await stillwake.get(id);
    expect(job.createdAt).toBeInstanceOf(Date);
    expect(Math.abs(job.createdAt.getTime() - Date.now())).toBeLessThan(60_000);
    expect(job).toMatchObject({ startedAt: null, endedAt: null, tenant: "acme", worker: null });
    expect(await stillwake.get(id.toUpperCase())).toEqual(job);
  });

  it("throws JobNotFound with a remedy for an unknown id", async () => {
    const refused = await caught(stillwake.get(unknownId));
    expect(refused).toBeInstanceOf(JobNotFound);
    expect(refused).toMatchObject({ code: "JOB_NOT_FOUND", field: "id" });
    expect(refused.message).toContain("never enqueued here, or it was pruned after its retention");
  });

  const verbs = ["get", "wait", "cancel", "retry", "pause", "resume"] as const;
  const badIds = ["", "abc", `${unknownId}0`, `${unknownId}' or true --`, 5, null, undefined, {}];
  it.each(verbs)("and every other method (%s) rejects an invalid id", async (verb) => {
    for (const id of badIds.filter((bad) => typeof bad === "string" || (verb !== "pause" && verb !== "resume"))) {
      expect(await caught(stillwake[verb](id as never))).toMatchObject({ code: "INVALID_INPUT", field: "id" });
    }
  });

  it.each(["pause", "resume"] as const)("%s rejects a target that is neither an id nor a pool", async (verb) => {
    for (const target of [null, undefined, 5, {}, { pool: 5 }, { poool: "reports" }]) {
      expect(await caught(stillwake[verb](target as never))).toBeInstanceOf(InvalidInput);
    }
  });
});

describe("list", () => {
  let all: string[];
  beforeAll(async () => {
    const some = await stillwake.enqueueMany(listed, [1, 2, 3, 4, 5], {
      tenant: "a",
      key: "k",
      onConflict: "wait",
    });
    const more = await stillwake.enqueueMany(listed, [6, 7, 8], { tenant: "b" });
    all = [...some, ...more].map(({ id }) => id).reverse();
    await stillwake.cancel(all[0]!);
    await stillwake.cancel(all[4]!);
  });

  it.each([1, 2, 3, 7, 8, 9, 200])("returns every job once, newest first, in pages of %i", async (limit) => {
    const seen: Job[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await stillwake.list({ pipeline: "listed", limit, ...(cursor && { cursor }) });
      expect(page.jobs.length).toBeLessThanOrEqual(limit);
      seen.push(...page.jobs);
      cursor = page.cursor;
    } while (cursor);
    expect(seen.map(({ id }) => id)).toEqual(all);
  });

  it("repeats and skips nothing when jobs arrive between two pages", async () => {
    const first = await stillwake.list({ pool: "shelf", limit: 4 });
    const late = await stillwake.enqueue(listed, "late");
    const second = await stillwake.list({ pool: "shelf", limit: 200, cursor: first.cursor! });
    expect([...first.jobs, ...second.jobs].map(({ id }) => id)).toEqual(all);
    await sql.query("delete from stillwake.live_jobs where id = $1", [late.id]);
  });

  it.each<[filter: ListOptions, count: number]>([
    [{}, 50],
    [{ pipeline: "listed" }, 8],
    [{ pool: "shelf" }, 8],
    [{ pool: "shelf", state: "cancelled" }, 2],
    [{ pool: "shelf", state: "queued", tenant: "b" }, 2],
    [{ key: "k" }, 5],
    [{ tenant: "a", key: "k", pipeline: "listed", pool: "shelf", state: "queued" }, 4],
    [{ tenant: "nobody" }, 0],
    [{ pipeline: "listed", state: undefined, tenant: undefined } as never, 8],
  ])("%j finds %i", async (filter, count) => {
    const { jobs } = await stillwake.list(filter);
    if (count < 50) expect(jobs).toHaveLength(count);
    for (const [name, value] of Object.entries(filter))
      if (value) expect(jobs).toSatisfy((found: Job[]) => found.every((job) => job[name as keyof Job] === value));
  });

  it.each(["' or '1'='1", "x'; drop table stillwake.live_jobs; --", "$1", "%", "_", "\\", "null", '"', "{}"])(
    "treats %j as a plain value",
    async (value) => {
      await stillwake.enqueue(report, null, { tenant: value, key: value });
      const found = await stillwake.list({ tenant: value, key: value });
      expect(found.jobs.map((job) => job.tenant)).toEqual([value]);
      expect((await stillwake.list({ pipeline: value })).jobs).toEqual([]);
      expect((await stillwake.list({ pool: value })).jobs).toEqual([]);
    },
  );

  it.each<[options: object, field: string]>([
    [{ limit: 0 }, "limit"],
    [{ limit: 201 }, "limit"],
    [{ limit: 1.5 }, "limit"],
    [{ limit: "50" }, "limit"],
    [{ limit: Number.NaN }, "limit"],
    [{ state: "done" }, "state"],
    [{ state: "" }, "state"],
    [{ state: ["queued"] }, "state"],
    [{ id: unknownId }, "id"],
    [{ "tenant = '' or tenant": "a" }, "tenant = '' or tenant"],
    [{ tenant: 5 }, "tenant"],
    [{ tenant: null }, "tenant"],
    [{ tenant: "x".repeat(501) }, "tenant"],
    [{ tenant: "nul\u0000" }, "tenant"],
    [{ cursor: "" }, "cursor"],
    [{ cursor: "abc" }, "cursor"],
    [{ cursor: "!".repeat(22) }, "cursor"],
    [{ cursor: "a".repeat(10_000) }, "cursor"],
    [{ cursor: unknownId }, "cursor"],
    [{ cursor: null }, "cursor"],
    [{ cursor: 5 }, "cursor"],
  ])("refuses %j", async (options, field) => {
    const refused = await caught(stillwake.list(options as never));
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused).toMatchObject({ field, remedy: expect.any(String) });
  });
});

describe("wait", () => {
  it("resolves with the job once it has completed", async () => {
    const { id } = await stillwake.enqueue(report, null, { priority: 5 });
    const waiting = stillwake.wait(id);
    await settleFirst({ outcome: "completed", output: { rows: 7 } });
    expect(await waiting).toMatchObject({ id, state: "completed", output: { rows: 7 }, attempt: 1 });
  });

  it("throws JobFailed with the stored failure if the job failed", async () => {
    const { id } = await stillwake.enqueue(report, null, { priority: 5 });
    const waiting = caught(stillwake.wait(id));
    await settleFirst({ outcome: "failed", failure: { message: "no such month", code: "NO_MONTH" }, fatal: true });
    const failed = await waiting;
    expect(failed).toBeInstanceOf(JobFailed);
    expect(failed).toMatchObject({ jobId: id, state: "failed", failure: { code: "NO_MONTH" } });
    expect(failed.message).toBe(`Job ${id} failed: no such month`);
  });

  it("throws JobFailed if the job was cancelled", async () => {
    const { id } = await stillwake.enqueue(report, null);
    await stillwake.cancel(id);
    await expect(stillwake.wait(id)).rejects.toMatchObject({ code: "JOB_FAILED", state: "cancelled" });
  });

  it("throws after its timeout, not before, with the job's state", async () => {
    const { id } = await stillwake.enqueue(report, null);
    const startedAt = performance.now();
    const gaveUp = await caught(stillwake.wait(id, { timeout: "150ms" }));
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(149);
    expect(gaveUp).toMatchObject({ code: "TIMEOUT", field: "timeout" });
    expect(gaveUp.message).toContain(`Job ${id} is still queued after 150ms`);
    expect(await caught(stillwake.wait(id, { timeout: "soon" as "1s" }))).toBeInstanceOf(InvalidInput);
    expect(await caught(stillwake.wait(id, { timeout: "" as "1s" }))).toBeInstanceOf(InvalidInput);
  });

  it("rejects at once with the signal's reason", async () => {
    const { id } = await stillwake.enqueue(report, null);
    const aborting = new AbortController();
    const waiting = caught(stillwake.wait(id, { signal: aborting.signal }));
    await stillwake.get(id);
    aborting.abort(new Error("the visitor left"));
    expect((await waiting).message).toBe("the visitor left");
    expect((await caught(stillwake.wait(id, { signal: aborting.signal }))).message).toBe("the visitor left");
    expect((await caught(stillwake.wait(id, { signal: AbortSignal.timeout(30) }))).name).toBe("TimeoutError");
  });
});

describe("a job", () => {
  it("that waits is cancelled at once, with actor and reason; a second cancel changes nothing", async () => {
    const { id } = await stillwake.enqueue(report, null);
    expect(await stillwake.cancel(id, { reason: "not needed", by: "ann" })).toBe("cancelled");
    expect(await stillwake.cancel(id, { reason: "again", by: "bob" })).toBe("cancelled");
    expect(await stillwake.get(id)).toMatchObject({ state: "cancelled", cancel: { reason: "not needed", by: "ann" } });
  });

  it("that runs gets a request to stop", async () => {
    const { id } = await stillwake.enqueue(report, null, { priority: 6 });
    const { job_id, epoch, lease_id } = await claimFirst();
    expect(job_id).toBe(id);
    expect(await stillwake.cancel(id)).toBe("running");
    const heartbeat = await sql.query("select * from stillwake.heartbeat($1, $2, $3)", [[id], [epoch], [lease_id]]);
    expect(heartbeat.rows).toEqual([{ job_id: id, verdict: "cancel", reason: null }]);
  });

  it("that failed or was cancelled can be retried; one that completed or waits cannot", async () => {
    const { id } = await stillwake.enqueue(report, null, { priority: 7 });
    expect(await caught(stillwake.retry(id))).toBeInstanceOf(NotAllowed);
    await stillwake.cancel(id);
    expect(await stillwake.retry(id, { fromStart: true, by: "ann" })).toBe("queued");
    await settleFirst({ outcome: "completed" });
    const refused = await caught(stillwake.retry(id));
    expect(refused).toMatchObject({ code: "NOT_ALLOWED", field: "id" });
    expect(refused.message).toBe(`Job ${id} is completed. Enqueue a new job to do the work again.`);
  });

  it("can be paused and resumed, unless it has ended", async () => {
    const { id } = await stillwake.enqueue(report, null, { runAt: new Date("2031-01-01T00:00:00Z") });
    expect(await stillwake.pause(id, { reason: "holiday", by: "ann" })).toBe("paused");
    expect(await stillwake.get(id)).toMatchObject({
      state: "paused",
      runAt: null,
      pause: { reason: "holiday", by: "ann" },
    });
    expect(await stillwake.resume(id, { by: "bob" })).toBe("queued");
    expect(await stillwake.get(id)).toMatchObject({
      state: "queued",
      waitingFor: "time",
      runAt: new Date("2031-01-01T00:00:00Z"),
      pause: null,
    });
    await stillwake.cancel(id);
    expect(await caught(stillwake.pause(id))).toBeInstanceOf(NotAllowed);
    expect(await caught(stillwake.resume(id))).toBeInstanceOf(NotAllowed);
  });

  it.each(["cancel", "retry", "pause", "resume"] as const)(
    "that does not exist cannot be controlled (%s)",
    async (verb) => {
      expect(await caught(stillwake[verb](unknownId))).toBeInstanceOf(JobNotFound);
    },
  );

  it("stores a reason unchanged, and rejects one that Postgres cannot store", async () => {
    const { id } = await stillwake.enqueue(report, null);
    const reason = `it's "fine" \\ $1 🐘\n`;
    await stillwake.pause(id, { reason });
    expect((await stillwake.get(id)).pause).toMatchObject({ reason });
    expect(await caught(stillwake.cancel(id, { reason: "nul\u0000" }))).toBeInstanceOf(InvalidInput);
  });
});

describe("a pool", () => {
  it("that is paused has no claims until it is resumed", async () => {
    await stillwake.enqueue(report, null);
    await stillwake.pause({ pool: "reports" }, { reason: "maintenance", by: "ann" });
    const { rows } = await sql.query("select paused_by, pause_reason from stillwake.pools where name = 'reports'");
    expect(rows).toEqual([{ paused_by: "ann", pause_reason: "maintenance" }]);
    expect(await claimFirst()).toBeUndefined();
    await stillwake.resume({ pool: "reports" });
    expect(await claimFirst()).toBeDefined();
  });

  it("that does not exist cannot be paused", async () => {
    expect(await caught(stillwake.pause({ pool: "gpu" }))).toBeInstanceOf(UnknownPool);
    expect(await caught(stillwake.resume({ pool: "gpu" }))).toBeInstanceOf(UnknownPool);
  });
});

async function claimFirst() {
  const request = { worker: "test", pool: "reports", pipelines: ["report"], limit: 1, lease: "1 hour" };
  return (await settleAndClaim(stillwake.database, [], request)).claimed[0]!;
}

/** Claims the first job of the pool and settles it. */
async function settleFirst(outcome: object): Promise<void> {
  const { job_id, epoch, lease_id } = await claimFirst();
  const settlement = { job: job_id, epoch, lease: lease_id, ...outcome };
  await sql.query("select * from stillwake.settle($1)", [JSON.stringify([settlement])]);
}

async function caught(promise: Promise<unknown>): Promise<StillwakeError> {
  return promise.then(
    () => {
      throw new Error("it was accepted");
    },
    (error) => error,
  );
}
