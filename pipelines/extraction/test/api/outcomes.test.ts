// The state of a project with extractions out of order: a lost attempt starts late, an old extraction is retried, a feed or a scan
// is missing, the project is deleted. Jobs are settled by SQL, rows are written by the pipeline's functions.
import pg from "pg";
import { createStillwake, Fatal } from "stillwake";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import type { Caller } from "../../../kit/test/support/api-server.ts";
import { createApi } from "../../src/api.ts";
import { migrate } from "../../src/app.ts";
import { extraction } from "../../src/contract.ts";
import { type Completion, type Results, recordCompletion, recordStart } from "../../src/outcomes.ts";
import { apiOn, claimJob } from "../support/api-calls.ts";
import { RESULTS } from "../support/app-server.ts";

const database = await freshDatabase();
const pool = new pg.Pool({ connectionString: database.url, max: 4 });
const stillwake = createStillwake({ url: database.url });
let api: Caller;

beforeAll(async () => {
  await migrate(pool);
  await stillwake.register(extraction);
  api = apiOn(createApi({ pool, stillwake }));
});
afterAll(async () => {
  await stillwake.close();
  await pool.end();
});

const addProject = async (): Promise<string> =>
  (await api.post("/projects", { repository: "acme/site", extract: false })).body.id;
const read = async (projectId: string) => (await api.get(`/projects/${projectId}`)).body;
const rowOf = async (id: string) => (await api.get(`/extractions/${id}`)).body;
const startExtraction = async (projectId: string): Promise<string> =>
  (await api.post(`/projects/${projectId}/extractions`)).body.id;
const startAttempt = (projectId: string, extractionId: string) => recordStart(pool, { projectId, extractionId });

async function complete(projectId: string, extractionId: string, found: Partial<Results> = {}): Promise<Completion> {
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    const ended = await recordCompletion(tx, { projectId, extractionId }, { ...RESULTS, ...found });
    await tx.query("commit");
    return ended;
  } catch (error) {
    await tx.query("rollback");
    throw error;
  } finally {
    tx.release();
  }
}

async function addCompleted(projectId: string, found: Partial<Results> = {}): Promise<string> {
  const id = await startExtraction(projectId);
  await startAttempt(projectId, id);
  await complete(projectId, id, found);
  await claimJob(pool, id, { outcome: "completed", output: null, missing: [] });
  return id;
}

async function addCancelled(projectId: string): Promise<string> {
  const id = await startExtraction(projectId);
  await startAttempt(projectId, id);
  await api.post(`/extractions/${id}/cancel`);
  return id;
}

const withCommit = (commit: string): Partial<Results> => ({ result: { ...RESULTS.result, commit } });

describe("an old extraction that is retried", () => {
  it("does not overwrite the results of a later one, and completes its own row", async () => {
    const id = await addProject();
    const old = await addCancelled(id);
    const later = await addCompleted(id, { ...withCommit("b".repeat(40)), code: [] });
    const before = await read(id);
    await stillwake.retry(old);
    await startAttempt(id, old);
    expect(await read(id)).toEqual(before);
    const ended = await complete(id, old, withCommit("a".repeat(40)));
    expect(ended.superseded).toBe(true);
    await claimJob(pool, old, { outcome: "completed", output: null, missing: [] });
    expect(await read(id)).toEqual(before);
    expect(before).toMatchObject({ status: "ready", commit: "b".repeat(40), extraction: { id: later } });
    expect((await api.get(`/projects/${id}/findings?kind=code`)).body.rows).toEqual([]);
    expect(await rowOf(old)).toMatchObject({ status: "completed", commit: "a".repeat(40) });
  });

  it("stores its results if later ones have stored none", async () => {
    const id = await addProject();
    const old = await addCancelled(id);
    const later = await startExtraction(id);
    await startAttempt(id, later);
    await claimJob(pool, later, { outcome: "failed", fatal: true, failure: { message: "No" } });
    expect(await read(id)).toMatchObject({ status: "failed", error: "No" });
    await stillwake.retry(old);
    await startAttempt(id, old);
    expect((await complete(id, old)).superseded).toBe(false);
    await claimJob(pool, old, { outcome: "completed", output: null, missing: [] });
    expect(await read(id)).toMatchObject({ status: "ready", error: null, commit: RESULTS.result.commit });
  });

  it("measures its duration since the retry", async () => {
    const id = await addProject();
    const old = await addCancelled(id);
    await pool.query(
      "update extraction.extractions set started_at = now() - interval '3 days', ended_at = now() - interval '3 days' where id = $1",
      [old],
    );
    await stillwake.retry(old);
    await startAttempt(id, old);
    // A second attempt does not reset the start.
    await pool.query("update extraction.extractions set started_at = started_at - interval '1 hour' where id = $1", [
      old,
    ]);
    await startAttempt(id, old);
    const { tookMs } = await complete(id, old);
    expect(tookMs).toBeGreaterThanOrEqual(3_600_000);
    expect(tookMs).toBeLessThan(2 * 3_600_000);
  });
});

describe("a lost attempt that starts late", () => {
  it("does not replace the active extraction of the project", async () => {
    const id = await addProject();
    const old = await addCancelled(id);
    const later = await startExtraction(id);
    await startAttempt(id, later);
    await startAttempt(id, old);
    expect(await read(id)).toMatchObject({ status: "extracting", extraction: { id: later } });
    expect(await rowOf(old)).toMatchObject({ status: "cancelled" });
    await claimJob(pool, later, { outcome: "failed", fatal: true, failure: { message: "It broke" } });
    expect(await read(id)).toMatchObject({ status: "failed", error: "It broke" });
  });

  it("does not reopen a completed extraction", async () => {
    const id = await addProject();
    const done = await addCompleted(id);
    await read(id);
    await startAttempt(id, done);
    const { rows } = await pool.query("select status from extraction.repositories where project_id = $1", [id]);
    expect(rows).toEqual([{ status: "ready" }]);
  });
});

describe("data of the feeds", () => {
  const exploitation = async (id: string) => {
    const { rows } = (await api.get(`/projects/${id}/vulnerabilities?q=CVE-2026-2000`)).body;
    return rows.map(({ epss, percentile, kev }: Record<string, unknown>) => ({ epss, percentile, kev }));
  };
  const known = RESULTS.exploited!.byCve["CVE-2026-2000"]!;
  const unread = { epss: false, kev: false };

  it("stays if they cannot be read, also for another version of the package", async () => {
    const id = await addProject();
    await addCompleted(id);
    expect(await exploitation(id)).toEqual([known]);
    await addCompleted(id, { exploited: undefined });
    expect(await exploitation(id)).toEqual([known]);
    const vulnerabilities = RESULTS.vulnerabilities!.map((row) => ({ ...row, purl: `${row.purl}.1` }));
    await addCompleted(id, { vulnerabilities, exploited: { byCve: {}, read: unread } });
    expect(await exploitation(id)).toEqual([known]);
  });

  it("is replaced for each feed that was read", async () => {
    const id = await addProject();
    await addCompleted(id);
    const byCve = { "CVE-2026-2000": { epss: 0.5, percentile: 0.6, kev: null } };
    await addCompleted(id, { exploited: { byCve, read: { ...unread, epss: true } } });
    expect(await exploitation(id)).toEqual([{ ...known, epss: 0.5, percentile: 0.6 }]);
    await addCompleted(id, { exploited: { byCve: {}, read: { ...unread, kev: true } } });
    expect(await exploitation(id)).toEqual([{ epss: 0.5, percentile: 0.6, kev: null }]);
    await addCompleted(id, { exploited: { byCve: {}, read: { epss: true, kev: true } } });
    expect(await exploitation(id)).toEqual([{ epss: null, percentile: null, kev: null }]);
  });
});

it("returns the extraction of each list, and omits lists that were never scanned", async () => {
  const id = await addProject();
  expect((await read(id)).looked).toEqual({});
  const first = await addCompleted(id, { vulnerabilities: [], secrets: undefined });
  const coverage = { checked: 3, total: 3, notes: [] };
  const by = (extractionId: string) => ({ extraction: extractionId, at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/) });
  expect((await read(id)).looked).toEqual({ vulnerabilities: { ...by(first), coverage }, code: by(first) });
  const second = await addCompleted(id, { vulnerabilities: undefined, code: undefined });
  expect((await read(id)).looked).toEqual({
    vulnerabilities: { ...by(first), coverage },
    code: by(first),
    secrets: by(second),
  });
  expect((await api.get(`/projects/${id}/findings?kind=code`)).body.total).toBe(RESULTS.code!.length);
});

describe("a deleted project", () => {
  it("cancels its active extraction, also one that was retried after its outcome was recorded", async () => {
    const id = await addProject();
    const ended = await startExtraction(id);
    await startAttempt(id, ended);
    await claimJob(pool, ended, { outcome: "failed", fatal: true, failure: { message: "No" } });
    expect(await read(id)).toMatchObject({ status: "failed" });
    await stillwake.retry(ended);
    expect((await api.delete(`/projects/${id}`)).status).toBe(204);
    expect((await stillwake.get(ended)).state).toBe("cancelled");
  });

  it("fails an extraction that starts or completes afterwards", async () => {
    const id = await addProject();
    const left = await startExtraction(id);
    await startAttempt(id, left);
    await pool.query("delete from extraction.projects where id = $1", [id]);
    const gone = { message: "The project was deleted", code: "PROJECT_GONE" };
    const nothing = { vulnerabilities: [], code: [], secrets: [] };
    for (const late of [() => startAttempt(id, left), () => complete(id, left), () => complete(id, left, nothing)]) {
      const error = await late().catch((thrown) => thrown);
      expect(error).toBeInstanceOf(Fatal);
      expect(error).toMatchObject(gone);
    }
  });
});
