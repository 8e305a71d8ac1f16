// Who may come in, and what is refused: hostile bodies, questions and addresses, pages of other sites; lists page by page; reports that are saved and never run; the
// application mounted below a path; the process.
import { spawn } from "node:child_process";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { createApi } from "../../src/api.ts";
import { readServerSettings } from "../../src/server-settings.ts";
import { apiOn, type Caller, callAt } from "../support/api-calls.ts";
import { extracted, FOUND, type Served, serveApp } from "../support/app-server.ts";

const database = await freshDatabase();
const inside: unknown[] = [];
const TOKEN = "a-token-of-more-than-twenty-characters";
let served: Served;
let api: Caller;
let project: string;
let job: string;

beforeAll(async () => {
  served = await serveApp(database.url, { base: "/extraction/", onError: (error) => void inside.push(error) });
  api = served.api;
  ({ project, job } = await extracted(served, "acme/site"));
});
afterAll(async () => {
  await served.close();
  expect(inside).toEqual([]);
});

const guarded = () => createApi({ pool: served.pool, stillwake: served.live.stillwake, token: TOKEN });

describe("whoever comes in", () => {
  it("needs the token, where there is one, in a header or in the cookie of the page", async () => {
    const stranger = apiOn(guarded());
    for (const path of ["/projects", "/me", "/costs", `/extractions/${job}/token`, "/sample"]) {
      expect([path, (await stranger.get(path)).status]).toEqual([path, 401]);
    }
    expect((await stranger.post("/projects", { repository: "a/b" })).status).toBe(401);
    expect((await stranger.get("/projects", { authorization: "Bearer wrong" })).status).toBe(401);
    expect((await stranger.get("/projects", { authorization: `Bearer ${TOKEN}` })).status).toBe(200);
    // Names of this machine are of no matter then.
    expect(
      (await stranger.get("/projects", { authorization: `Bearer ${TOKEN}`, host: "scan.example.com" })).status,
    ).toBe(200);

    expect((await stranger.post("/session", { token: "wrong" })).body).toMatchObject({ status: 401, field: "token" });
    const { status, headers } = await stranger.post("/session", { token: TOKEN }, { "x-forwarded-proto": "https" });
    expect(status).toBe(204);
    const cookie = headers.get("set-cookie")!;
    expect(cookie).toMatch(/HttpOnly; SameSite=Strict; Max-Age=43200; Secure$/);
    expect(cookie).not.toContain(TOKEN);
    const [session] = cookie.split(";");
    expect((await stranger.get("/projects", { cookie: session! })).status).toBe(200);
    const [until, signed] = session!.split("=")[1]!.split(".");
    expect((await stranger.get("/projects", { cookie: `extraction=${Number(until) + 1}.${signed}` })).status).toBe(401);
  });

  it("comes from this machine where there is no token, and by one of its names", async () => {
    const open = apiOn(createApi({ pool: served.pool, stillwake: served.live.stillwake }));
    expect((await open.get("/projects", { host: "localhost:4800" })).status).toBe(200);
    expect((await open.get("/projects", { host: "rebound.example.com" })).body).toMatchObject({ status: 403 });
  });

  it("may not be a page of another site that makes a browser do it", async () => {
    const forged = [
      { origin: "https://evil.example.com" },
      { origin: "null" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ];
    for (const headers of forged) {
      const answer = await api.post(`/projects/${project}/extractions`, undefined, headers as Record<string, string>);
      expect([headers, answer.status]).toEqual([headers, 403]);
    }
    const form = await api.ask("/projects", {
      method: "POST",
      headers: { "content-type": "text/plain" },
      body: '{"repository":"a/b"}',
    });
    expect(form.status).toBe(415);
    const own = await api.post("/projects", { repository: "a/b", extract: false }, { origin: served.origin });
    expect(own.status).toBe(201);
  });

  it("is answered with headers that let nothing be kept, framed, sniffed or run", async () => {
    for (const { headers } of [
      await api.get("/projects"),
      await api.get("/nowhere"),
      await api.post("/projects", {}),
    ]) {
      expect(Object.fromEntries(headers)).toMatchObject({
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
      });
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });
});

describe("what is sent", () => {
  const wrong: [string, object, string][] = [
    ["no repository", {}, "repository"],
    ["a repository that is an option", { repository: "--upload-pack=x/y" }, "repository"],
    ["a repository with a scheme", { repository: "ext::sh -c x/y" }, "repository"],
    ["a repository that leads elsewhere", { repository: "../../etc/passwd" }, "repository"],
    ["a repository of one part", { repository: "acme" }, "repository"],
    ["a branch that is an option", { repository: "a/b", branch: "--config=x" }, "branch"],
    ["a branch with a range", { repository: "a/b", branch: "a..b" }, "branch"],
    ["a branch with control characters", { repository: "a/b", branch: "a\u0000b" }, "branch"],
    ["a path that leads out", { repository: "a/b", packagePath: "a/../../b" }, "packagePath"],
    ["a path from the root", { repository: "a/b", packagePath: "/etc" }, "packagePath"],
    ["a provider that is none", { repository: "a/b", provider: "sourceforge" }, "provider"],
    [
      "an organization",
      { repository: "a/b", organizationId: "00000000-0000-4000-8000-000000000002" },
      "organizationId",
    ],
    ["a credential in the plain", { repository: "a/b", credential: "glpat-123456789" }, "credential"],
    ["a name without end", { repository: "a/b", name: "x".repeat(201) }, "name"],
    ["a number for a flag", { repository: "a/b", extract: 1 }, "extract"],
    ["a key of JavaScript's own", JSON.parse('{"repository":"a/b","__proto__":{"extract":false}}'), "__proto__"],
  ];
  it.each(wrong)("is refused with %s, and the field is named", async (_, sent, field) => {
    const { status, body } = await api.post("/projects", sent);
    expect(status).toBe(400);
    expect(body).toMatchObject({ code: "INVALID_INPUT", field });
    expect(body.detail).toMatch(new RegExp(`^${field}: `));
  });

  it("is refused when it is no JSON, too large, or of another shape", async () => {
    const send = (body: string | Uint8Array<ArrayBuffer>) =>
      api.ask("/projects", { method: "POST", headers: { "content-type": "application/json" }, body });
    expect((await send("{")).body).toMatchObject({ status: 400, field: "body" });
    expect((await send(new Uint8Array([0x22, 0xff, 0x22]))).body).toMatchObject({ status: 400, field: "body" });
    expect((await send('["a/b"]')).body).toMatchObject({ status: 400, field: "body" });
    expect((await send(JSON.stringify({ repository: "a/b", name: "x".repeat(70_000) }))).status).toBe(413);
    expect((await send(`${"[".repeat(30_000)}${"]".repeat(30_000)}`)).status).toBe(400);
    expect((await api.patch(`/projects/${project}`, {})).body.detail).toMatch(/nothing to change/);
    expect((await api.post(`/projects/${project}/extractions`, { key: "other" })).body).toMatchObject({
      status: 400,
      field: "key",
    });
  });

  it("is refused in an address as well: ids, cursors, filters", async () => {
    const paths = [
      "/projects/1",
      "/projects/%00",
      "/projects/..%2f..",
      `/projects/${project}'--`,
      "/extractions/x",
      "/nowhere",
    ];
    for (const path of paths) expect([path, (await api.get(path)).status]).toEqual([path, 404]);
    const cursors = [
      "x",
      "W10",
      Buffer.from('["a","b"]').toString("base64url"),
      Buffer.from('["99999-01-01","x"]').toString("base64url"),
    ];
    for (const cursor of cursors) {
      expect([cursor, (await api.get(`/projects?cursor=${cursor}`)).body]).toEqual([
        cursor,
        expect.objectContaining({ status: 400, field: "cursor" }),
      ]);
    }
    for (const [list, question, field] of [
      ["vulnerabilities", "severity=worst", "severity"],
      ["vulnerabilities", "limit=0", "limit"],
      ["vulnerabilities", "limit=1e9", "limit"],
      ["findings", "kind=both", "kind"],
      ["dependencies", "direct=1", "direct"],
      ["dependencies", `q=${"x".repeat(201)}`, "q"],
      ["dependencies", "sort=purl;drop", "sort"],
    ]) {
      const { status, body } = await api.get(`/projects/${project}/${list}?${question}`);
      expect([question, status, body.field.split(".")[0]]).toEqual([question, 400, field]);
    }
  });
});

describe("a list", () => {
  const all = async (list: string, limit: number, question = "") => {
    const rows: Record<string, unknown>[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const { body } = await api.get(
        `/projects/${project}/${list}?limit=${limit}${question}${cursor && `&cursor=${cursor}`}`,
      );
      rows.push(...body.rows);
      cursor = body.cursor;
    }
    return rows;
  };

  it("of vulnerabilities has the worst first, then those most likely to be exploited, on however many pages", async () => {
    const ids = ["0002", "0001", "0004", "0003"].map((end) => `STILLWAKE-2026-${end}`);
    for (const limit of [1, 3, 50]) expect((await all("vulnerabilities", limit)).map(({ id }) => id)).toEqual(ids);
    expect((await all("vulnerabilities", 50, "&kev=true")).map(({ id, kev }) => [id, kev])).toEqual([
      [ids[0], FOUND.exploited!.byCve["CVE-2026-2000"]!.kev],
    ]);
    expect((await all("vulnerabilities", 50, "&kev=false")).map(({ id }) => id)).toEqual(ids.slice(1));
    expect((await all("vulnerabilities", 50, "&severity=low,medium")).map(({ id }) => id)).toEqual(ids.slice(2));
    expect((await all("vulnerabilities", 50, "&reachable=true")).map(({ id }) => id)).toEqual([ids[1]]);
    expect((await all("vulnerabilities", 50, "&q=cve-2026-20")).map(({ id }) => id)).toEqual([ids[0]]);
  });

  it("of findings and of dependencies can be filtered and searched, and what is searched is text", async () => {
    expect((await all("findings", 1)).map(({ fingerprint }) => fingerprint)).toEqual(["s1", "f1", "f2"]);
    expect((await all("findings", 50, "&kind=secret")).map(({ rule }) => rule)).toEqual(["aws-access-key"]);
    expect((await all("findings", 50, "&q=prices.py")).map(({ rule }) => rule)).toEqual(["python-yaml-load"]);
    expect((await all("dependencies", 2)).map(({ name }) => name)).toEqual(["express", "lodash", "minimist"]);
    expect((await all("dependencies", 50, "&direct=false")).map(({ name }) => name)).toEqual(["minimist"]);
    for (const sign of ["%25", "_", "%5C", "'"]) expect(await all("dependencies", 50, `&q=${sign}`)).toEqual([]);
    const { body } = await api.get(`/projects/${project}/dependencies?limit=2`);
    expect(body.total).toBe(3);
  });
});

it("tells what an extraction cost and where, and what the pool costs while nobody uses it", async () => {
  const { cost, machines } = (await api.get(`/extractions/${job}`)).body;
  expect(machines).toEqual(["sw-7c1d20ab-scan-m1"]);
  expect(cost).toMatchObject({
    provisional: false,
    parts: [{ size: "performance-8x", region: "iad", pricePerSecond: 0.00021302 }],
  });
  expect(cost.amount / (300 * 0.00021302)).toBeCloseTo(1, 1);
  const { month, idlePools } = (await api.get("/costs")).body;
  expect(month).toEqual({ amount: cost.amount, extractions: 1 });
  expect(idlePools).toMatchObject([{ pool: "scan", machines: 3 }]);
});

describe("a report", () => {
  it("is saved, whatever is in it, and never shown", async () => {
    const { reports } = (await api.get(`/extractions/${job}/reports`)).body;
    expect(reports.map(({ name, kept }: { name: string; kept: boolean }) => [name, kept])).toEqual([
      ["reports/summary.html", true],
      ["sbom.cdx.json", true],
    ]);
    const { status, text, headers } = await api.get(`/extractions/${job}/reports/reports/summary.html`);
    expect([status, text]).toEqual([200, "<script>alert(1)</script>"]);
    expect(headers.get("content-disposition")).toMatch(/^attachment; filename="[\w-]+-summary\.html"/);
    expect(headers.get("content-security-policy")).toBe("sandbox; default-src 'none'");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect((await api.get(`/extractions/${job}/reports/sbom.cdx.json`)).body).toEqual({ bomFormat: "CycloneDX" });
    const head = await api.ask(`/extractions/${job}/reports/sbom.cdx.json`, { method: "HEAD" });
    expect([head.status, head.headers.get("content-length")]).toEqual([200, "25"]);
  });

  it("that is none, or is what passes from step to step, is not there", async () => {
    for (const name of ["found/secrets.json", "..%2f..%2fetc%2fpasswd", "%ff", "nothing", ""]) {
      expect([name, (await api.get(`/extractions/${job}/reports/${name}`)).status]).toEqual([name, 404]);
    }
  });
});

describe("the application", () => {
  it("is one origin below its path: the page, the API, and the server that follows jobs", async () => {
    const at = callAt(served.origin);
    expect((await at.ask("/extraction", { redirect: "manual" })).headers.get("location")).toBe(`${served.home}`);
    for (const place of ["/extraction/", `/extraction/projects/${project}`]) {
      const { status, text, headers } = await at.get(place);
      expect([status, text]).toEqual([200, expect.stringContaining('<base href="/extraction/"')]);
      expect(headers.get("content-security-policy")).toMatch(/script-src 'self';.*require-trusted-types-for 'script'/);
      expect(text).not.toMatch(/<script>|<script(?![^>]*src=)|style=|onload=/);
    }
    for (const place of [
      "/",
      "/api/projects",
      "/extraction/index.html",
      "/extraction/../package.json",
      "/extraction/assets/none.js",
    ]) {
      expect([place, (await at.get(place)).status]).toEqual([place, 404]);
    }
    const { token } = (await api.get(`/extractions/${job}/token`)).body;
    const followed = await at.get(`/extraction/stillwake/v1/jobs/${job}`, { authorization: `Bearer ${token}` });
    expect(followed.body).toMatchObject({ id: job, state: "completed" });
    expect((await at.get(`/extraction/stillwake/v1/jobs/${job}`)).status).toBe(401);
  });

  it("refuses to begin where everybody could do everything, and says what to set", () => {
    const env = { STILLWAKE_DATABASE_URL: "postgres://x/y", STILLWAKE_STORE: "file:./a" };
    expect(() => readServerSettings({ ...env, EXTRACTION_HOST: "0.0.0.0" })).toThrow(
      /EXTRACTION_API_TOKEN.*0\.0\.0\.0/,
    );
    expect(() => readServerSettings({ ...env, EXTRACTION_API_TOKEN: "short" })).toThrow(/20 at least/);
    expect(() => readServerSettings({ ...env, EXTRACTION_ORGANIZATION: "acme" })).toThrow(/UUID/);
    expect(() => readServerSettings({ ...env, EXTRACTION_PORT: "http" })).toThrow(/whole number/);
    expect(() => readServerSettings({ STILLWAKE_STORE: "file:./a" })).toThrow(/STILLWAKE_DATABASE_URL/);
    expect(
      readServerSettings({
        ...env,
        EXTRACTION_HOST: "0.0.0.0",
        EXTRACTION_API_TOKEN: TOKEN,
        EXTRACTION_FLY_APP: "scan",
      }).fly,
    ).toMatchObject({
      app: "scan",
      size: "performance-8x",
      memoryMb: 65_536,
      region: "iad",
      warm: 3,
      max: 5,
    });
  });

  it("is a process that serves until it is told to stop, and then ends well", async () => {
    buildPackage();
    const env = {
      PATH: process.env.PATH!,
      STILLWAKE_DATABASE_URL: database.url,
      STILLWAKE_STORE: "file:./nowhere",
      STILLWAKE_SECRET: "a secret of more than thirty-two characters",
      EXTRACTION_API_TOKEN: TOKEN,
      EXTRACTION_PORT: "0",
    };
    const server = start(env);
    const said = () => /served at (http:\S+)/.exec(server.output())?.[1];
    await waitFor(() => said() !== undefined || server.code() !== undefined, { timeout: 25_000, what: "the server" });
    const at = callAt(`${said()}api`);
    expect((await at.get("/projects")).status).toBe(401);
    expect((await at.get("/projects", { authorization: `Bearer ${TOKEN}` })).body.total).toBeGreaterThan(0);
    server.stop();
    await waitFor(() => server.code() !== undefined, { timeout: 15_000, what: "its end" });
    expect([server.code(), server.output()]).toEqual([0, expect.not.stringContaining(TOKEN)]);

    const open = start({ ...env, EXTRACTION_API_TOKEN: "", EXTRACTION_HOST: "0.0.0.0" });
    await waitFor(() => open.code() !== undefined, { timeout: 15_000, what: "its refusal" });
    expect([open.code(), open.output()]).toEqual([
      1,
      expect.stringMatching(/^Without EXTRACTION_API_TOKEN it cannot listen on 0\.0\.0\.0/),
    ]);
  }, 90_000);
});

function start(env: Record<string, string>) {
  const child = spawn(process.execPath, [path.join(ROOT, "pipelines/extraction/dist/server.js")], { env });
  let output = "";
  let code: number | null | undefined;
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  child.on("exit", (given) => (code = given));
  onTestFinished(() => void child.kill("SIGKILL"));
  return { output: () => output, code: () => code, stop: () => child.kill("SIGTERM") };
}
