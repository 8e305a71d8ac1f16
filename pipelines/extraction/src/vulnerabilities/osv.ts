// Asks OSV.dev about the dependencies of an SBOM. Only names and versions of public packages are sent. OSV.dev's answer is
// final about which versions are affected; the advisories give severity, aliases and fixes. If OSV.dev stops answering, what
// it has answered so far is used, and the coverage says how much that is.
import type pg from "pg";
import type { StepHandle } from "stillwake/worker";
import type { Vulnerability, VulnerabilityScan } from "../model.ts";
import type { Settings } from "../settings.ts";
import { type Advisory, readAdvisory } from "./advisories.ts";
import { type FetchedAdvisory, readCachedAdvisories, storeAdvisories } from "./advisory-cache.ts";
import { bySeverity, type Hit, toVulnerabilities } from "./match.ts";
import { type Answer, MAX_BATCH, OsvClient, OsvUnavailable, type Query, RejectedBatch } from "./osv-client.ts";
import { type Component, componentOf } from "./packages.ts";
import { affectedBy } from "./versions.ts";

export interface OsvOptions {
  /** Package URLs of all dependencies. */
  purls: readonly string[];
  pool: pg.Pool;
  settings: Pick<Settings, "osvUrl" | "osvPrivate" | "limits">;
}

export const LIMITS = {
  /** Packages that are asked about. */
  packages: 100_000,
  /** Requests beyond one per batch: for further pages, and to find invalid queries. */
  extraRequests: 200,
  /** Advisories that are fetched; those in the cache do not count. */
  advisories: 5000,
  /** Concurrent requests. */
  concurrency: 4,
};

/** A scan that knows what it has checked. */
export interface KnownScan extends VulnerabilityScan {
  coverage: NonNullable<VulnerabilityScan["coverage"]>;
}

export async function askOsv(step: StepHandle, { purls, pool, settings }: OsvOptions): Promise<KnownScan> {
  const { packages, unsent } = choosePackages(purls, settings.osvPrivate);
  const client = new OsvClient({
    url: settings.osvUrl,
    signal: step.signal,
    timeoutMs: settings.limits.vulnerabilitiesMs,
  });
  if (packages.size > 0) step.log.info(`Asking OSV.dev about ${countOf(packages.size, "package", "packages")}`);
  const asked = await askAboutPackages(client, [...packages.keys()]);
  const modified = new Map([...asked.vulns.values()].flat().map((vuln) => [vuln.id, vuln.modified]));
  const advisories = await readAdvisories(step, client, pool, modified);

  const vulnerabilities: Vulnerability[] = [];
  const counts = { answered: 0, rejected: 0, open: 0 };
  for (const [purl, components] of packages) {
    counts[asked.outcomes.get(purl) ?? "open"] += components.length;
    const vulns = asked.vulns.get(purl) ?? [];
    for (const component of components) {
      const hits = vulns.flatMap(({ id }) => hitsOf(component, advisories.get(id) ?? unreadAdvisory(id)));
      vulnerabilities.push(...toVulnerabilities(component, hits, "osv.dev"));
    }
  }
  const notes = [...unsent].map(([why, { count, examples }]) => noteOf(why, count, examples));
  const dependencies = (count: number) => countOf(count, "dependency", "dependencies");
  if (counts.rejected > 0) notes.push(`OSV.dev rejected ${dependencies(counts.rejected)}`);
  if (counts.open > 0) notes.push(`OSV.dev did not answer about ${dependencies(counts.open)} (${asked.failure})`);
  return {
    vulnerabilities: vulnerabilities.sort(bySeverity),
    coverage: { checked: counts.answered, total: purls.length, notes },
  };
}

/** Why a dependency is not sent. */
type Unsent = "type" | "version" | "elsewhere" | "private" | "limit";

interface Choice {
  /** Components by the package URL that is sent. */
  packages: Map<string, Component[]>;
  unsent: Map<Unsent, { count: number; examples: Set<string> }>;
}

function choosePackages(purls: readonly string[], privateNames: readonly string[]): Choice {
  const isPrivate = nameMatcher(privateNames);
  const packages: Choice["packages"] = new Map();
  const unsent: Choice["unsent"] = new Map();
  const skip = (why: Unsent, example: string) => {
    const entry = unsent.get(why) ?? { count: 0, examples: new Set() };
    entry.count += 1;
    if (entry.examples.size < 5) entry.examples.add(example);
    unsent.set(why, entry);
  };
  for (const purl of purls) {
    const component = componentOf(purl);
    // OSV.dev has no package URLs for GitHub Actions.
    if (!component || component.ecosystem === "GitHub Actions") skip("type", /^pkg:\/*([^/]*)/.exec(purl)?.[1] ?? purl);
    else if (!isPublic(component)) skip("elsewhere", component.name);
    else if (isPrivate(component.name)) skip("private", component.name);
    else if (!isVersion(component.version)) skip("version", component.name);
    else {
      const sent = sentPurl(component);
      const same = packages.get(sent);
      if (same) same.push(component);
      else if (packages.size < LIMITS.packages) packages.set(sent, [component]);
      else skip("limit", component.name);
    }
  }
  return { packages, unsent };
}

function noteOf(why: Unsent, count: number, examples: ReadonlySet<string>): string {
  const are = count === 1 ? "is" : "are";
  switch (why) {
    case "type":
      return `${count} ${are} of a kind that OSV.dev does not know (${[...examples].join(", ")})`;
    case "version":
      return `${count} ${count === 1 ? "has" : "have"} no version`;
    case "elsewhere":
      return `${count} ${are} not from a public registry`;
    case "private":
      return `${count} ${are} excluded by EXTRACTION_OSV_PRIVATE`;
    case "limit":
      return `${count} ${are} beyond the limit of ${LIMITS.packages} packages`;
  }
}

/** A version that a registry can have: not a range, a URL or a path. */
function isVersion(version: string): boolean {
  return /^[\w.+!~-]{1,100}$/.test(version) && /\d/.test(version);
}

/** False for packages of another registry, a git repository, a URL or a folder: their names may be private. */
function isPublic({ purl, path, ecosystem }: Component): boolean {
  if (/[?&](?:repository_url|vcs_url|download_url|file_name)=/i.test(purl)) return false;
  if (!path.every((part) => /^[\w.@~!+-]{1,200}$/.test(part) && !/^\.+$/.test(part))) return false;
  // Public Go modules begin with a host name.
  return ecosystem !== "Go" || (path.length > 1 && path[0]!.includes("."));
}

/** "@acme/*" matches all names that begin with "@acme/". */
function nameMatcher(patterns: readonly string[]): (name: string) => boolean {
  const expressions = patterns.map((pattern) => {
    const parts = pattern.split("*").map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    return new RegExp(`^${parts.join(".*")}$`, "i");
  });
  return (name) => expressions.some((expression) => expression.test(name));
}

/** Type, name and version. Qualifiers may name folders and private hosts. */
function sentPurl({ type, path, version, ecosystem }: Component): string {
  const number = ecosystem === "Go" ? version.replace(/^v/, "") : version;
  return `pkg:${type}/${path.map(encodeURIComponent).join("/")}@${encodeURIComponent(number)}`;
}

interface Asked {
  /** By package URL; also of packages with pages that have not arrived. */
  vulns: Map<string, Answer["vulns"]>;
  /** Absent: at least one page has not arrived. */
  outcomes: Map<string, "answered" | "rejected">;
  /** Why not all pages have arrived. */
  failure: string | undefined;
}

async function askAboutPackages(client: OsvClient, purls: readonly string[]): Promise<Asked> {
  const asked: Asked = { vulns: new Map(), outcomes: new Map(), failure: undefined };
  const batches: Query[][] = [];
  for (let at = 0; at < purls.length; at += MAX_BATCH)
    batches.push(purls.slice(at, at + MAX_BATCH).map((purl) => ({ purl })));
  let requests = batches.length + LIMITS.extraRequests;
  for (let batch = batches.shift(); batch; batch = batches.shift()) {
    if (requests === 0) return { ...asked, failure: `limit of ${LIMITS.extraRequests} further requests reached` };
    requests -= 1;
    try {
      const more = recordAnswers(asked, batch, await client.query(batch));
      if (more.length > 0) batches.push(more);
    } catch (error) {
      if (error instanceof OsvUnavailable) return { ...asked, failure: error.message };
      if (!(error instanceof RejectedBatch)) throw error;
      const half = Math.ceil(batch.length / 2);
      if (batch.length > 1) batches.push(batch.slice(0, half), batch.slice(half));
      else asked.outcomes.set(batch[0]!.purl, "rejected");
    }
  }
  return asked;
}

/** Returns the queries for the next pages. */
function recordAnswers({ vulns, outcomes }: Asked, batch: readonly Query[], answers: readonly Answer[]): Query[] {
  return answers.flatMap((answer, at) => {
    const { purl } = batch[at]!;
    vulns.set(purl, [...(vulns.get(purl) ?? []), ...answer.vulns]);
    if (answer.nextToken !== undefined) return [{ purl, token: answer.nextToken }];
    outcomes.set(purl, "answered");
    return [];
  });
}

/** From the cache, else from OSV.dev. The others are counted in warnings. `modified`: by id. */
async function readAdvisories(
  step: StepHandle,
  client: OsvClient,
  pool: pg.Pool,
  modified: ReadonlyMap<string, string>,
): Promise<Map<string, Advisory>> {
  if (modified.size === 0) return new Map();
  const found = await readCachedAdvisories(pool, modified).catch((error: unknown) => warnOfCache(step, error));
  const cached = found.size;
  const wanted = [...modified].filter(([id]) => !found.has(id));
  const queue = wanted.slice(0, LIMITS.advisories);
  const fetched: FetchedAdvisory[] = [];
  let unreadable = 0;
  let failure: OsvUnavailable | undefined;
  const fetchNext = async () => {
    for (let next = queue.shift(); next && !failure; next = queue.shift()) {
      const [id, modified] = next;
      const advisory = readAdvisory(await client.advisory(id));
      if (advisory?.id === id) fetched.push({ id, modified, advisory });
      else unreadable += 1;
    }
  };
  const results = await Promise.allSettled(Array.from({ length: LIMITS.concurrency }, fetchNext));
  for (const result of results) {
    if (result.status === "fulfilled") continue;
    if (!(result.reason instanceof OsvUnavailable)) throw result.reason;
    failure = result.reason;
  }
  await storeAdvisories(pool, fetched).catch((error: unknown) => warnOfCache(step, error));
  for (const { id, advisory } of fetched) found.set(id, advisory);

  step.log.info(
    `OSV.dev knows ${countOf(modified.size, "advisory", "advisories")} for them (${fetched.length} fetched, ${cached} in the cache)`,
  );
  const unread = modified.size - found.size;
  if (unread > 0) {
    const reasons = [
      failure && `OSV.dev did not answer: ${failure.message}`,
      unreadable > 0 && `${unreadable} ${unreadable === 1 ? "is" : "are"} missing or invalid`,
      wanted.length > LIMITS.advisories && `at most ${LIMITS.advisories} are fetched`,
    ].filter(Boolean);
    step.log.warning(
      `${countOf(unread, "advisory", "advisories")} could not be read (${reasons.join("; ")}): listed with unknown severity`,
    );
  }
  return found;
}

function warnOfCache(step: StepHandle, error: unknown): Map<string, Advisory> {
  step.signal.throwIfAborted();
  step.log.warning("The cache of advisories cannot be used - all of them are fetched", { error: String(error) });
  return new Map();
}

/** The advisory with the entries for this version. A withdrawn one has no hit. */
function hitsOf({ key, ecosystem, version }: Component, advisory: Advisory): Hit[] {
  if (advisory.withdrawn) return [];
  const own = advisory.affected.filter((affected) => affected.key === key);
  // An advisory may have one entry per branch of a package, each with its own fix.
  const exact = own.filter(({ ranges, versions }) => affectedBy(ecosystem, version, ranges, versions) === "affected");
  const entries = exact.length > 0 ? exact : own;
  if (entries.length === 0) return [{ advisory, affected: { key, versions: [], ranges: [], ...advisory.rating } }];
  return entries.map((affected) => ({ advisory, affected }));
}

function unreadAdvisory(id: string): Advisory {
  return {
    id,
    aliases: [],
    summary: "The advisory could not be read",
    url: `https://osv.dev/vulnerability/${encodeURIComponent(id)}`,
    withdrawn: false,
    modified: 0,
    rating: { severity: "unknown", score: null },
    affected: [],
  };
}

function countOf(count: number, singular: string, plural: string): string {
  return `${count} ${count === 1 ? singular : plural}`;
}
