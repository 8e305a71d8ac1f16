// What the API keeps out, and what it keeps together: who may ask, what is refused and in which words, and records that are never without their job.
import pg from "pg";
import { createStillwake } from "stillwake";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { hand, serve } from "../support/app-server.ts";
import { stage } from "../support/leaderboards.ts";

const place = await stage();
const { pool } = place;
const TOKEN = "a-token-of-more-than-twenty-characters";
const NOBODY = "01a1e107-2508-4182-ae66-db7bbe9aa49e";
const api = await serve(place);
const locked = await serve(place, { token: TOKEN, secret: null });

afterAll(() => {
  for (const { answers } of [api, locked]) expect(answers.filter((text) => text.includes("@"))).toEqual([]);
  expect([...api.inside, ...locked.inside]).toEqual([]);
});

const REMEDY = "Write it as https://github.com/owner/name, or as owner/name";

describe("what is sent", () => {
  it.each<[what: string, body: unknown, field: string, detail: RegExp]>([
    ["no address", {}, "url", /^url: should be the address of a repository$/],
    ["a number for an address", { url: 7 }, "url", /^url: should be the address of a repository$/],
    ["an address without end", { url: "x".repeat(2001) }, "url", /^url: is longer than 2000 characters$/],
    ["refresh in words", { url: "acme/site", refresh: "yes" }, "refresh", /^refresh: should be true or false$/],
    ["what is not known", { url: "acme/site", status: "completed" }, "status", /^status: is not known here$/],
    ["a key of JavaScript's own", '{"url":"acme/site","__proto__":{}}', "__proto__", /is not known here$/],
    ["a list", ["acme/site"], "body", /^body: /],
    ["what is no JSON", "{", "body", /^The body is not JSON in UTF-8$/],
  ])("is refused with %s, and the field is named", async (_, sent, field, detail) => {
    const { status, body, headers } = await api.post("/leaderboard", sent);
    expect([status, body]).toEqual([
      400,
      expect.objectContaining({ status: 400, code: "INVALID_INPUT", field, detail: expect.stringMatching(detail) }),
    ]);
    expect(headers.get("content-type")).toBe("application/problem+json");
  });

  it.each([
    ["", "url: is empty"],
    ["https://ada:s3cret@github.com/acme/site", "url: is no address of a repository"],
    ["https://gitlab.com/acme/site", "url: names gitlab.com, and contributors can be looked up at github.com alone"],
    ["javascript:alert(1)", "url: is no address of a repository"],
    ["acme", "url: does not name a repository: an owner and a name are needed"],
  ])("as an address is refused when it is none (%j), with what to write in its place", async (url, detail) => {
    const { body, text } = await api.post("/leaderboard", { url });
    expect(body).toEqual({ status: 400, code: "INVALID_INPUT", field: "url", detail, remedy: REMEDY });
    expect(text).not.toContain("s3cret");
  });

  it("is refused when it is too large, when it is no JSON by its own word, and where nothing is expected", async () => {
    expect((await api.post("/leaderboard", { url: "x".repeat(70_000) })).status).toBe(413);
    const form = await api.post("/leaderboard", '{"url":"acme/site"}', { "content-type": "text/plain" });
    expect(form.status).toBe(415);
    for (const path of ["/sample", `/leaderboard/${NOBODY}/users`]) {
      expect((await api.post(path, { refresh: true })).body).toMatchObject({ status: 400, field: "refresh" });
    }
    expect(await counts()).toEqual({ records: 0, jobs: 0 });
  });

  it("as a question is refused with its field", async () => {
    const { id } = (await api.post("/leaderboard", { url: "acme/asked" })).body;
    const cursors = ["x", "W10", base64('["a","b"]'), base64('["1","a\\u0000"]'), base64('["1"]')];
    for (const list of ["/leaderboard", `/leaderboard/${id}`]) {
      for (const question of ["limit=0", "limit=201", "limit=ten", "limit=1.5", "sort=name"]) {
        const { status, body } = await api.get(`${list}?${question}`);
        expect([question, status, body.field]).toEqual([question, 400, question.split("=")[0]]);
      }
      for (const cursor of cursors) {
        expect([cursor, (await api.get(`${list}?cursor=${cursor}`)).body]).toEqual([
          cursor,
          expect.objectContaining({ status: 400, field: "cursor", remedy: expect.stringContaining("page before") }),
        ]);
      }
    }
  });

  it("to what is not there is answered with 404, and words", async () => {
    const nothing = [NOBODY, "1", "%00", "..%2f..", `${NOBODY}'--`];
    for (const id of nothing) {
      const answers = [
        await api.get(`/leaderboard/${id}`),
        await api.get(`/leaderboard/${id}/token`),
        await api.post(`/leaderboard/${id}/users`),
      ];
      for (const { status, body } of answers) {
        expect([id, status, body.detail]).toEqual([id, 404, "There is no such leaderboard"]);
        expect(body.remedy).toMatch(/^(It was deleted|The address has no id)/);
      }
    }
    expect((await api.get("/nowhere")).body).toMatchObject({ status: 404, detail: "There is no such address" });
    expect((await api.post("/sample")).body).toMatchObject({ status: 404, detail: "There is no sample here" });
  });
});

describe("where the server has a token", () => {
  it("nothing is told without it, and everything with it, by a header or by the cookie that stands for it", async () => {
    const { id } = (await api.post("/leaderboard", { url: "acme/guarded" })).body;
    const paths = ["/leaderboard", `/leaderboard/${id}`, `/leaderboard/${id}/token`, "/budget", "/stuck", "/me"];
    const posts = ["/leaderboard", "/sample", `/leaderboard/${id}/users`];
    for (const headers of [{}, { authorization: "Bearer wrong" }, { cookie: "leaderboard=9999999999999.x" }]) {
      const given = headers as Record<string, string>;
      for (const path of paths) expect([path, (await locked.get(path, given)).status]).toEqual([path, 401]);
      for (const path of posts) expect([path, (await locked.post(path, {}, given)).status]).toEqual([path, 401]);
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
    expect([...locked.answers].filter((text) => text.includes(TOKEN))).toEqual([]);
    // And where nobody signs tokens for the live view, it needs none.
    expect((await locked.get(`/leaderboard/${id}/token`, bearer)).body).toEqual({ token: null });
  });

  it("a page of another site cannot make a browser ask", async () => {
    for (const headers of [{ origin: "https://example.net" }, { "sec-fetch-site": "cross-site" }]) {
      const answer = await api.post("/leaderboard", { url: "acme/forged" }, headers as Record<string, string>);
      expect(answer.status).toBe(403);
    }
    expect((await api.post("/leaderboard", { url: "acme/own" }, { origin: api.origin })).status).toBe(202);
  });
});

describe("a record and its job", () => {
  it.each([
    ["the job cannot be stored", "before insert on stillwake.live_jobs", undefined],
    ["the record cannot be told its job", "before update on leaderboard.repositories", undefined],
    ["it is read anew and the job cannot be stored", "before insert on stillwake.live_jobs", "acme/read-before"],
  ])("are stored together or not at all: when %s", async (_, when, known) => {
    const repository = known ?? "acme/never";
    if (known) {
      const { jobs } = (await api.post("/leaderboard", { url: repository })).body;
      await hand(place, jobs.commits, { outcome: "failed", fatal: true, failure: { message: "Gone" } });
      await api.get("/leaderboard");
    }
    const before = await counts();
    await pool.query(
      "create function leaderboard.stumble() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$",
    );
    await pool.query(`create trigger stumble ${when} for each row execute function leaderboard.stumble()`);
    const { status, body, text } = await api.post("/leaderboard", { url: repository });
    await pool.query("drop function leaderboard.stumble() cascade");
    expect([status, body.code]).toEqual([500, "INTERNAL"]);
    expect(text).not.toMatch(/stumble|insert|update|exception/i);
    expect(api.inside.splice(0)).toHaveLength(1);
    expect(await counts()).toEqual(before);

    // Nothing is left that would be in the way of the next one who asks.
    const { body: made } = await api.post("/leaderboard", { url: repository });
    expect(made).toMatchObject({ status: "pending", repository });
    expect(await counts()).toEqual({ records: before.records + (known ? 0 : 1), jobs: before.jobs + 1 });
    await pool.query("delete from leaderboard.repositories where id = $1", [made.id]);
  });

  it("that the engine has forgotten is a failure in words, and is read anew", async () => {
    const { id } = (await api.post("/leaderboard", { url: "acme/forgotten" })).body;
    await pool.query("update leaderboard.repositories set reading = $2 where id = $1", [id, NOBODY]);
    expect((await api.get(`/leaderboard/${id}`)).body).toMatchObject({
      status: "failed",
      error: "Its job is no longer there, and nobody has seen how it ended",
    });
    const again = await api.post("/leaderboard", { url: "acme/forgotten" });
    expect([again.status, again.body.status]).toEqual([202, "pending"]);
  });
});

it("the server needs the roles leaderboard_api and stillwake_app, and no more", async () => {
  const role = `server_${NOBODY.slice(0, 8)}_${process.pid}`;
  await pool.query(`create role ${role} login password 'x'; grant stillwake_app, leaderboard_api to ${role}`);
  const url = new URL(place.url);
  url.username = role;
  url.password = "x";
  const own = new pg.Pool({ connectionString: url.href, max: 2 });
  const stillwake = createStillwake({ url: url.href });
  try {
    const server = await serve({ url: place.url, pool: own }, { stillwake }, onTestFinished);
    const { status, body } = await server.post("/leaderboard", { url: "acme/roles" });
    expect([status, body.status]).toEqual([202, "pending"]);
    expect((await server.get(`/leaderboard/${body.id}`)).status).toBe(202);
    for (const path of ["/leaderboard", "/stuck", "/budget"]) expect((await server.get(path)).status).toBe(200);
    const { jobs } = await place.counted("acme/roles", { "ada@example.com": 1 });
    await place.stillwake.cancel(jobs[0]!);
    expect((await server.post(`/leaderboard/${body.id}/users`)).body).toMatchObject({ lookups: 1, jobs: 1 });
    await expect(own.query("drop table leaderboard.repositories")).rejects.toThrow(/must be owner/);
    expect(server.inside).toEqual([]);
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
