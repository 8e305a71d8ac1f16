// What an operator sets, read once from the environment. The only place of this pipeline that knows the variables' names.
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { GitLimits } from "@stillwake/kit/git/limits";
import { type Environment, gitLimitsOf, variablesOf } from "@stillwake/kit/settings";
import type { Provider } from "./contract.ts";

export interface Settings {
  /** A login of this pipeline's own: the runtime's never reaches its code. */
  databaseUrl: string;
  /** Where repositories are fetched from. An operator may name a server of their own; only then may it be http. */
  hosts: Record<Provider, string>;
  /** Repositories of these owners are fetched from another host than their provider's: "github:acme=https://git.acme.example". */
  mirrors: { provider: Provider; owner: string; url: string }[];
  githubApiUrl: string;
  githubApp: { id: string; key: string } | undefined;
  /** Networks that are reached although they are nobody's public ones, such as "10.0.0.0/8": for a GitLab at home. */
  allowAddresses: string[];
  limits: GitLimits & {
    cloneFiles: number;
    sbomMs: number;
    vulnerabilitiesMs: number;
    analysisMs: number;
    secretsMs: number;
  };
  /** The three scans at once, or one after the other. */
  sideBySide: boolean;
  /** OSV advisories for the built-in matcher: a folder of .json and .yaml. Empty: there are none. */
  advisories: string;
  /** A URL or a file each; set as "none", it is not asked. */
  feeds: { epss: string; kev: string };
  /** Where feeds are kept between jobs. */
  cache: string;
  /** Where dep-scan, semgrep, trufflehog and gitleaks are looked for. */
  toolPath: string;
  /** The rules of Semgrep: a folder or file with an absolute path, or a name of its registry, which Semgrep then fetches over the network in each extraction. */
  semgrepConfig: string;
}

/** Of the package, from src/ and from dist/ alike. */
const home = fileURLToPath(new URL("..", import.meta.url));
/** Where the scores of FIRST and the catalogue of CISA are published. */
const EPSS = "https://epss.empiricalsecurity.com/epss_scores-current.csv.gz";
const KEV = "https://www.cisa.gov/sites/default/files/feeds/known_exploited_vulnerabilities.json";

export function readSettings(env: Environment = process.env): Settings {
  const variables = variablesOf("EXTRACTION", env);
  const { text, number, seconds, list } = variables;
  const feed = (name: string, fallback: string) => text(name, fallback).replace(/^none$/, "");
  const appId = env.EXTRACTION_GITHUB_APP_ID;
  const appKey = env.EXTRACTION_GITHUB_APP_KEY;
  return {
    databaseUrl: text("DATABASE_URL", ""),
    hosts: {
      github: text("GITHUB_URL", "https://github.com"),
      gitlab: text("GITLAB_URL", "https://gitlab.com"),
      bitbucket: text("BITBUCKET_URL", "https://bitbucket.org"),
    },
    mirrors: list("MIRRORS").map(mirrorOf),
    githubApiUrl: text("GITHUB_API_URL", "https://api.github.com"),
    githubApp: appId && appKey ? { id: appId, key: appKey } : undefined,
    allowAddresses: list("ALLOW_ADDRESSES"),
    limits: {
      ...gitLimitsOf(variables, 900),
      cloneFiles: number("CLONE_FILES", 500_000),
      sbomMs: seconds("SBOM_SECONDS", 300),
      vulnerabilitiesMs: seconds("VULNERABILITIES_SECONDS", 900),
      analysisMs: seconds("ANALYSIS_SECONDS", 900),
      secretsMs: seconds("SECRETS_SECONDS", 600),
    },
    sideBySide: text("SIDE_BY_SIDE", "yes") !== "no",
    advisories: text("ADVISORIES", ""),
    feeds: { epss: feed("EPSS", EPSS), kev: feed("KEV", KEV) },
    cache: text("CACHE", path.join(home, ".cache")),
    toolPath: text("TOOL_PATH", env.PATH ?? ""),
    semgrepConfig: text("SEMGREP_CONFIG", "p/default"),
  };
}

function mirrorOf(text: string): Settings["mirrors"][number] {
  const [, provider, owner, url] = /^(github|gitlab|bitbucket):([\w.-]+)=(https?:\/\/\S+)$/.exec(text) ?? [];
  if (provider && owner && url) return { provider: provider as Provider, owner, url };
  throw new Error(
    `EXTRACTION_MIRRORS has "${text}" and should have entries such as github:acme=https://git.acme.example`,
  );
}
