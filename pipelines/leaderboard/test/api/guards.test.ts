// Access control and validation of the API, and records that are never stored without their job.
import pg from "pg";
import { createStillwake } from "stillwake";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { claimReading, serveApi } from "../support/app-server.ts";
import { setUpLeaderboards } from "../support/leaderboards.ts";

const setup = await setUpLeaderboards();
const { pool } = setup;
const TOKEN = "a-token-of-more-than-twenty-characters";
const UNKNOWN_ID = "01a1e107-2508-4182-ae66-db7bbe9aa49e";
const api = await serveApi(setup);
const locked = await serveApi(setup, { token: TOKEN, secret: null });

afterAll(() => {
  for (const { responses: answers } of [api, locked]) expect(answers.filter((text) => text.includes("@"))).toEqual([]);
  expect([...api.internalErrors, ...locked.internalErrors]).toEqual([]);
});

const REMEDY = "Write it as https://github.com/owner/name, or as owner/name";

describe("a request", () => {
  it.each<[name: string, body: unknown, field: string, detail: RegExp]>([
    ["no URL", {}, "url", /^url: must be the URL of a repository$/],
    ["a number as the URL", { url: 7 }, "url", /^url: must be the URL of a repository$/],
    ["a URL that is too long", { url: "x".repeat(2001) }, "url", /^url: is longer than 2000 characters$/],
    ["refresh as a string", { url: "acme/site", refresh: "yes" }, "refresh", /^refresh: must be true or false$/],
    ["an unknown field", { url: "acme/site", status: "completed" }, "status", /^status: is not a known field$/],
    ["the field __proto__", '{"url":"acme/site","__proto__":{}}', "__proto__", /is not a known field$/],
    ["a list", ["acme/site"], "body", /^body: /],
    ["invalid JSON", "{", "body", /^The body is not valid JSON in UTF-8$/],
  ])("with %s is refused and names the field", async (_, sent, field, detail) => {
    const { status, body, headers } = await api.post("/leaderboard", sent);
    expect([status, body]).toEqual([
      400,
      expect.objectContaining({ status: 400, code: "INVALID_INPUT", field, detail: expect.stringMatching(detail) }),
    ]);
    expect(headers.get("content-type")).toBe("application/problem+json");
  });

  it.each([
    ["", "url: is empty"],
    ["https://ada:s3cret@github.com/acme/site", "url: is not a repository URL"],
    ["https://gitlab.com/acme/site", "url: is a URL of gitlab.com, but only repositories of github.com are supported"],
    ["javascript:alert(1)", "url: is not a repository URL"],
    ["acme", "url: must contain an owner and a repository name"],
  ])("with the invalid URL %j is refused with a remedy", async (url, detail) => {
    const { body, text } = await api.post("/leaderboard", { url });
    expect(body).toEqual({ status: 400, code: "INVALID_INPUT", field: "url", detail, remedy: REMEDY });
    expect(text).not.toContain("s3cret");
  });

  it("is refused if the body is too large, is not declared as JSON, or is not expected", async () => {
    expect((await api.post("/leaderboard", { url: "x".repeat(70_000) })).status).toBe(413);
    const form = await api.post("/leaderboard", '{"url":"acme/site"}', { "content-type": "text/plain" });
    expect(form.status).toBe(415);
    for (const path of ["/sample", `/leaderboard/${UNKNOWN_ID}/users`]) {
      expect((await api.post(path, { refresh: true })).body).toMatchObject({ status: 400, field: "refresh" });
    }
    expect(await counts()).toEqual({ records: 0, jobs: 0 });
  });

  it("with an invalid query is refused and names the field", async () => {
    const { id } = (await api.post("/leaderboard", { url: "acme/asked" })).body;
    const cursors = ["x", "W10", base64('["a","b"]'), base64('["1","a\\u0000"]'), base64('["1"]')];
    for (const list of ["/leaderboard", `/leaderboard/${id}`]) {
      for (const query of ["limit=0", "limit=201", "limit=ten", "limit=1.5", "sort=name"]) {
        const { status, body } = await api.get(`${list}?${query}`);
        expect([query, status, body.field]).toEqual([query, 400, query.split("=")[0]]);
      }
      for (const cursor of cursors) {
        expect([cursor, (await api.get(`${list}?cursor=${cursor}`)).body]).toEqual([
          cursor,
          expect.objectContaining({ status: 400, field: "cursor", remedy: expect.stringContaining("previous page") }),
        ]);
      }
    }
  });

  it("for something that does not exist returns 404 with a remedy", async () => {
    const ids = [UNKNOWN_ID, "1", "%00", "..%2f..", `${UNKNOWN_ID}'--`];
    for (const id of ids) {
      const responses = [
        await api.get(`/leaderboard/${id}`),
        await api.get(`/leaderboard/${id}/token`),
        await api.post(`/leaderboard/${id}/users`),
      ];
      for (const { status, body } of responses) {
        expect([id, status, body.detail]).toEqual([id, 404, "There is no such leaderboard"]);
        expect(body.remedy).toMatch(/^(Check the id: |The path must contain the id )/);
      }
    }
    expect((await api.get("/nowhere")).body).toMatchObject({ status: 404, detail: "There is no such address" });
    expect((await api.post("/sample")).body).toMatchObject({ status: 404, detail: "This server has no sample" });
  });
});

describe("a server with a token", () => {
  it("returns data only with the token, in a header or as a session cookie", async () => {
    const { id } = (await api.post("/leaderboard", { url: "acme/guarded" })).body;
    const paths = ["/leaderboard", `/leaderboard/${id}`, `/leaderboard/${id}/token`, "/quota", "/stuck", "/me"];
    const posts = ["/leaderboard", "/sample", `/leaderboard/${id}/users`];
    for (const headers of [{}, { authorization: "Bearer wrong" }, { cookie: "leaderboard=9999999999999.x" }]) {
      const sent = headers as Record<string, string>;
      for (const path of paths) expect([path, (await locked.get(path, sent)).status]).toEqual([path, 401]);
      for (const path of posts) expect([path, (await locked.post(path, {}, sent)).status]).toEqual([path, 401]);
    }
    expect((await locked.get("/nowhere")).status).toBe(401);
    const bearer = { authorization: `Bearer ${TOKEN}` };
    for (const path of paths) {
      expect([path, [200, 202].includes((await locked.get(path, bearer)).status)]).toEqual([path, true]);
    }
    expect((await locked.post("/session", { token: "wrong" })).body).toMatchObject({ status: 401, field: "token" });
    const { status, headers } = await locked.post("/session", { token: TOKEN });
    const [cookie = ""] = headers.get("set-cookie")?.split(";") ?? [];
    expect([status, cookie]).toEqual([204, expect.stringMatching(/^leaderboard=\d+\.[\w-]+$/)]);
    expect((await locked.get("/me", { cookie })).body).toEqual({ open: false, sample: null });
    expect([...locked.responses].filter((text) => text.includes(TOKEN))).toEqual([]);
    // Without a secret the live view needs no token.
    expect((await locked.get(`/leaderboard/${id}/token`, bearer)).body).toEqual({ token: null });
  });

  it("refuses cross-site requests of a browser", async () => {
    for (const headers of [{ origin: "https://example.net" }, { "sec-fetch-site": "cross-site" }]) {
      const response = await api.post("/leaderboard", { url: "acme/forged" }, headers as Record<string, string>);
      expect(response.status).toBe(403);
    }
    expect((await api.post("/leaderboard", { url: "acme/own" }, { origin: api.origin })).status).toBe(202);
  });
});

describe("a record and its job", () => {
  it.each([
    ["the job cannot be stored", "before insert on stillwake.live_jobs", undefined],
    ["the record cannot be updated with its job", "before update on leaderboard.repositories", undefined],
    ["it is read again and the job cannot be stored", "before insert on stillwake.live_jobs", "acme/read-before"],
  ])("are stored together or not at all, if %s", async (_, event, existing) => {
    const repository = existing ?? "acme/never";
    if (existing) {
      const { jobs } = (await api.post("/leaderboard", { url: repository })).body;
      await claimReading(setup, jobs.commits, { outcome: "failed", fatal: true, failure: { message: "Gone" } });
      await api.get("/leaderboard");
    }
    const before = await counts();
    await pool.query(
      "create function leaderboard.reject_change() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$",
    );
    await pool.query(`create trigger reject_change ${event} for each row execute function leaderboard.reject_change()`);
    const { status, body, text } = await api.post("/leaderboard", { url: repository });
    await pool.query("drop function leaderboard.reject_change() cascade");
    expect([status, body.code]).toEqual([500, "INTERNAL"]);
    expect(text).not.toMatch(/reject_change|insert|update|exception/i);
    expect(api.internalErrors.splice(0)).toHaveLength(1);
    expect(await counts()).toEqual(before);

    // The next request succeeds.
    const { body: created } = await api.post("/leaderboard", { url: repository });
    expect(created).toMatchObject({ status: "pending", repository });
    expect(await counts()).toEqual({ records: before.records + (existing ? 0 : 1), jobs: before.jobs + 1 });
    await pool.query("delete from leaderboard.repositories where id = $1", [created.id]);
  });

  it("whose job was deleted is failed, and is read again on the next request", async () => {
    const { id } = (await api.post("/leaderboard", { url: "acme/forgotten" })).body;
    await pool.query("update leaderboard.repositories set reading = $2 where id = $1", [id, UNKNOWN_ID]);
    expect((await api.get(`/leaderboard/${id}`)).body).toMatchObject({
      status: "failed",
      error: "The job was deleted before its outcome was recorded",
    });
    const again = await api.post("/leaderboard", { url: "acme/forgotten" });
    expect([again.status, again.body.status]).toEqual([202, "pending"]);
  });
});

it("the server needs only the roles leaderboard_api and stillwake_app", async () => {
  const role = `server_${UNKNOWN_ID.slice(0, 8)}_${process.pid}`;
  await pool.query(`create role ${role} login password 'x'; grant stillwake_app, leaderboard_api to ${role}`);
  const url = new URL(setup.url);
  url.username = role;
  url.password = "x";
  const own = new pg.Pool({ connectionString: url.href, max: 2 });
  const stillwake = createStillwake({ url: url.href });
  try {
    const server = await serveApi({ url: setup.url, pool: own }, { stillwake }, onTestFinished);
    const { status, body } = await server.post("/leaderboard", { url: "acme/roles" });
    expect([status, body.status]).toEqual([202, "pending"]);
    expect((await server.get(`/leaderboard/${body.id}`)).status).toBe(202);
    for (const path of ["/leaderboard", "/stuck", "/quota"]) expect((await server.get(path)).status).toBe(200);
    const { jobs } = await setup.addCounted("acme/roles", { "ada@example.com": 1 });
    await setup.stillwake.cancel(jobs[0]!);
    expect((await server.post(`/leaderboard/${body.id}/users`)).body).toMatchObject({ lookups: 1, jobs: 1 });
    await expect(own.query("drop table leaderboard.repositories")).rejects.toThrow(/must be owner/);
    expect(server.internalErrors).toEqual([]);
  } finally {
    await stillwake.close();
    await own.end();
    await pool.query(`drop owned by ${role}; drop role ${role}`);
  }
});

function base64(text: string): string {
  return Buffer.from(text).toString("base64url");
}

async function counts(): Promise<{ records: number; jobs: number }> {
  const { rows } = await pool.query(
    "select (select count(*)::integer from leaderboard.repositories) as records, (select count(*)::integer from stillwake.jobs) as jobs",
  );
  return rows[0];
}
