// Settings of the workers, read from the environment.
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { GitLimits } from "@stillwake/kit/git/limits";
import { type Environment, preferOwnSettings, readGitLimits, readVariables } from "@stillwake/kit/settings";
import type { Provider } from "./contract.ts";
import { checkOsvUrl } from "./vulnerabilities/osv-client.ts";

export interface Settings {
  /** Login of the pipeline code; it never gets the worker's login. */
  databaseUrl: string;
  /** Where repositories are fetched from. A self-hosted server may use http. */
  hosts: Record<Provider, string>;
  /** Repositories of these owners are fetched from another host: "github:acme=https://git.acme.example". */
  mirrors: { provider: Provider; owner: string; url: string }[];
  githubApiUrl: string;
  githubApp: { id: string; key: string } | undefined;
  /** Non-public networks that may be reached, such as "10.0.0.0/8" for a self-hosted GitLab. */
  allowAddresses: string[];
  limits: GitLimits & {
    cloneFiles: number;
    sbomMs: number;
    vulnerabilitiesMs: number;
    analysisMs: number;
    secretsMs: number;
  };
  /** Whether the three scans run concurrently. */
  sideBySide: boolean;
  /** Folder with OSV advisories (.json, .yaml) for the built-in matcher. Empty: none. */
  advisories: string;
  /** Base URL of OSV.dev's API, asked if there are neither dep-scan nor advisories. Empty (set as "none" or "off"): never. */
  osvUrl: string;
  /** Names of packages that are not sent there: "@acme/*". */
  osvPrivate: string[];
  /** Repositories of this owner are scanned with the advisories and feeds of the folder, without a network. */
  sample: { provider: Provider; owner: string; folder: string } | undefined;
  /** A URL or a file each; empty (set as "none"): not read. */
  feeds: { epss: string; kev: string };
  /** Folder for feeds and dep-scan's database. */
  cache: string;
  /** PATH to find dep-scan, semgrep, trufflehog and gitleaks. */
  toolPath: string;
  /** Semgrep's rules: an absolute path, or a name of its registry, which Semgrep then downloads in each extraction. */
  semgrepConfig: string;
}

/** Root of the package, from src/ and from dist/. */
const home = fileURLToPath(new URL("..", import.meta.url));
const EPSS = "https://epss.empiricalsecurity.com/epss_scores-current.csv.gz";
const OSV = "https://api.osv.dev";
const KEV = "https://www.cisa.gov/sites/default/files/feeds/known_exploited_vulnerabilities.json";

/** For `npm start`: what the environment sets is kept; the sample adds to it. */
export function settingsOfSample(sample: Record<string, string>): Record<string, string> {
  return preferOwnSettings(sample, process.env);
}

export function readSettings(env: Environment = process.env): Settings {
  const variables = readVariables("EXTRACTION", env);
  const { text, number, seconds, list } = variables;
  const feed = (name: string, fallback: string) => text(name, fallback).replace(/^none$/, "");
  const osvUrl = text("OSV_URL", OSV).replace(/^(?:none|off)$/i, "");
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
      ...readGitLimits(variables, 900),
      cloneFiles: number("CLONE_FILES", 500_000),
      sbomMs: seconds("SBOM_SECONDS", 300),
      vulnerabilitiesMs: seconds("VULNERABILITIES_SECONDS", 900),
      analysisMs: seconds("ANALYSIS_SECONDS", 900),
      secretsMs: seconds("SECRETS_SECONDS", 600),
    },
    sideBySide: text("SIDE_BY_SIDE", "yes") !== "no",
    advisories: text("ADVISORIES", ""),
    osvUrl: osvUrl && checkOsvUrl(osvUrl),
    osvPrivate: list("OSV_PRIVATE"),
    sample: sampleOf(text("SAMPLE", "")),
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
    `EXTRACTION_MIRRORS contains "${text}" but needs entries such as github:acme=https://git.acme.example`,
  );
}

/** "github:owner=folder" */
function sampleOf(text: string): Settings["sample"] {
  if (text === "") return undefined;
  const [, provider, owner, folder] = /^(github|gitlab|bitbucket):([\w.-]+)=(.+)$/.exec(text) ?? [];
  if (provider && owner && folder) return { provider: provider as Provider, owner, folder };
  throw new Error(`EXTRACTION_SAMPLE is "${text}" but must be an owner and a folder such as github:acme=./sample`);
}

/** The settings for one repository: the sample has its own advisories and feeds, and OSV.dev is not asked about it. */
export function settingsFor(
  settings: Settings,
  { provider, repository }: { provider: Provider; repository: string },
): Settings {
  const { sample } = settings;
  if (!sample || sample.provider !== provider || !repository.startsWith(`${sample.owner}/`)) return settings;
  const { folder } = sample;
  return {
    ...settings,
    osvUrl: "",
    advisories: path.join(folder, "advisories"),
    feeds: { epss: path.join(folder, "epss.csv"), kev: path.join(folder, "kev.json") },
  };
}
