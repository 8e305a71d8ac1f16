// Access control and validation of the API, paged lists, report downloads, the application below a path, and the server process.
import { spawn } from "node:child_process";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { type Caller, callAt } from "../../../kit/test/support/api-server.ts";
import { createApi } from "../../src/api.ts";
import { readServerSettings } from "../../src/server-settings.ts";
import { apiOn } from "../support/api-calls.ts";
import { addExtractedProject, RESULTS, type ServedApp, serveApp } from "../support/app-server.ts";

const database = await freshDatabase();
const internalErrors: unknown[] = [];
const TOKEN = "a-token-of-more-than-twenty-characters";
let served: ServedApp;
let api: Caller;
let project: string;
let job: string;

beforeAll(async () => {
  served = await serveApp(database.url, { base: "/extraction/", onError: (error) => void internalErrors.push(error) });
  api = served.api;
  ({ project, job } = await addExtractedProject(served, "acme/site"));
});
afterAll(async () => {
  await served.close();
  expect(internalErrors).toEqual([]);
});

const guarded = () => createApi({ pool: served.pool, stillwake: served.live.stillwake, token: TOKEN });

describe("a client", () => {
  it("needs the token, in a header or as a session cookie", async () => {
    const anonymous = apiOn(guarded());
    for (const path of ["/projects", "/me", "/costs", `/extractions/${job}/token`, "/sample"]) {
      expect([path, (await anonymous.get(path)).status]).toEqual([path, 401]);
    }
    expect((await anonymous.post("/projects", { repository: "a/b" })).status).toBe(401);
    expect((await anonymous.get("/projects", { authorization: "Bearer wrong" })).status).toBe(401);
    expect((await anonymous.get("/projects", { authorization: `Bearer ${TOKEN}` })).status).toBe(200);
    // With a token any host name is accepted.
    expect(
      (await anonymous.get("/projects", { authorization: `Bearer ${TOKEN}`, host: "scan.example.com" })).status,
    ).toBe(200);

    expect((await anonymous.post("/session", { token: "wrong" })).body).toMatchObject({ status: 401, field: "token" });
    const { status, headers } = await anonymous.post("/session", { token: TOKEN }, { "x-forwarded-proto": "https" });
    expect(status).toBe(204);
    const cookie = headers.get("set-cookie")!;
    expect(cookie).toMatch(/HttpOnly; SameSite=Strict; Max-Age=43200; Secure$/);
    expect(cookie).not.toContain(TOKEN);
    const [session] = cookie.split(";");
    expect((await anonymous.get("/projects", { cookie: session! })).status).toBe(200);
    const [until, signed] = session!.split("=")[1]!.split(".");
    expect((await anonymous.get("/projects", { cookie: `extraction=${Number(until) + 1}.${signed}` })).status).toBe(
      401,
    );
  });

  it("needs a loopback host name if there is no token", async () => {
    const open = apiOn(createApi({ pool: served.pool, stillwake: served.live.stillwake }));
    expect((await open.get("/projects", { host: "localhost:4800" })).status).toBe(200);
    expect((await open.get("/projects", { host: "rebound.example.com" })).body).toMatchObject({ status: 403 });
  });

  it("cannot send cross-site requests from a browser", async () => {
    const forged = [
      { origin: "https://evil.example.com" },
      { origin: "null" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "same-site" },
    ];
    for (const headers of forged) {
      const response = await api.post(`/projects/${project}/extractions`, undefined, headers as Record<string, string>);
      expect([headers, response.status]).toEqual([headers, 403]);
    }
    const form = await api.request("/projects", {
      method: "POST",
      headers: { "content-type": "text/plain" },
      body: '{"repository":"a/b"}',
    });
    expect(form.status).toBe(415);
    const own = await api.post("/projects", { repository: "a/b", extract: false }, { origin: served.origin });
    expect(own.status).toBe(201);
  });

  it("gets headers against caching, framing, sniffing and scripts", async () => {
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

describe("a request", () => {
  const invalid: [string, object, string][] = [
    ["no repository", {}, "repository"],
    ["a repository that is an option", { repository: "--upload-pack=x/y" }, "repository"],
    ["a repository with a scheme", { repository: "ext::sh -c x/y" }, "repository"],
    ["a repository that is a relative path", { repository: "../../etc/passwd" }, "repository"],
    ["a repository of one part", { repository: "acme" }, "repository"],
    ["a branch that is an option", { repository: "a/b", branch: "--config=x" }, "branch"],
    ["a branch with a range", { repository: "a/b", branch: "a..b" }, "branch"],
    ["a branch with control characters", { repository: "a/b", branch: "a\u0000b" }, "branch"],
    ["a path that leads out of the repository", { repository: "a/b", packagePath: "a/../../b" }, "packagePath"],
    ["an absolute path", { repository: "a/b", packagePath: "/etc" }, "packagePath"],
    ["an unknown provider", { repository: "a/b", provider: "sourceforge" }, "provider"],
    [
      "an organization",
      { repository: "a/b", organizationId: "00000000-0000-4000-8000-000000000002" },
      "organizationId",
    ],
    ["a credential", { repository: "a/b", credential: "glpat-123456789" }, "credential"],
    ["a name that is too long", { repository: "a/b", name: "x".repeat(201) }, "name"],
    ["a number as a flag", { repository: "a/b", extract: 1 }, "extract"],
    ["the field __proto__", JSON.parse('{"repository":"a/b","__proto__":{"extract":false}}'), "__proto__"],
  ];
  it.each(invalid)("with %s is refused and names the field", async (_, sent, field) => {
    const { status, body } = await api.post("/projects", sent);
    expect(status).toBe(400);
    expect(body).toMatchObject({ code: "INVALID_INPUT", field });
    expect(body.detail).toMatch(new RegExp(`^${field}: `));
  });

  it("with a body that is not JSON, too large or not an object is refused", async () => {
    const send = (body: string | Uint8Array<ArrayBuffer>) =>
      api.request("/projects", { method: "POST", headers: { "content-type": "application/json" }, body });
    expect((await send("{")).body).toMatchObject({ status: 400, field: "body" });
    expect((await send(new Uint8Array([0x22, 0xff, 0x22]))).body).toMatchObject({ status: 400, field: "body" });
    expect((await send('["a/b"]')).body).toMatchObject({ status: 400, field: "body" });
    expect((await send(JSON.stringify({ repository: "a/b", name: "x".repeat(70_000) }))).status).toBe(413);
    expect((await send(`${"[".repeat(30_000)}${"]".repeat(30_000)}`)).status).toBe(400);
    expect((await api.patch(`/projects/${project}`, {})).body.detail).toMatch(/must change at least one of/);
    expect((await api.post(`/projects/${project}/extractions`, { key: "other" })).body).toMatchObject({
      status: 400,
      field: "key",
    });
  });

  it("with an invalid id, cursor or filter is refused", async () => {
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
    for (const [list, query, field] of [
      ["vulnerabilities", "severity=worst", "severity"],
      ["vulnerabilities", "limit=0", "limit"],
      ["vulnerabilities", "limit=1e9", "limit"],
      ["findings", "kind=both", "kind"],
      ["dependencies", "direct=1", "direct"],
      ["dependencies", `q=${"x".repeat(201)}`, "q"],
      ["dependencies", "sort=purl;drop", "sort"],
    ]) {
      const { status, body } = await api.get(`/projects/${project}/${list}?${query}`);
      expect([query, status, body.field.split(".")[0]]).toEqual([query, 400, field]);
    }
  });
});

describe("a list", () => {
  const all = async (list: string, limit: number, query = "") => {
    const rows: Record<string, unknown>[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const { body } = await api.get(
        `/projects/${project}/${list}?limit=${limit}${query}${cursor && `&cursor=${cursor}`}`,
      );
      rows.push(...body.rows);
      cursor = body.cursor;
    }
    return rows;
  };

  it("of vulnerabilities is sorted by severity and EPSS, for any page size", async () => {
    const ids = ["0002", "0001", "0004", "0003"].map((end) => `STILLWAKE-2026-${end}`);
    for (const limit of [1, 3, 50]) expect((await all("vulnerabilities", limit)).map(({ id }) => id)).toEqual(ids);
    expect((await all("vulnerabilities", 50, "&kev=true")).map(({ id, kev }) => [id, kev])).toEqual([
      [ids[0], RESULTS.exploited!.byCve["CVE-2026-2000"]!.kev],
    ]);
    expect((await all("vulnerabilities", 50, "&kev=false")).map(({ id }) => id)).toEqual(ids.slice(1));
    expect((await all("vulnerabilities", 50, "&severity=low,medium")).map(({ id }) => id)).toEqual(ids.slice(2));
    expect((await all("vulnerabilities", 50, "&reachable=true")).map(({ id }) => id)).toEqual([ids[1]]);
    expect((await all("vulnerabilities", 50, "&q=cve-2026-20")).map(({ id }) => id)).toEqual([ids[0]]);
  });

  it("of findings and dependencies can be filtered and searched, without wildcards", async () => {
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

it("returns the cost of an extraction by machine, and of the idle pool", async () => {
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
  it("is sent as a download that a browser does not render", async () => {
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
    const head = await api.request(`/extractions/${job}/reports/sbom.cdx.json`, { method: "HEAD" });
    expect([head.status, head.headers.get("content-length")]).toEqual([200, "25"]);
  });

  it("that does not exist or is internal returns 404", async () => {
    for (const name of ["found/secrets.json", "..%2f..%2fetc%2fpasswd", "%ff", "nothing", ""]) {
      expect([name, (await api.get(`/extractions/${job}/reports/${name}`)).status]).toEqual([name, 404]);
    }
  });
});

describe("the application", () => {
  it("serves page, API and live view below its path", async () => {
    const at = callAt(served.origin);
    expect((await at.request("/extraction", { redirect: "manual" })).headers.get("location")).toBe(`${served.home}`);
    for (const route of ["/extraction/", `/extraction/projects/${project}`]) {
      const { status, text, headers } = await at.get(route);
      expect([status, text]).toEqual([200, expect.stringContaining('<base href="/extraction/"')]);
      expect(headers.get("content-security-policy")).toMatch(/script-src 'self';.*require-trusted-types-for 'script'/);
      expect(text).not.toMatch(/<script>|<script(?![^>]*src=)|style=|onload=/);
    }
    for (const route of [
      "/",
      "/api/projects",
      "/extraction/index.html",
      "/extraction/../package.json",
      "/extraction/assets/none.js",
    ]) {
      expect([route, (await at.get(route)).status]).toEqual([route, 404]);
    }
    const { token } = (await api.get(`/extractions/${job}/token`)).body;
    const followed = await at.get(`/extraction/stillwake/v1/jobs/${job}`, { authorization: `Bearer ${token}` });
    expect(followed.body).toMatchObject({ id: job, state: "completed" });
    expect((await at.get(`/extraction/stillwake/v1/jobs/${job}`)).status).toBe(401);
  });

  it("refuses to start without access control, and names the setting", () => {
    const env = { STILLWAKE_DATABASE_URL: "postgres://x/y", STILLWAKE_STORE: "file:./a" };
    expect(() => readServerSettings({ ...env, EXTRACTION_HOST: "0.0.0.0" })).toThrow(
      /EXTRACTION_API_TOKEN.*0\.0\.0\.0/,
    );
    expect(() => readServerSettings({ ...env, EXTRACTION_API_TOKEN: "short" })).toThrow(/at least 20/);
    expect(() => readServerSettings({ ...env, EXTRACTION_ORGANIZATION: "acme" })).toThrow(/UUID/);
    expect(() => readServerSettings({ ...env, EXTRACTION_PORT: "http" })).toThrow(/must be an integer/);
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

  it("is a process that serves until SIGTERM and exits with 0", async () => {
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
    const servedAt = () => /served at (http:\S+)/.exec(server.output())?.[1];
    await waitFor(() => servedAt() !== undefined || server.code() !== undefined, {
      timeout: 25_000,
      what: "the server",
    });
    const at = callAt(`${servedAt()}api`);
    expect((await at.get("/projects")).status).toBe(401);
    expect((await at.get("/projects", { authorization: `Bearer ${TOKEN}` })).body.total).toBeGreaterThan(0);
    server.stop();
    await waitFor(() => server.code() !== undefined, { timeout: 15_000, what: "its exit" });
    expect([server.code(), server.output()]).toEqual([0, expect.not.stringContaining(TOKEN)]);

    const open = start({ ...env, EXTRACTION_API_TOKEN: "", EXTRACTION_HOST: "0.0.0.0" });
    await waitFor(() => open.code() !== undefined, { timeout: 15_000, what: "its refusal" });
    expect([open.code(), open.output()]).toEqual([
      1,
      expect.stringMatching(/^EXTRACTION_API_TOKEN is required to listen on 0\.0\.0\.0/),
    ]);
  }, 90_000);
});

function start(env: Record<string, string>) {
  const child = spawn(process.execPath, [path.join(ROOT, "pipelines/extraction/dist/server.js")], { env });
  let output = "";
  let code: number | null | undefined;
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  child.on("exit", (exitCode) => (code = exitCode));
  onTestFinished(() => void child.kill("SIGKILL"));
  return { output: () => output, code: () => code, stop: () => child.kill("SIGTERM") };
}
