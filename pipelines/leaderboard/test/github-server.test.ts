// The fake GitHub: its responses match GitHub's schema, and it enforces rate limits like GitHub.
import { Octokit } from "@octokit/core";
import { waitFor } from "stillwake/testing";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { compareWithOfficial } from "../../../test/support/providers/schemas/check.ts";
import { publicUser, searchResponse } from "../src/demo/github-responses.ts";
import {
  type Fault,
  type GitHubOptions,
  type GitHubServer,
  type SampleUser,
  serveGitHub,
} from "../src/demo/github-server.ts";
import { SAMPLE_USERS } from "../src/demo/sample.ts";
import { checkResponse, githubDescription, hasOfficialSchema } from "./support/github-description.ts";

const schema = hasOfficialSchema ? "GitHub's schema" : "our own schema (GitHub's is not available)";

const ada: SampleUser = { login: "ada-lh", id: 11, name: "Ada", email: "ada@example.com" };
const bot: SampleUser = { login: "tide[bot]", id: 12, name: null, email: null };

const servers: GitHubServer[] = [];
// Schemas are compiled on first use, which takes longer than some windows.
beforeAll(async () => {
  const server = await serve();
  for (const path of [search("ada@example.com"), "/rate_limit", "/nowhere"]) await get(server, path);
});
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function serve(options: Partial<GitHubOptions> = {}): Promise<GitHubServer> {
  const server = await serveGitHub({ users: [ada, bot], ...options });
  servers.push(server);
  return server;
}

/** Checks each response against the schemas. */
async function get({ url }: GitHubServer, path: string, headers: Record<string, string> = {}) {
  const response = await fetch(url + path, { headers });
  const content = await response.text();
  const body = content === "" ? undefined : JSON.parse(content);
  expect(checkResponse(path, response.status, body), `${path} ${response.status}`).toEqual([]);
  const rate = (name: string) => Number(response.headers.get(`x-ratelimit-${name}`) ?? "missing");
  return {
    status: response.status,
    headers: response.headers,
    body,
    rate: { limit: rate("limit"), used: rate("used"), remaining: rate("remaining") },
    resetMs: rate("reset") * 1000,
  };
}

const search = (email: string, more = "") =>
  `/search/users?q=${encodeURIComponent(`"${email}" in:email type:user`)}${more}`;

describe(`a response of the fake GitHub, checked against ${schema}`, () => {
  it("has a schema that agrees with GitHub's", ({ skip }) => {
    const wrong = compareWithOfficial(githubDescription);
    if (!wrong) skip(`${githubDescription.official.file} is not available`);
    expect(wrong).toEqual([]);
  });

  it("is reported if it is invalid", () => {
    const { node_id, ...user } = publicUser(ada, "http://127.0.0.1");
    const { items } = searchResponse([ada], 0, 1, "http://127.0.0.1");
    const wrong = [
      checkResponse("/users/ada-lh", 200, user),
      checkResponse("/users/ada-lh", 200, { ...user, node_id, mail: "ada@example.com" }),
      checkResponse("/search/users", 200, {
        total_count: 1,
        incomplete_results: false,
        items: [{ ...items[0], id: "11" }],
      }),
      checkResponse("/rate_limit", 200, { resources: {}, rate: {} }),
      checkResponse("/users/ada-lh", 404, { message: "Not Found", status: 404 }),
    ];
    const isOfficial = (problem: string) => /official|simple-user|basic-error/.test(problem);
    expect(wrong.map((problems) => problems.some((problem) => !isOfficial(problem)))).toEqual(Array(5).fill(true));
    expect(wrong.map((problems) => problems.some(isOfficial))).toEqual(Array(5).fill(hasOfficialSchema));
  });

  it("finds the user of an address, ignoring case", async () => {
    const server = await serve();
    const { body } = await get(server, search("Ada@Example.com"));
    expect(body).toMatchObject({ total_count: 1, incomplete_results: false, items: [{ login: "ada-lh", id: 11 }] });
    expect((await get(server, search("da@example.com"))).body).toMatchObject({ total_count: 0, items: [] });
    expect((await get(server, search(""))).body).toMatchObject({ total_count: 0, items: [] });
    expect(server.calls.map(({ path, email }) => [path, email])).toEqual([
      ["/search/users", "Ada@Example.com"],
      ["/search/users", "da@example.com"],
      ["/search/users", ""],
    ]);
  });

  it("respects per_page and page", async () => {
    const users = [1, 2, 3].map((id) => ({ ...ada, id, login: `ada-${id}` }));
    const server = await serve({ users });
    const first = await get(server, search("ada@example.com", "&per_page=2"));
    const second = await get(server, search("ada@example.com", "&per_page=2&page=2"));
    expect([first.body.total_count, first.body.items.length, second.body.items.length]).toEqual([3, 2, 1]);
  });

  it("refuses an empty search and one that is too long", async () => {
    const server = await serve();
    expect(await get(server, "/search/users?q=")).toMatchObject({
      status: 422,
      body: { message: "Validation Failed", errors: [{ field: "q", code: "missing" }] },
    });
    expect(await get(server, search("a".repeat(256)))).toMatchObject({ status: 200 });
    expect(await get(server, search("a".repeat(257)))).toMatchObject({ status: 422 });
  });

  it("describes every user of the sample", async () => {
    const server = await serve({ users: SAMPLE_USERS, search: { limit: 100, windowMs: 60_000 } });
    for (const { login, name, email, id } of SAMPLE_USERS) {
      expect(await get(server, `/users/${login}`)).toMatchObject({ status: 200, body: { login, name, email, id } });
      if (email) expect((await get(server, search(email))).body).toMatchObject({ items: [{ login, id }] });
    }
  });

  it("finds a user by login ignoring case, and an app by its escaped login", async () => {
    const server = await serve();
    expect((await get(server, "/users/ADA-lh")).body).toMatchObject({ login: "ada-lh" });
    expect((await get(server, "/users/tide%5Bbot%5D")).body).toMatchObject({ login: "tide[bot]" });
    expect(await get(server, "/users/ad")).toMatchObject({
      status: 404,
      body: { message: "Not Found", status: "404" },
    });
    expect(await get(server, "/users/%ff")).toMatchObject({ status: 404 });
    expect(await get(server, "/elsewhere")).toMatchObject({ status: 404 });
  });

  it("is 304 for a current ETag, until the user changes", async () => {
    const users = [{ ...ada }];
    const server = await serve({ users });
    const etag = (await get(server, "/users/ada-lh")).headers.get("etag")!;
    expect(etag).toMatch(/^W\/"[0-9a-f]{64}"$/);
    for (const sent of [etag, etag.slice(2), `"other", ${etag}`]) {
      const { status, body, headers } = await get(server, "/users/ada-lh", { "if-none-match": sent });
      expect([status, body, headers.get("etag")]).toEqual([304, undefined, etag]);
    }
    users[0]!.name = "Ada L.";
    expect(await get(server, "/users/ada-lh", { "if-none-match": etag })).toMatchObject({ status: 200 });
  });

  it("is 401 without the token", async () => {
    const server = await serve({ token: "sesame" });
    expect(await get(server, "/users/ada-lh")).toMatchObject({ status: 401, rate: { used: 0 } });
    expect(await get(server, "/users/ada-lh", { authorization: "Bearer other" })).toMatchObject({ status: 401 });
    expect(await get(server, "/users/ada-lh", { authorization: "token sesame" })).toMatchObject({ status: 200 });
    expect(await get(server, "/rate_limit", { authorization: "Bearer sesame" })).toMatchObject({ status: 200 });
  });

  it("works with Octokit and its types", async () => {
    const server = await serve({ token: "sesame" });
    const octokit = new Octokit({ baseUrl: server.url, auth: "sesame" });
    const found = await octokit.request("GET /search/users", { q: '"ada@example.com" in:email', per_page: 1 });
    const user = await octokit.request("GET /users/{username}", { username: "ada-lh" });
    // These types check the search, which is not in the available part of GitHub's schema.
    const search: typeof found.data = searchResponse([ada], 0, 1, server.url);
    const profile: typeof user.data = { ...publicUser(ada, server.url), user_view_type: "public" };
    expect([found.data, user.data]).toEqual([search, profile]);
    const again = octokit.request("GET /users/{username}", {
      username: "ada-lh",
      headers: { "if-none-match": user.headers.etag! },
    });
    await expect(again).rejects.toMatchObject({ status: 304 });
    await expect(octokit.request("GET /users/{username}", { username: "nobody" })).rejects.toMatchObject({
      status: 404,
    });
  });
});

describe("a rate limit of the fake GitHub", () => {
  it("is reported in all headers, separately for searches and other calls", async () => {
    const server = await serve({ search: { limit: 3, windowMs: 60_000 }, core: { limit: 9, windowMs: 60_000 } });
    const searches = [await get(server, search("a@b.example")), await get(server, search("a@b.example"))];
    const user = await get(server, "/users/ada-lh");
    expect(searches.map(({ rate }) => rate)).toEqual([
      { limit: 3, used: 1, remaining: 2 },
      { limit: 3, used: 2, remaining: 1 },
    ]);
    expect(user.rate).toEqual({ limit: 9, used: 1, remaining: 8 });
    expect([searches[0]!, user].map(({ headers }) => headers.get("x-ratelimit-resource"))).toEqual(["search", "core"]);
    const { body } = await get(server, "/rate_limit");
    expect(body).toMatchObject({ resources: { search: { remaining: 1 }, core: { remaining: 8 } }, rate: { used: 1 } });
  });

  it.each([403, 429] as const)(
    "refuses calls beyond it with %i until the window ends, then opens another",
    async (refusal) => {
      const windowMs = 1000;
      const server = await serve({ search: { limit: 2, windowMs }, refusal });
      const early = Date.now();
      for (const status of [200, 200, refusal, refusal]) {
        const { headers, rate, resetMs, body, ...response } = await get(server, search("ada@example.com"));
        expect(response.status).toBe(status);
        // In whole seconds, never before the end of the window.
        const [{ at }] = server.calls as [GitHubServer["calls"][number]];
        expect(resetMs).toBeGreaterThanOrEqual(at + windowMs);
        expect(resetMs).toBeLessThan(at + windowMs + 1000);
        expect(Math.abs(Date.parse(headers.get("date")!) - early)).toBeLessThan(5000);
        if (status === 200) continue;
        expect(rate).toEqual({ limit: 2, used: 2, remaining: 0 });
        expect(body.message).toMatch(/^API rate limit exceeded/);
        expect(headers.get("retry-after")).toBeNull();
      }
      expect((await get(server, "/users/ada-lh")).status).toBe(200);
      // /rate_limit is not counted and opens no window.
      const full = async () => (await get(server, "/rate_limit")).body.resources.search.remaining === 2;
      await waitFor(full, { what: "the window to end" });
      expect(await get(server, search("ada@example.com"))).toMatchObject({ status: 200, rate: { used: 1 } });
      const searches = server.calls.filter(({ resource }) => resource === "search");
      expect(searches.map(({ window, refused, status }) => [window, refused, status])).toEqual([
        [1, false, 200],
        [1, false, 200],
        [1, true, refusal],
        [1, true, refusal],
        [2, false, 200],
      ]);
      expect(searches.at(-1)!.at - searches[0]!.at).toBeGreaterThanOrEqual(windowMs);
    },
  );

  it("opens a window with the first counted call", async () => {
    const server = await serve({ core: { limit: 9, windowMs: 60_000 } });
    const reset = async () => (await get(server, "/rate_limit")).body.resources.core.reset * 1000;
    const first = await reset();
    const moved = await waitFor(async () => (await reset()) > first && reset(), { what: "the reset to move on" });
    const { resetMs } = await get(server, "/users/ada-lh");
    expect(resetMs).toBeGreaterThanOrEqual(moved);
    await waitFor(() => Date.now() + 60_000 > resetMs, { what: "a reset of now to be a later one" });
    expect(await reset()).toBe(resetMs);
    expect(server.calls.filter(({ path }) => path === "/users/ada-lh")).toMatchObject([{ window: 1 }]);
  });

  it("counts 200 and 404, but not 304", async () => {
    const server = await serve();
    const etag = (await get(server, "/users/ada-lh")).headers.get("etag")!;
    expect((await get(server, "/users/ada-lh", { "if-none-match": etag })).rate.used).toBe(1);
    expect((await get(server, "/users/nobody")).rate.used).toBe(2);
  });

  it("refuses even a 304 when it is exhausted", async () => {
    const server = await serve({ core: { limit: 1, windowMs: 60_000 } });
    const etag = (await get(server, "/users/ada-lh")).headers.get("etag")!;
    expect(await get(server, "/users/ada-lh", { "if-none-match": etag })).toMatchObject({ status: 403 });
    expect(server.calls.at(-1)).toMatchObject({ refused: true });
  });

  it("can be changed by a call, down and up", async () => {
    const limits = [undefined, 2, undefined, 4];
    const server = await serve({
      search: { limit: 30, windowMs: 60_000 },
      onCall: () => {
        const limit = limits.shift();
        return limit === undefined ? undefined : { limit };
      },
    });
    const responses = [];
    for (let i = 0; i < 4; i++) responses.push(await get(server, search("a@b.example")));
    expect(responses.map(({ status, rate }) => [status, rate.limit, rate.remaining])).toEqual([
      [200, 30, 29],
      [200, 2, 0],
      [403, 2, 0],
      [200, 4, 1],
    ]);
  });
});

describe("a fault of the fake GitHub", () => {
  const faulty = (...faults: (Fault | undefined)[]) => serve({ onCall: () => faults.shift() });

  it.each([{ retryAfter: 7 }, {}])("is a secondary limit with %o, which is not counted", async (secondary) => {
    const server = await faulty({ secondary });
    const { status, headers, body, rate } = await get(server, search("a@b.example"));
    expect([status, headers.get("retry-after")]).toEqual([403, secondary.retryAfter ? "7" : null]);
    expect(body.message).toMatch(/secondary rate limit/);
    expect(rate).toEqual({ limit: 30, used: 0, remaining: 30 });
    expect(server.calls).toMatchObject([{ status: 403, refused: false }]);
    expect((await get(server, search("a@b.example"))).status).toBe(200);
  });

  it.each([500, 502, 503])("is %i, which is not counted", async (status) => {
    const server = await faulty({ status });
    expect(await get(server, "/users/ada-lh")).toMatchObject({ status, rate: { used: 0 } });
  });

  it("is 202 with an empty object, which is counted", async () => {
    const server = await faulty({ status: 202 });
    expect(await get(server, search("a@b.example"))).toMatchObject({ status: 202, body: {}, rate: { used: 1 } });
  });

  it("is a page instead of JSON", async () => {
    const server = await faulty({ garbage: true });
    const response = await fetch(server.url + search("a@b.example"));
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    await expect(response.json()).rejects.toThrow(SyntaxError);
  });

  it("is a connection that closes in the middle of the body", async () => {
    const server = await faulty({ cut: true });
    const response = await fetch(`${server.url}/users/ada-lh`);
    expect(response.status).toBe(200);
    await expect(response.text()).rejects.toThrow("terminated");
    expect(server.calls).toMatchObject([{ status: 200 }]);
  });

  it("is no response until the client or the server closes", async () => {
    const server = await faulty({ hang: true }, { hang: true });
    const leaving = new AbortController();
    const left = fetch(`${server.url}/users/ada-lh`, { signal: leaving.signal }).catch((error) => error.name);
    const kept = fetch(`${server.url}/users/ada-lh`).catch((error) => error.name);
    await waitFor(() => server.calls.length === 2);
    leaving.abort();
    expect(await left).toBe("AbortError");
    expect(server.calls.map(({ status }) => status)).toEqual([0, 0]);
    await server.close();
    expect(await kept).toBe("TypeError");
  });

  it("is a delayed response that is counted at once", async () => {
    const server = await faulty({ delayMs: 150 });
    const late = get(server, "/users/ada-lh");
    await waitFor(() => server.calls[0]?.status === 200);
    const next = await get(server, "/users/ada-lh");
    expect([next.rate.used, (await late).rate.used]).toEqual([2, 1]);
    // A timer may be a millisecond early by the other clock.
    expect(Date.now() - server.calls[0]!.at).toBeGreaterThanOrEqual(149);
  });

  it("may be a promise: the call waits for it", async () => {
    let decide = (_: Fault | undefined) => {};
    const decided = new Promise<Fault | undefined>((resolve) => {
      decide = resolve;
    });
    const server = await serve({ onCall: ({ path }) => (path === "/users/ada-lh" ? decided : undefined) });
    const waiting = get(server, "/users/ada-lh");
    await waitFor(() => server.calls.length === 1);
    expect((await get(server, search("a@b.example"))).status).toBe(200);
    expect(server.calls[0]!.status).toBe(0);
    decide({ status: 503 });
    expect((await waiting).status).toBe(503);
  });
});
