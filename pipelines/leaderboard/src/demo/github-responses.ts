// Responses of the fake GitHub server: users in GitHub's format, and errors with GitHub's messages. All links lead to the fake
// server, because a real user may have the login of an invented one.
import { createHash } from "node:crypto";
import type { Quota } from "./github-quota.ts";
import type { Resource, SampleUser } from "./github-server.ts";

export interface FakeResponse {
  status: number;
  /** JSON; undefined for an empty body. */
  body?: unknown;
  /** HTML instead of JSON. */
  page?: string;
  headers?: Record<string, string>;
}

const DOCS = "https://docs.github.com/rest";
const RATE_LIMITS = `${DOCS}/using-the-rest-api/rate-limits-for-the-rest-api`;
/** Maximum length of a search without its qualifiers. */
const MAX_SEARCH = 256;

export function findUsers(
  users: readonly SampleUser[],
  email: string | undefined,
  query: URLSearchParams,
  url: string,
): FakeResponse {
  if (!query.get("q")) return invalidSearch("missing");
  if ((email ?? "").length > MAX_SEARCH) {
    return invalidSearch("invalid", `The search is longer than ${MAX_SEARCH} characters.`);
  }
  const wanted = email?.toLowerCase();
  const found = users.filter((user) => user.email !== null && user.email.toLowerCase() === wanted);
  const perPage = parseInRange(query.get("per_page"), 30, 100);
  const start = (parseInRange(query.get("page"), 1, Number.MAX_SAFE_INTEGER) - 1) * perPage;
  return { status: 200, body: searchResponse(found, start, perPage, url) };
}

export function searchResponse(found: readonly SampleUser[], start: number, perPage: number, url: string) {
  return {
    total_count: found.length,
    incomplete_results: false,
    items: found.slice(start, start + perPage).map((user) => ({ ...simpleUser(user, url), score: 1 })),
  };
}

export function getUser(
  users: readonly SampleUser[],
  login: string,
  ifNoneMatch: string | undefined,
  url: string,
): FakeResponse {
  // Logins of apps have brackets, which some clients escape.
  const wanted = login.replace(/%5b/i, "[").replace(/%5d/i, "]").toLowerCase();
  const user = users.find((candidate) => candidate.login.toLowerCase() === wanted);
  if (!user) return notFound("/users/users#get-a-user");
  const body = publicUser(user, url);
  const etag = `W/"${createHash("sha256").update(JSON.stringify(body)).digest("hex")}"`;
  const headers = { etag, "cache-control": "private, max-age=60, s-maxage=60" };
  return isMatch(ifNoneMatch, etag) ? { status: 304, headers } : { status: 200, headers, body };
}

export function rates(quotas: Record<Resource, Quota>, now: number): FakeResponse {
  const core = quotas.core.state(now);
  return { status: 200, body: { resources: { core, search: quotas.search.state(now) }, rate: core } };
}

export function notFound(where = ""): FakeResponse {
  return problem(404, "Not Found", DOCS + where);
}

interface RefusalOptions {
  status: number;
  requestId: string;
}

export function rateLimited({ status, requestId }: RefusalOptions): FakeResponse {
  const support = `If you reach out to GitHub Support for help, please include the request ID ${requestId}.`;
  return problem(status, `API rate limit exceeded for user ID 1. ${support}`, RATE_LIMITS);
}

export function secondaryLimit({ status }: RefusalOptions, retryAfter: number | undefined): FakeResponse {
  const message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
  const headers = retryAfter === undefined ? {} : { "retry-after": String(retryAfter) };
  return { ...problem(status, message, `${RATE_LIMITS}#about-secondary-rate-limits`), headers };
}

const MESSAGES: Record<number, string> = {
  401: "Bad credentials",
  403: "Resource not accessible by personal access token",
  404: "Not Found",
  422: "Validation Failed",
};

/** 202 is not an error: the result is not ready. */
export function failure(status: number): FakeResponse {
  return status < 400 ? { status, body: {} } : problem(status, MESSAGES[status] ?? "Server Error", DOCS);
}

function invalidSearch(code: string, message?: string): FakeResponse {
  const { status, body } = problem(422, "Validation Failed", `${DOCS}/search/search#search-users`);
  return { status, body: { ...body, errors: [{ ...(message && { message }), resource: "Search", field: "q", code }] } };
}

function problem(status: number, message: string, documentation: string) {
  return { status, body: { message, documentation_url: documentation, status: String(status) } };
}

export function publicUser(user: SampleUser, url: string) {
  return {
    ...simpleUser(user, url),
    name: user.name,
    company: null,
    blog: "",
    location: null,
    email: user.email,
    hireable: null,
    bio: null,
    twitter_username: null,
    public_repos: user.id % 40,
    public_gists: user.id % 7,
    followers: user.id % 300,
    following: user.id % 90,
    created_at: "2015-03-02T09:00:00Z",
    updated_at: "2026-01-05T09:00:00Z",
  };
}

function simpleUser({ login, id }: SampleUser, url: string) {
  const api = `${url}/users/${login}`;
  return {
    login,
    id,
    node_id: Buffer.from(`04:User${id}`).toString("base64"),
    avatar_url: `${url}/avatars/u/${id}?v=4`,
    gravatar_id: "",
    url: api,
    html_url: `${url}/${login}`,
    followers_url: `${api}/followers`,
    following_url: `${api}/following{/other_user}`,
    gists_url: `${api}/gists{/gist_id}`,
    starred_url: `${api}/starred{/owner}{/repo}`,
    subscriptions_url: `${api}/subscriptions`,
    organizations_url: `${api}/orgs`,
    repos_url: `${api}/repos`,
    events_url: `${api}/events{/privacy}`,
    received_events_url: `${api}/received_events`,
    type: "User",
    user_view_type: "public",
    site_admin: false,
  };
}

/** Weak comparison, like GitHub: proxies may drop or add the W. */
function isMatch(ifNoneMatch: string | undefined, etag: string): boolean {
  const bare = (tag: string) => tag.trim().replace(/^W\//, "");
  return (ifNoneMatch ?? "").split(",").some((tag) => tag.trim() === "*" || bare(tag) === bare(etag));
}

function parseInRange(value: string | null, fallback: number, max: number): number {
  const number = Number(value ?? fallback);
  return Number.isInteger(number) && number > 0 ? Math.min(number, max) : fallback;
}
