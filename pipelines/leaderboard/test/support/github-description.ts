// The calls of GitHub's API that the leaderboard makes, in our own words, and how an answer is held to them. Where the part of GitHub's official description that lies
// beside the project is at hand, the same answers are held to that too. It has one user and the rate limit, and not the search: what is found is held to its "simple-user".
import { checkerOf, type Description, type Schema } from "../../../../test/support/providers/schemas/check.ts";

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

const rate = all({ limit: whole, used: whole, remaining: whole, reset: whole });

export const githubDescription: Description = {
  name: "GitHub's REST API",
  official: { file: "../data/github-openapi-slice.json", kind: "openapi" },
  operations: {
    search: {
      method: "GET",
      path: "/search/users",
      absent: "the part of the description that is at hand does not have it",
      answers: {
        200: all({
          total_count: whole,
          incomplete_results: { type: "boolean" },
          items: { type: "array", items: all({ ...brief, score: { type: "number" } }) },
        }),
        // As of GitHub's statistics while they are computed. No description has it here: it is a fault that a test asks for.
        202: { type: "object", properties: {} },
      },
    },
    user: {
      method: "GET",
      path: "/users/{username}",
      answers: { 200: all(full), 304: null },
    },
    rates: {
      method: "GET",
      path: "/rate_limit",
      answers: { 200: all({ resources: all({ core: rate, search: rate }), rate }) },
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

/** Named parts of the official description, each as if it were a call of its own. */
const parts: Description = {
  ...githubDescription,
  operations: Object.fromEntries(
    ["simple-user", "basic-error"].map((name) => [
      name,
      { method: "GET", path: `/${name}`, answers: { 200: { $ref: `official#/definitions/${name}` } } },
    ]),
  ),
};

export const isOfficialAtHand = checkerOf(githubDescription).official;

/** What is wrong with an answer, by our description and by GitHub's. */
export function wrongWith(path: string, status: number, body: unknown): string[] {
  const operation = path.startsWith("/search/") ? "search" : path.startsWith("/rate_limit") ? "rates" : "user";
  const wrong = checkerOf(githubDescription).answer(operation, status, body);
  if (!isOfficialAtHand) return wrong;
  const official = checkerOf(parts);
  if (status >= 400) {
    // What an invalid search is answered with is more than the basic error, and not in the part that is at hand.
    const { errors, ...basic } = body as Record<string, unknown>;
    wrong.push(...official.answer("basic-error", 200, basic));
  } else if (operation === "search" && status === 200) {
    for (const { score, ...user } of (body as { items: Record<string, unknown>[] }).items) {
      wrong.push(...official.answer("simple-user", 200, user));
    }
  }
  return wrong;
}

function all(properties: Record<string, Schema>): Schema {
  return { type: "object", required: Object.keys(properties), properties };
}
