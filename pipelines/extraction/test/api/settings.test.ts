// Changes of projects and integrations: a new repository name, installation, integration or credential. They apply to the next
// extraction, and no response contains a credential.
import pg from "pg";
import { createStillwake } from "stillwake";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSealed, readSealKeys } from "../../../../src/secrets/seal.ts";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import type { Caller } from "../../../kit/test/support/api-server.ts";
import { createApi, DEFAULT_ORGANIZATION } from "../../src/api.ts";
import { migrate } from "../../src/app.ts";
import { extraction } from "../../src/contract.ts";
import { apiOn, claimJob, SEAL_KEYS } from "../support/api-calls.ts";

const database = await freshDatabase();
const pool = new pg.Pool({ connectionString: database.url, max: 8 });
const stillwake = createStillwake({ url: database.url });
const internalErrors: unknown[] = [];
const options = { pool, stillwake, onError: (error: unknown) => void internalErrors.push(error) };
const UNKNOWN_ID = "01a1e107-2508-4182-ae66-db7bbe9aa49e";
let api: Caller;
let other: Caller;
let keyless: Caller;

beforeAll(async () => {
  await migrate(pool);
  await stillwake.register(extraction);
  api = apiOn(createApi({ ...options, sealKeys: SEAL_KEYS }));
  other = apiOn(createApi({ ...options, sealKeys: SEAL_KEYS, organization: "00000000-0000-4000-8000-000000000002" }));
  keyless = apiOn(createApi(options));
});
afterAll(async () => {
  await stillwake.close();
  await pool.end();
  expect(internalErrors).toEqual([]);
});

const addProject = async (fields: object): Promise<string> =>
  (await api.post("/projects", { repository: "acme/site", extract: false, ...fields })).body.id;
const addIntegration = async (fields: object = {}, client = api): Promise<string> =>
  (await client.post("/integrations", { provider: "gitlab", name: "Ours", credential: "glpat-the-first", ...fields }))
    .body.id;
/** Starts and completes an extraction; returns its input with the credential opened. */
async function nextInput(project: string): Promise<Record<string, unknown>> {
  const { body } = await api.post(`/projects/${project}/extractions`);
  expect(body.existing).toBe(false);
  const input = await inputOf(body.id);
  await claimJob(pool, body.id, { outcome: "completed", output: null });
  return input;
}
async function inputOf(job: string): Promise<Record<string, unknown>> {
  const { input } = (await pool.query("select input from stillwake.jobs where id = $1", [job])).rows[0];
  return input.credential ? { ...input, credential: openCredential(input.credential.$sealed) } : input;
}
const openCredential = (sealed: string) =>
  openSealed(
    readSealKeys(SEAL_KEYS),
    sealed,
    { pipeline: "extraction", tenant: DEFAULT_ORGANIZATION, job: null },
    "credential",
  );

describe("a project", () => {
  it("can change its repository and its installation", async () => {
    const id = await addProject({ installationId: "17" });
    const changed = await api.patch(`/projects/${id}`, { repository: "acme/moved", installationId: "4711" });
    expect([changed.status, changed.body]).toEqual([
      200,
      expect.objectContaining({ provider: "github", repository: "acme/moved", installationId: "4711", branch: null }),
    ]);
    expect(await nextInput(id)).toMatchObject({ repository: "acme/moved", installationId: "4711" });
    expect((await api.patch(`/projects/${id}`, { installationId: null })).body.installationId).toBeNull();
    expect(await nextInput(id)).not.toHaveProperty("installationId");
  });

  it("is renamed with its repository until it has its own name", async () => {
    const id = await addProject({});
    expect((await api.patch(`/projects/${id}`, { repository: "acme/moved" })).body.name).toBe("acme/moved");
    expect((await api.patch(`/projects/${id}`, { repository: "acme/x", name: "Shop" })).body.name).toBe("Shop");
    expect((await api.patch(`/projects/${id}`, { repository: "acme/y" })).body).toMatchObject({
      name: "Shop",
      repository: "acme/y",
    });
  });

  it("can change its integration, and the next extraction has its credential", async () => {
    const [one, two] = [await addIntegration(), await addIntegration({ credential: "glpat-of-another" })];
    const id = await addProject({ provider: "gitlab", integrationId: one });
    expect((await api.patch(`/projects/${id}`, { integrationId: two })).body.integrationId).toBe(two);
    expect(await nextInput(id)).toMatchObject({ integrationId: two, credential: "glpat-of-another" });
    expect((await api.patch(`/projects/${id}`, { integrationId: null })).body.integrationId).toBeNull();
    const input = await nextInput(id);
    expect(input).not.toHaveProperty("integrationId");
    expect(input).not.toHaveProperty("credential");
  });

  it("refuses invalid changes, names the field, and stays unchanged", async () => {
    const own = await addIntegration();
    const id = await addProject({ provider: "gitlab", integrationId: own });
    const before = (await api.get(`/projects/${id}`)).body;
    const invalid: [object, string][] = [
      [{ integrationId: await addIntegration({ provider: "bitbucket" }) }, "integrationId"],
      [{ integrationId: await addIntegration({}, other) }, "integrationId"],
      [{ integrationId: UNKNOWN_ID }, "integrationId"],
      [{ integrationId: "ours" }, "integrationId"],
      [{ integrationId: "" }, "integrationId"],
      [{ installationId: "number 7" }, "installationId"],
      [{ installationId: 7 }, "installationId"],
      [{ repository: "../../etc/passwd" }, "repository"],
      [{ repository: null }, "repository"],
      [{ provider: "bitbucket" }, "provider"],
      [{ credential: "glpat-in-the-plain" }, "credential"],
    ];
    for (const [fields, field] of invalid) {
      const { status, body } = await api.patch(`/projects/${id}`, { name: "Changed", branch: "changed", ...fields });
      expect([fields, status, body.field]).toEqual([fields, 400, field]);
      expect(body.detail).toMatch(new RegExp(`^${field}: `));
    }
    expect((await api.get(`/projects/${id}`)).body).toEqual(before);
    const foreign = await other.patch(`/projects/${id}`, { repository: "acme/theirs", integrationId: null });
    expect(foreign.status).toBe(404);
    expect((await api.get(`/projects/${id}`)).body).toEqual(before);
  });

  it("stores its repository without a trailing .git", async () => {
    const id = await addProject({ repository: " acme/site.git " });
    expect((await api.get(`/projects/${id}`)).body).toMatchObject({ name: "acme/site", repository: "acme/site" });
    await api.patch(`/projects/${id}`, { repository: "acme/moved.git" });
    expect(await nextInput(id)).toMatchObject({ repository: "acme/moved" });
    for (const repository of ["acme/.git", "acme/site.git.git", ".git"]) {
      for (const response of [
        await api.post("/projects", { repository }),
        await api.patch(`/projects/${id}`, { repository }),
      ])
        expect([repository, response.status, response.body.field]).toEqual([repository, 400, "repository"]);
    }
    expect((await api.patch(`/projects/${id}`, { repository: "acme/.github" })).body.repository).toBe("acme/.github");
  });
});

describe("a credential", () => {
  it("that is replaced is used by the next extraction, not by the active one", async () => {
    const integration = await addIntegration();
    const id = await addProject({ provider: "gitlab", integrationId: integration });
    const { body: first } = await api.post(`/projects/${id}/extractions`);
    const { status, body } = await api.put(`/integrations/${integration}`, { credential: "glpat-the-second" });
    expect([status, body]).toEqual([
      200,
      { id: integration, provider: "gitlab", name: "Ours", createdAt: expect.any(String) },
    ]);
    expect((await inputOf(first.id)).credential).toBe("glpat-the-first");
    await claimJob(pool, first.id, { outcome: "failed", fatal: true, failure: { message: "x" } });
    expect(await nextInput(id)).toMatchObject({ integrationId: integration, credential: "glpat-the-second" });
    const renamed = await api.put(`/integrations/${integration}`, { credential: "glpat-the-third", name: "Theirs" });
    expect(renamed.body.name).toBe("Theirs");
    expect((await nextInput(id)).credential).toBe("glpat-the-third");
  });

  it("cannot be replaced by another organization, without seal keys, or with an invalid one", async () => {
    const integration = await addIntegration();
    const kept = async () =>
      (await pool.query("select name, credential from extraction.integrations where id = $1", [integration])).rows[0];
    const before = await kept();
    const credential = "glpat-the-second";
    const foreign = await other.put(`/integrations/${integration}`, { credential });
    const missing = await other.put(`/integrations/${UNKNOWN_ID}`, { credential });
    expect([foreign.status, foreign.text]).toEqual([404, missing.text]);
    expect((await api.put("/integrations/1", { credential })).status).toBe(404);
    expect((await keyless.put(`/integrations/${integration}`, { credential })).body).toMatchObject({
      status: 409,
      code: "NO_SEAL_KEYS",
      remedy: expect.stringContaining("STILLWAKE_SEAL_KEYS"),
    });
    const invalid: [object, string][] = [
      [{}, "credential"],
      [{ credential: "short" }, "credential"],
      [{ credential: "x".repeat(4097) }, "credential"],
      [{ credential: "glpat-\u0000-of-control" }, "credential"],
      [{ credential, name: "" }, "name"],
      [{ credential, provider: "bitbucket" }, "provider"],
    ];
    for (const [fields, field] of invalid) {
      const { status, body } = await api.put(`/integrations/${integration}`, fields);
      expect([fields, status, body.field]).toEqual([fields, 400, field]);
    }
    expect(await kept()).toEqual(before);
  });

  it("is in no response and in no row", async () => {
    const canaries = ["glpat-canary-1-Zq81mT0vPw", "glpat-canary-2-Zq81mT0vPw"];
    const [first, second] = canaries as [string, string];
    const created = await api.post("/integrations", { provider: "gitlab", name: "Ours", credential: first });
    const at = `/integrations/${created.body.id}`;
    const project = await api.post("/projects", {
      provider: "gitlab",
      repository: "group/site",
      integrationId: created.body.id,
    });
    const responses = [
      created,
      project,
      await api.put(at, { credential: second }),
      await api.put(at, { credential: second, name: "" }),
      await api.put(at, { credential: second, provider: "gitlab" }),
      await api.put(at, { credential: [second] }),
      await keyless.put(at, { credential: second }),
      await other.put(at, { credential: second }),
      await api.patch(`/projects/${project.body.id}`, { integrationId: created.body.id, branch: "main" }),
      await api.patch(`/projects/${project.body.id}`, { credential: second }),
      await api.delete(at),
      await api.get("/integrations"),
      await api.get("/projects"),
      await api.get(`/projects/${project.body.id}`),
      await api.get(`/extractions/${project.body.extraction.id}`),
    ].map(({ text }) => text);
    expect(responses.filter((text) => text !== "")).toHaveLength(responses.length);
    const { rows } = await pool.query(
      "select i::text as row from extraction.integrations i union all select j::text from stillwake.jobs j",
    );
    for (const text of [...responses, ...rows.map(({ row }) => row)])
      for (const canary of canaries) expect(text).not.toContain(canary);
  });
});

describe("an integration", () => {
  it("cannot be deleted while projects use it, which are named", async () => {
    const integration = await addIntegration();
    const at = `/integrations/${integration}`;
    const names = ["a/one", "a/two", "a/three", "a/four", "a/five"];
    const ids: string[] = [];
    for (const repository of names)
      ids.push(await addProject({ provider: "gitlab", repository, integrationId: integration }));
    const refused = await api.delete(at);
    expect(refused.body).toMatchObject({
      status: 409,
      code: "INTEGRATION_IN_USE",
      detail: "5 projects use this integration: a/five, a/four, a/one and 2 more",
      remedy: expect.stringContaining("PATCH /projects/:id"),
    });
    expect((await other.delete(at)).status).toBe(404);
    const [last, ...rest] = ids;
    await api.delete(`/projects/${rest.pop()}`);
    for (const id of rest) await api.patch(`/projects/${id}`, { integrationId: null });
    expect((await api.delete(at)).body.detail).toBe("A project uses this integration: a/one");
    await api.patch(`/projects/${last}`, { integrationId: await addIntegration() });
    expect((await api.delete(at)).status).toBe(204);
    expect((await api.delete(at)).status).toBe(404);
    expect((await api.get("/integrations")).text).not.toContain(integration);
  });

  it("is not deleted while it is being chosen, and not chosen while it is being deleted", async () => {
    const integration = await addIntegration();
    const at = `/integrations/${integration}`;
    const id = await addProject({ provider: "gitlab", repository: "a/chosen" });
    const removed = await during(
      "update extraction.repositories set integration_id = $2 where project_id = $1",
      [id, integration],
      () => api.delete(at),
    );
    expect(removed.body).toMatchObject({ status: 409, detail: "A project uses this integration: a/chosen" });
    await api.patch(`/projects/${id}`, { integrationId: null });
    const chosen = await during("delete from extraction.integrations where id = $1", [integration], () =>
      api.patch(`/projects/${id}`, { integrationId: integration }),
    );
    expect(chosen.body).toMatchObject({ status: 400, field: "integrationId" });
  });
});

/** Sends a request while another transaction has executed this statement and not committed yet. */
async function during<Response>(text: string, values: unknown[], send: () => Promise<Response>): Promise<Response> {
  const client = await pool.connect();
  await client.query("begin");
  await client.query(text, values);
  const response = send();
  const waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
  await waitFor(async () => (await pool.query(waits)).rowCount === 1, { what: "the request to wait for the lock" });
  await client.query("commit");
  client.release();
  return response;
}
