// What an operator sets for the workers, read once from the environment. The only place of these pipelines that knows the variables' names.
import path from "node:path";
import type { Mirror } from "@stillwake/kit/git/address";
import type { GitLimits } from "@stillwake/kit/git/limits";
import { type Environment, gitLimitsOf, variablesOf } from "@stillwake/kit/settings";

export interface Settings {
  /** A login of the pipelines' own: the runtime's never reaches their code. */
  databaseUrl: string;
  /** Where repositories are fetched from. An operator may name a server of their own; only then may it be http. */
  githubUrl: string;
  /** Repositories of these owners are fetched from elsewhere: "acme=https://git.acme.example". */
  mirrors: Mirror[];
  /** Networks that are reached although they are nobody's public ones, such as "10.0.0.0/8". */
  allowAddresses: string[];
  githubApiUrl: string;
  githubToken: string | undefined;
  /** Where bare clones are kept for the next reading, and how much of them. It may be lost at any time. Undefined: nothing is kept. */
  cache: { folder: string; bytes: number } | undefined;
  limits: GitLimits;
  /** Where git is looked for. */
  toolPath: string;
}

const GB = 2 ** 30;

export function readSettings(env: Environment = process.env): Settings {
  const variables = variablesOf("LEADERBOARD", env);
  const { text, number, list } = variables;
  const cache = text("CACHE", "");
  return {
    databaseUrl: text("DATABASE_URL", ""),
    githubUrl: text("GITHUB_URL", "https://github.com"),
    mirrors: list("MIRRORS").map(mirrorOf),
    allowAddresses: list("ALLOW_ADDRESSES"),
    githubApiUrl: text("GITHUB_API_URL", "https://api.github.com").replace(/\/+$/, ""),
    githubToken: text("GITHUB_TOKEN", "") || undefined,
    cache: cache === "" ? undefined : { folder: path.resolve(cache), bytes: number("CACHE_GB", 5) * GB },
    limits: gitLimitsOf(variables, 3600),
    toolPath: text("TOOL_PATH", env.PATH ?? ""),
  };
}

function mirrorOf(text: string): Mirror {
  const [, owner, url] = /^([a-z\d][a-z\d-]*)=(https?:\/\/\S+)$/i.exec(text) ?? [];
  if (owner && url) return { owner: owner.toLowerCase(), url };
  throw new Error(`LEADERBOARD_MIRRORS has "${text}" and should have entries such as acme=https://git.acme.example`);
}
