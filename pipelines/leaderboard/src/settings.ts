// Settings of the workers and of the server, read from the environment.
import path from "node:path";
import type { Mirror } from "@stillwake/kit/git/address";
import type { GitLimits } from "@stillwake/kit/git/limits";
import { type Environment, preferOwnSettings, readGitLimits, readVariables } from "@stillwake/kit/settings";
import * as web from "@stillwake/kit/web/server-settings";

export interface Settings {
  /** Login of the pipeline code; it never gets the worker's login. */
  databaseUrl: string;
  /** Where repositories are fetched from. A self-hosted server may use http. */
  githubUrl: string;
  /** Repositories of these owners are fetched from another host: "acme=https://git.acme.example". */
  mirrors: Mirror[];
  /** Non-public networks that may be reached, such as "10.0.0.0/8". */
  allowAddresses: string[];
  githubApiUrl: string;
  githubToken: string | undefined;
  /** Cache of bare clones for the next reading. It may be lost at any time. Undefined: no cache. */
  cache: { folder: string; bytes: number } | undefined;
  limits: GitLimits;
  /** PATH to find git. */
  toolPath: string;
}

const GB = 2 ** 30;

/** For `npm start`: what the environment sets is kept; the sample adds to it. */
export function settingsOfSample(sample: Record<string, string>): Record<string, string> {
  return preferOwnSettings(sample, process.env);
}

export function readSettings(env: Environment = process.env): Settings {
  const variables = readVariables("LEADERBOARD", env);
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
    limits: readGitLimits(variables, 3600),
    toolPath: text("TOOL_PATH", env.PATH ?? ""),
  };
}

function mirrorOf(text: string): Mirror {
  const [, owner, url] = /^([a-z\d][a-z\d-]*)=(https?:\/\/\S+)$/i.exec(text) ?? [];
  if (owner && url) return { owner: owner.toLowerCase(), url };
  throw new Error(`LEADERBOARD_MIRRORS contains "${text}" but needs entries such as acme=https://git.acme.example`);
}

const CONTENTS = "leaderboards and jobs";

/** The only setting that --migrate needs. */
export function readDatabaseUrl(): string {
  return web.readDatabaseUrl(process.env, CONTENTS);
}

export function readServerSettings(env: Environment = process.env): web.WebSettings {
  return web.readWebSettings(env, { prefix: "LEADERBOARD", port: 4801, contents: CONTENTS });
}
