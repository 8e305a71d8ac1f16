// What a project shows when its extractions do not come one after the other: an attempt begins that was given up, an old extraction is retried, a feed does not answer, a
// scan could not look, or the project is gone. The engine's own verbs end the jobs, and the pipeline's own functions write the rows.
import pg from "pg";
import { createStillwake, Fatal } from "stillwake";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { createApi } from "../../src/api.ts";
import { extraction } from "../../src/contract.ts";
import { begin, complete, type Ended, type Found } from "../../src/outcomes.ts";
import { migrate } from "../../src/tables.ts";
import { apiOn, type Caller, hand } from "../support/api-calls.ts";
import { FOUND } from "../support/app-server.ts";

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

const made = async (): Promise<string> =>
  (await api.post("/projects", { repository: "acme/site", extract: false })).body.id;
const read = async (projectId: string) => (await api.get(`/projects/${projectId}`)).body;
const rowOf = async (id: string) => (await api.get(`/extractions/${id}`)).body;
const started = async (projectId: string): Promise<string> =>
  (await api.post(`/projects/${projectId}/extractions`)).body.id;
const starting = (projectId: string, extractionId: string) => begin(pool, { projectId, extractionId });

async function completing(projectId: string, extractionId: string, found: Partial<Found> = {}): Promise<Ended> {
  const tx = await pool.connect();
  try {
    await tx.query("begin");
    const ended = await complete(tx, { projectId, extractionId }, { ...FOUND, ...found });
    await tx.query("commit");
    return ended;
  } catch (error) {
    await tx.query("rollback");
    throw error;
  } finally {
    tx.release();
  }
}

/** One that completes, as the engine and the tables have it. */
async function completed(projectId: string, found: Partial<Found> = {}): Promise<string> {
  const id = await started(projectId);
  await starting(projectId, id);
  await completing(projectId, id, found);
  await hand(pool, id, { outcome: "completed", output: null, missing: [] });
  return id;
}

async function cancelled(projectId: string): Promise<string> {
  const id = await started(projectId);
  await starting(projectId, id);
  await api.post(`/extractions/${id}/cancel`);
  return id;
}

const commitIs = (commit: string): Partial<Found> => ({ result: { ...FOUND.result, commit } });

describe("an old extraction that somebody retries", () => {
  it("leaves what a later one has stored, and closes its own row", async () => {
    const id = await made();
    const old = await cancelled(id);
    const later = await completed(id, { ...commitIs("b".repeat(40)), code: [] });
    const before = await read(id);
    await stillwake.retry(old);
    await starting(id, old);
    expect(await read(id)).toEqual(before);
    const ended = await completing(id, old, commitIs("a".repeat(40)));
    expect(ended.superseded).toBe(true);
    await hand(pool, old, { outcome: "completed", output: null, missing: [] });
    expect(await read(id)).toEqual(before);
    expect(before).toMatchObject({ status: "ready", commit: "b".repeat(40), extraction: { id: later } });
    expect((await api.get(`/projects/${id}/findings?kind=code`)).body.rows).toEqual([]);
    expect(await rowOf(old)).toMatchObject({ status: "completed", commit: "a".repeat(40) });
  });

  it("brings what it found when the later ones have found nothing", async () => {
    const id = await made();
    const old = await cancelled(id);
    const later = await started(id);
    await starting(id, later);
    await hand(pool, later, { outcome: "failed", fatal: true, failure: { message: "No" } });
    expect(await read(id)).toMatchObject({ status: "failed", error: "No" });
    await stillwake.retry(old);
    await starting(id, old);
    expect((await completing(id, old)).superseded).toBe(false);
    await hand(pool, old, { outcome: "completed", output: null, missing: [] });
    expect(await read(id)).toMatchObject({ status: "ready", error: null, commit: FOUND.result.commit });
  });

  it("takes as long as since it was retried", async () => {
    const id = await made();
    const old = await cancelled(id);
    await pool.query(
      "update extraction.extractions set started_at = now() - interval '3 days', ended_at = now() - interval '3 days' where id = $1",
      [old],
    );
    await stillwake.retry(old);
    await starting(id, old);
    // A second attempt of the same goes on counting.
    await pool.query("update extraction.extractions set started_at = started_at - interval '1 hour' where id = $1", [
      old,
    ]);
    await starting(id, old);
    const { tookMs } = await completing(id, old);
    expect(tookMs).toBeGreaterThanOrEqual(3_600_000);
    expect(tookMs).toBeLessThan(2 * 3_600_000);
  });
});

describe("an attempt that begins late", () => {
  it("does not take the place of the extraction that is under way, whose end is the project's", async () => {
    const id = await made();
    const old = await cancelled(id);
    const later = await started(id);
    await starting(id, later);
    await starting(id, old);
    expect(await read(id)).toMatchObject({ status: "extracting", extraction: { id: later } });
    expect(await rowOf(old)).toMatchObject({ status: "cancelled" });
    await hand(pool, later, { outcome: "failed", fatal: true, failure: { message: "It broke" } });
    expect(await read(id)).toMatchObject({ status: "failed", error: "It broke" });
  });

  it("does not open a completed one again", async () => {
    const id = await made();
    const done = await completed(id);
    await read(id);
    await starting(id, done);
    const { rows } = await pool.query("select status from extraction.repositories where project_id = $1", [id]);
    expect(rows).toEqual([{ status: "ready" }]);
  });
});

describe("what the feeds said", () => {
  const marks = async (id: string) => {
    const { rows } = (await api.get(`/projects/${id}/vulnerabilities?q=CVE-2026-2000`)).body;
    return rows.map(({ epss, percentile, kev }: Record<string, unknown>) => ({ epss, percentile, kev }));
  };
  const known = FOUND.exploited!.byCve["CVE-2026-2000"]!;
  const silent = { epss: false, kev: false };

  it("stays when they do not answer, also for another version of the same package", async () => {
    const id = await made();
    await completed(id);
    expect(await marks(id)).toEqual([known]);
    await completed(id, { exploited: undefined });
    expect(await marks(id)).toEqual([known]);
    const vulnerabilities = FOUND.vulnerabilities!.map((one) => ({ ...one, purl: `${one.purl}.1` }));
    await completed(id, { vulnerabilities, exploited: { byCve: {}, read: silent } });
    expect(await marks(id)).toEqual([known]);
  });

  it("is replaced by those that were read, one by one", async () => {
    const id = await made();
    await completed(id);
    const byCve = { "CVE-2026-2000": { epss: 0.5, percentile: 0.6, kev: null } };
    await completed(id, { exploited: { byCve, read: { ...silent, epss: true } } });
    expect(await marks(id)).toEqual([{ ...known, epss: 0.5, percentile: 0.6 }]);
    await completed(id, { exploited: { byCve: {}, read: { ...silent, kev: true } } });
    expect(await marks(id)).toEqual([{ epss: 0.5, percentile: 0.6, kev: null }]);
    await completed(id, { exploited: { byCve: {}, read: { epss: true, kev: true } } });
    expect(await marks(id)).toEqual([{ epss: null, percentile: null, kev: null }]);
  });
});

it("says of each list which extraction it is of, and of none that nobody has looked", async () => {
  const id = await made();
  expect((await read(id)).looked).toEqual({});
  const first = await completed(id, { vulnerabilities: [], secrets: undefined });
  const by = (one: string) => ({ extraction: one, at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/) });
  expect((await read(id)).looked).toEqual({ vulnerabilities: by(first), code: by(first) });
  const second = await completed(id, { vulnerabilities: undefined, code: undefined });
  expect((await read(id)).looked).toEqual({ vulnerabilities: by(first), code: by(first), secrets: by(second) });
  expect((await api.get(`/projects/${id}/findings?kind=code`)).body.total).toBe(FOUND.code!.length);
});

describe("a project that is deleted", () => {
  it("takes along what is under way: also one that was retried after its end was recorded", async () => {
    const id = await made();
    const ended = await started(id);
    await starting(id, ended);
    await hand(pool, ended, { outcome: "failed", fatal: true, failure: { message: "No" } });
    expect(await read(id)).toMatchObject({ status: "failed" });
    await stillwake.retry(ended);
    expect((await api.delete(`/projects/${id}`)).status).toBe(204);
    expect((await stillwake.get(ended)).state).toBe("cancelled");
  });

  it("is told as that, for good, to an extraction which begins or ends behind it", async () => {
    const id = await made();
    const left = await started(id);
    await starting(id, left);
    await pool.query("delete from extraction.projects where id = $1", [id]);
    const gone = { message: "The project was deleted", code: "PROJECT_GONE" };
    const nothing = { vulnerabilities: [], code: [], secrets: [] };
    for (const late of [() => starting(id, left), () => completing(id, left), () => completing(id, left, nothing)]) {
      const error = await late().catch((thrown) => thrown);
      expect(error).toBeInstanceOf(Fatal);
      expect(error).toMatchObject(gone);
    }
  });
});
