// The API with a real database: transactions, outcomes without pipeline code, credentials, organizations.
import pg from "pg";
import { createStillwake } from "stillwake";
import { travel } from "stillwake/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { recordFigure } from "../../../../test/support/figures.ts";
import type { Caller } from "../../../kit/test/support/api-server.ts";
import { createApi, DEFAULT_ORGANIZATION } from "../../src/api.ts";
import { loginFor, migrate } from "../../src/app.ts";
import { extraction } from "../../src/contract.ts";
import { recordStart } from "../../src/outcomes.ts";
import { apiOn, claimJob, SEAL_KEYS } from "../support/api-calls.ts";

const database = await freshDatabase();
const pool = new pg.Pool({ connectionString: database.url, max: 8 });
const stillwake = createStillwake({ url: database.url, secret: "a secret of more than thirty-two characters" });
const internalErrors: unknown[] = [];
const options = { pool, stillwake, onError: (error: unknown) => void internalErrors.push(error) };
let api: Caller;

beforeAll(async () => {
  await migrate(pool);
  await stillwake.register(extraction);
  api = apiOn(createApi({ ...options, sealKeys: SEAL_KEYS }));
});
afterAll(async () => {
  await stillwake.close();
  await pool.end();
  expect(internalErrors).toEqual([]);
});

const project = { repository: "acme/site", branch: "main", packagePath: "packages/api" };
const UNKNOWN_ID = "01a1e107-2508-4182-ae66-db7bbe9aa49e";
const rows = async (text: string, values: unknown[] = []) => (await pool.query(text, values)).rows;
const jobsOf = (id: string) =>
  rows("select id, state, tenant, input from stillwake.jobs where key = $1 order by created_at", [id]);
const addProject = async (extract = false): Promise<string> =>
  (await api.post("/projects", { ...project, extract })).body.id;

describe("the tables", () => {
  it("are created once by concurrent migrations, and a login without the right to create can start", async () => {
    await Promise.all([migrate(pool), migrate(pool), migrate(pool)]);
    const url = await loginFor(pool, `pipeline_${database.name}`);
    const own = new pg.Pool({ connectionString: url, max: 1 });
    await migrate(own);
    await expect(own.query("select * from extraction.integrations")).rejects.toThrow(/permission denied/);
    await expect(own.query("select * from extraction.projects")).rejects.toThrow(/permission denied/);
    await expect(own.query("update extraction.repositories set full_name = 'x'")).rejects.toThrow(/permission denied/);
    await expect(own.query("select * from stillwake.jobs")).rejects.toThrow(/permission denied/);
    await own.query("select * from extraction.dependencies");
    await own.end();
    // A second call sets a new password.
    expect(await loginFor(pool, `pipeline_${database.name}`)).not.toBe(url);
  });

  it("give the server what it needs with the roles extraction_api and stillwake_app only", async () => {
    const role = `server_${database.name}`;
    await pool.query(`create role ${role} login password 'x'; grant stillwake_app, extraction_api to ${role}`);
    const url = new URL(database.url);
    url.username = role;
    url.password = "x";
    const own = new pg.Pool({ connectionString: url.href, max: 2 });
    const client = createStillwake({ url: url.href });
    const server = apiOn(createApi({ ...options, pool: own, stillwake: client, sealKeys: SEAL_KEYS }));
    await migrate(own);
    const { body, status } = await server.post("/projects", project);
    expect(status).toBe(201);
    const integration = { provider: "gitlab", name: "Ours", credential: "long enough" };
    const { body: stored } = await server.post("/integrations", integration);
    expect((await server.put(`/integrations/${stored.id}`, { credential: "a longer one" })).status).toBe(200);
    expect((await server.delete(`/integrations/${stored.id}`)).status).toBe(204);
    expect((await server.get(`/extractions/${body.extraction.id}`)).body.status).toBe("queued");
    expect((await server.post(`/extractions/${body.extraction.id}/cancel`)).body.state).toBe("cancelled");
    expect((await server.get("/projects")).body.rows[0]).toMatchObject({ id: body.id, status: "cancelled" });
    expect((await server.get("/costs")).status).toBe(200);
    expect((await server.delete(`/projects/${body.id}`)).status).toBe(204);
    await expect(own.query("drop table extraction.projects")).rejects.toThrow(/must be owner/);
    await client.close();
    await own.end();
  });
});

describe("a project", () => {
  it("is stored with its repository and its first extraction", async () => {
    const { status, body } = await api.post("/projects", project);
    expect(status).toBe(201);
    expect(body.extraction).toMatchObject({ existing: false });
    const [job] = await jobsOf(body.id);
    expect(job).toMatchObject({ id: body.extraction.id, state: "queued", tenant: DEFAULT_ORGANIZATION });
    expect(job.input).toEqual({
      ...project,
      provider: "github",
      projectId: body.id,
      organizationId: DEFAULT_ORGANIZATION,
    });
    const read = await api.get(`/projects/${body.id}`);
    expect(read.body).toMatchObject({
      name: "acme/site",
      status: "extracting",
      extraction: { id: job.id, status: "queued" },
    });
  });

  it("leaves neither row nor job if storing fails", async () => {
    const before = await rows(
      "select (select count(*) from stillwake.jobs) as jobs, (select count(*) from extraction.projects) as projects",
    );
    await pool.query(
      "create function extraction.reject_insert() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$",
    );
    await pool.query(
      "create trigger reject_insert before insert on extraction.extractions for each row execute function extraction.reject_insert()",
    );
    const { status, text } = await api.post("/projects", project);
    await pool.query("drop function extraction.reject_insert() cascade");
    expect(status).toBe(500);
    expect(text).not.toMatch(/reject_insert|exception|insert|at /i);
    expect(internalErrors.splice(0)).toHaveLength(1);
    expect(
      await rows(
        "select (select count(*) from stillwake.jobs) as jobs, (select count(*) from extraction.projects) as projects",
      ),
    ).toEqual(before);
  });

  it("can be stored without an extraction, changed and deleted", async () => {
    const id = await addProject();
    expect(await jobsOf(id)).toEqual([]);
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ status: "new", extraction: null, branch: "main" });
    const changed = await api.patch(`/projects/${id}`, { branch: null, packagePath: "." });
    expect(changed.body).toMatchObject({ branch: null, packagePath: ".", repository: "acme/site" });
    const started = await api.post(`/projects/${id}/extractions`);
    expect((await jobsOf(id))[0].input).not.toHaveProperty("branch");
    expect((await api.delete(`/projects/${id}`)).status).toBe(204);
    expect((await stillwake.get(started.body.id)).state).toBe("cancelled");
    expect((await api.get(`/projects/${id}`)).status).toBe(404);
    expect((await api.get(`/extractions/${started.body.id}`)).status).toBe(404);
  });
});

describe("an extraction", () => {
  it("is the same for concurrent requests, and for requests while it is active", async () => {
    const id = await addProject();
    const responses = await Promise.all(Array.from({ length: 6 }, () => api.post(`/projects/${id}/extractions`)));
    expect(responses.map(({ status }) => status)).toEqual(Array(6).fill(202));
    expect(new Set(responses.map(({ body }) => body.id)).size).toBe(1);
    expect(responses.filter(({ body }) => !body.existing)).toHaveLength(1);
    expect(await jobsOf(id)).toHaveLength(1);
    expect((await api.get(`/projects/${id}/extractions`)).body).toMatchObject({ total: 1, cursor: null });
  });

  it("that is cancelled while queued is recorded as cancelled, and another can be started", async () => {
    const id = await addProject(true);
    const first = (await api.get(`/projects/${id}`)).body.extraction.id;
    expect((await api.post(`/extractions/${first}/cancel`)).body).toEqual({ id: first, state: "cancelled" });
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ status: "cancelled", error: null });
    const again = await api.post(`/projects/${id}/extractions`);
    expect(again.body).toMatchObject({ existing: false });
    expect(again.body.id).not.toBe(first);
    const history = await api.get(`/projects/${id}/extractions?limit=1`);
    expect(history.body.rows.map((row: { id: string }) => row.id)).toEqual([again.body.id]);
    const older = await api.get(`/projects/${id}/extractions?limit=1&cursor=${history.body.cursor}`);
    expect(older.body.rows).toMatchObject([{ id: first, status: "cancelled" }]);
  });

  it("whose worker died too often is recorded as failed with its sentence", async () => {
    const id = await addProject(true);
    const crashed = (await api.get(`/projects/${id}`)).body.extraction.id;
    for (let crash = 0; crash < 3; crash++) {
      await claimJob(pool, crashed);
      expect((await api.get(`/projects/${id}`)).body.status).toBe("extracting");
      // No lease anywhere is valid, so the first call takes it for an outage of the database.
      for (const time of ["10m", "1m"] as const) {
        await travel(pool, time);
        await stillwake.watchdog();
      }
    }
    const job = await stillwake.get(crashed);
    expect(job).toMatchObject({ state: "failed", failure: { code: "POISONED" } });
    const { body } = await api.get(`/extractions/${crashed}`);
    const sentence = job.failure?.sentence ?? job.failure?.message ?? "";
    expect(body).toMatchObject({ status: "failed", machine: "machine-1", attempts: 3 });
    expect(body.error).toBe(sentence.replace(/^Extraction failed: /, ""));
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ status: "failed", error: body.error });
    expect(await rows("select extraction.record_outcomes() as number")).toEqual([{ number: 0 }]);
  });

  it("is recorded with the sentence of its failure without the prefix, or as completed with its missing steps", async () => {
    const failed = await addProject(true);
    const broken = (await api.get(`/projects/${failed}`)).body.extraction.id;
    await claimJob(pool, broken, {
      outcome: "failed",
      fatal: true,
      failure: { message: "x", sentence: "Extraction failed: Branch 'x' not found in repository" },
    });
    expect((await api.get(`/projects/${failed}`)).body).toMatchObject({
      status: "failed",
      error: "Branch 'x' not found in repository",
    });

    const done = await addProject(true);
    const whole = (await api.get(`/projects/${done}`)).body.extraction.id;
    await claimJob(pool, whole, { outcome: "completed", output: null, missing: ["semgrep"] });
    // An attempt that resumes after the last step sets the status again.
    await pool.query("update extraction.repositories set error = 'old' where project_id = $1", [done]);
    expect((await api.get(`/projects/${done}`)).body).toMatchObject({
      status: "ready",
      error: null,
      extraction: { status: "completed", missing: ["semgrep"] },
    });
  });

  it("that is retried is active again, and is recorded again when it ends", async () => {
    const id = await addProject(true);
    const job = (await api.get(`/projects/${id}`)).body.extraction.id;
    const end = { outcome: "failed", fatal: true, failure: { message: "First" } };
    await claimJob(pool, job, end);
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ status: "failed", error: "First" });
    await stillwake.retry(job);
    await recordStart(pool, { extractionId: job, projectId: id });
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ status: "extracting", error: null });
    expect((await api.get(`/extractions/${job}`)).body).toMatchObject({ status: "queued", error: null, endedAt: null });
    await claimJob(pool, job, { ...end, failure: { message: "Second" } });
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ status: "failed", error: "Second" });
    expect((await api.get(`/extractions/${job}`)).body).toMatchObject({ status: "failed", error: "Second" });
  });

  it("whose job was deleted can still be read", async () => {
    const id = await addProject();
    const gone = "01a1e107-2508-7182-ae66-db7bbe9aa49e";
    await pool.query(
      "insert into extraction.extractions (id, project_id, status, ended_at) values ($1, $2, 'completed', now())",
      [gone, id],
    );
    const { body } = await api.get(`/extractions/${gone}`);
    expect(body).toMatchObject({ status: "completed", job: null, cost: null, machines: [] });
    expect((await api.post(`/extractions/${gone}/cancel`)).body).toEqual({ id: gone, state: null });
    expect((await api.get(`/extractions/${gone}/reports`)).body).toEqual({ reports: [] });
  });

  it("has a read token for its job", async () => {
    const id = await addProject(true);
    const { extraction: last } = (await api.get(`/projects/${id}`)).body;
    expect((await api.get(`/extractions/${last.id}/token`)).body.token).toMatch(/^swr_/);
    const plain = createStillwake({ url: database.url });
    const open = apiOn(createApi({ ...options, stillwake: plain }));
    expect((await open.get(`/extractions/${last.id}/token`)).body).toEqual({ token: null });
    await plain.close();
  });

  it("record_outcomes is fast without open extractions and with a thousand queued ones", async () => {
    const measure = async (times: number) => {
      const began = performance.now();
      for (let time = 0; time < times; time++) await pool.query("select extraction.record_outcomes()");
      return (performance.now() - began) / times;
    };
    for (const { id } of await rows("select id from stillwake.jobs where state = 'queued'")) await stillwake.cancel(id);
    await measure(1);
    recordFigure("extraction: record_outcomes with nothing open", await measure(50), "ms");
    const id = await addProject();
    const inputs = Array.from({ length: 1000 }, (_, n) => ({
      ...project,
      projectId: id,
      organizationId: UNKNOWN_ID,
      branch: `b${n}`,
    }));
    const many = await stillwake.enqueueMany(extraction, inputs, { onConflict: "wait" });
    await pool.query("insert into extraction.extractions (id, project_id) select unnest($1::uuid[]), $2", [
      many.map((job) => job.id),
      id,
    ]);
    expect(await rows("select extraction.record_outcomes() as number")).toEqual([{ number: 0 }]);
    recordFigure("extraction: record_outcomes with 1,000 waiting", await measure(5), "ms");
    await pool.query("delete from extraction.projects where id = $1", [id]);
  });
});

describe("a credential", () => {
  it("is sealed before it is stored, and never returned", async () => {
    const canary = "glpat-canary-Zq81mT0vPw";
    const { status, body, text } = await api.post("/integrations", {
      provider: "gitlab",
      name: "Ours",
      credential: canary,
    });
    expect(status).toBe(201);
    expect(Object.keys(body).sort()).toEqual(["createdAt", "id", "name", "provider"]);
    const project = { provider: "gitlab", repository: "group/sub/site", integrationId: body.id };
    const { body: stored } = await api.post("/projects", project);
    const [job] = await jobsOf(stored.id);
    expect(job.input.credential).toEqual({ $sealed: expect.stringMatching(/^p\.k1\./) });
    const responses = [text, (await api.get(`/projects/${stored.id}`)).text, (await api.get("/integrations")).text];
    const kept = await rows(
      "select to_jsonb(i)::text as row from extraction.integrations i union all select to_jsonb(j)::text from stillwake.jobs j where key = $1",
      [stored.id],
    );
    for (const content of [...responses, ...kept.map(({ row }) => row)]) expect(content).not.toContain(canary);
  });

  it("is refused without seal keys, and used only for its provider and organization", async () => {
    const keyless = apiOn(createApi(options));
    const integration = { provider: "bitbucket", name: "Ours", credential: "long enough" };
    expect((await keyless.post("/integrations", integration)).body).toMatchObject({
      status: 409,
      code: "NO_SEAL_KEYS",
    });
    const { id } = (await api.post("/integrations", integration)).body;
    const wrong = await api.post("/projects", { provider: "gitlab", repository: "a/b", integrationId: id });
    expect(wrong.body).toMatchObject({ status: 400, field: "integrationId" });
    const other = apiOn(createApi({ ...options, organization: "00000000-0000-4000-8000-000000000002" }));
    const foreign = await other.post("/projects", { provider: "bitbucket", repository: "a/b", integrationId: id });
    expect(foreign.body).toMatchObject({ status: 400, field: "integrationId" });
    expect((await other.get("/integrations")).body).toEqual({ integrations: [] });
  });
});

it("offers the sample as one project, however often it is requested", async () => {
  expect((await api.get("/sample")).status).toBe(404);
  const trial = apiOn(createApi({ ...options, sample: { name: "Sample shop", repository: "sample/shop" } }));
  expect((await trial.get("/sample")).body).toEqual({ name: "Sample shop" });
  const [one, other] = await Promise.all([trial.post("/sample"), trial.post("/sample")]);
  expect(one.body.project).toBe(other.body.project);
  expect(one.body.id).toBe(other.body.id);
  expect((await trial.get(`/projects/${one.body.project}`)).body.name).toBe("Sample shop");
});

it("returns nothing of another organization, not even that it exists", async () => {
  const id = await addProject(true);
  const { extraction: last } = (await api.get(`/projects/${id}`)).body;
  const other = apiOn(createApi({ ...options, organization: "00000000-0000-4000-8000-000000000002" }));
  const paths = ["", "/extractions", "/dependencies", "/vulnerabilities", "/findings"].map(
    (rest) => `/projects/${id}${rest}`,
  );
  paths.push(...["", "/reports", "/reports/sbom.cdx.json", "/token"].map((rest) => `/extractions/${last.id}${rest}`));
  for (const path of paths) {
    const foreign = await other.get(path);
    const missing = await other.get(path.replace(/[0-9a-f-]{36}/, UNKNOWN_ID));
    expect([path, foreign.status, foreign.text]).toEqual([path, 404, missing.text]);
  }
  for (const refused of [
    await other.patch(`/projects/${id}`, { branch: "x", repository: "a/b" }),
    await other.post(`/projects/${id}/extractions`),
    await other.post(`/extractions/${last.id}/cancel`),
    await other.delete(`/projects/${id}`),
  ])
    expect(refused.status).toBe(404);
  expect((await other.get("/projects")).body.rows).toEqual([]);
  expect((await stillwake.get(last.id)).state).toBe("queued");
});
