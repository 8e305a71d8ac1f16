// Schemas of the GitHub API calls that the leaderboard makes. If a part of GitHub's official schema is available beside the project,
// responses are checked against it too. It has the user and the rate limit but not the search, whose items are checked as "simple-user".
import { type Description, getChecker, type Schema } from "../../../../test/support/providers/schemas/check.ts";

const text: Schema = { type: "string" };
const whole: Schema = { type: "integer", minimum: 0 };
const url: Schema = { type: "string", pattern: "^https?://" };
const maybe: Schema = { type: ["string", "null"] };

const brief: Record<string, Schema> = {
  login: { type: "string", pattern: "^\\S+$" },
  id: { type: "integer", minimum: 1 },
  node_id: text,
  avatar_url: url,
  gravatar_id: maybe,
  url,
  html_url: url,
  followers_url: url,
  following_url: url,
  gists_url: url,
  starred_url: url,
  subscriptions_url: url,
  organizations_url: url,
  repos_url: url,
  events_url: url,
  received_events_url: url,
  type: { enum: ["User", "Bot", "Organization"] },
  user_view_type: { const: "public" },
  site_admin: { type: "boolean" },
};

const full: Record<string, Schema> = {
  ...brief,
  name: maybe,
  company: maybe,
  blog: maybe,
  location: maybe,
  email: maybe,
  hireable: { type: ["boolean", "null"] },
  bio: maybe,
  twitter_username: maybe,
  public_repos: whole,
  public_gists: whole,
  followers: whole,
  following: whole,
  created_at: text,
  updated_at: text,
};

const rate = allRequired({ limit: whole, used: whole, remaining: whole, reset: whole });

export const githubDescription: Description = {
  name: "GitHub's REST API",
  official: { file: "../data/github-openapi-slice.json", kind: "openapi" },
  operations: {
    search: {
      method: "GET",
      path: "/search/users",
      absent: "not in the available part of the schema",
      responses: {
        200: allRequired({
          total_count: whole,
          incomplete_results: { type: "boolean" },
          items: { type: "array", items: allRequired({ ...brief, score: { type: "number" } }) },
        }),
        // A fault that tests inject; no schema has it here.
        202: { type: "object", properties: {} },
      },
    },
    user: {
      method: "GET",
      path: "/users/{username}",
      responses: { 200: allRequired(full), 304: null },
    },
    rates: {
      method: "GET",
      path: "/rate_limit",
      responses: { 200: allRequired({ resources: allRequired({ core: rate, search: rate }), rate }) },
    },
  },
  errors: {
    type: "object",
    required: ["message", "documentation_url"],
    properties: {
      message: text,
      documentation_url: url,
      status: { type: "string", pattern: "^[45]\\d\\d$" },
      errors: { type: "array", items: { type: "object", additionalProperties: text } },
    },
  },
};

/** Definitions of the official schema, each as an operation. */
const parts: Description = {
  ...githubDescription,
  operations: Object.fromEntries(
    ["simple-user", "basic-error"].map((name) => [
      name,
      { method: "GET", path: `/${name}`, responses: { 200: { $ref: `official#/definitions/${name}` } } },
    ]),
  ),
};

export const hasOfficialSchema = getChecker(githubDescription).official;

/** Problems of a response, by the schemas above and by GitHub's. */
export function checkResponse(path: string, status: number, body: unknown): string[] {
  const operation = path.startsWith("/search/") ? "search" : path.startsWith("/rate_limit") ? "rates" : "user";
  const problems = getChecker(githubDescription).response(operation, status, body);
  if (!hasOfficialSchema) return problems;
  const official = getChecker(parts);
  if (status >= 400) {
    // The error of an invalid search has more fields than the basic error, and is not in the available part.
    const { errors, ...basic } = body as Record<string, unknown>;
    problems.push(...official.response("basic-error", 200, basic));
  } else if (operation === "search" && status === 200) {
    for (const { score, ...user } of (body as { items: Record<string, unknown>[] }).items) {
      problems.push(...official.response("simple-user", 200, user));
    }
  }
  return problems;
}

function allRequired(properties: Record<string, Schema>): Schema {
  return { type: "object", required: Object.keys(properties), properties };
}
