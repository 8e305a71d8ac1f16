// The built-in matcher: looks up the components of an SBOM in advisories that are indexed by package. One finding per
// vulnerability and component, even if several databases list it.
import { SEVERITIES, type Vulnerability } from "../model.ts";
import type { Advisories, Advisory, Affected } from "./advisories.ts";
import type { Component } from "./packages.ts";
import { affectedBy, compareVersions } from "./versions.ts";

export interface MatchResult {
  vulnerabilities: Vulnerability[];
  /** Components with an advisory whose versions cannot be compared. */
  undecided: string[];
  /** Components without a version; only advisories about every version match. */
  unversioned: string[];
}

export function matchAdvisories(
  components: Iterable<Component>,
  { byPackage }: Pick<Advisories, "byPackage">,
): MatchResult {
  const found = new Map<string, Vulnerability>();
  const undecided = new Set<string>();
  const unversioned = new Set<string>();
  for (const component of components) {
    const hits: Hit[] = [];
    for (const { advisory, affected } of byPackage.get(component.key) ?? []) {
      const verdict = affectedBy(component.ecosystem, component.version, affected.ranges, affected.versions);
      if (verdict === "affected") hits.push({ advisory, affected });
      else if (component.version === "") unversioned.add(component.purl);
      else if (verdict === "unknown") undecided.add(component.purl);
    }
    for (const vulnerability of toVulnerabilities(component, hits, "built-in"))
      found.set(`${vulnerability.id} ${vulnerability.purl}`, vulnerability);
  }
  return {
    vulnerabilities: [...found.values()].sort(bySeverity),
    undecided: [...undecided],
    unversioned: [...unversioned],
  };
}

/** A total order: the result is the same every time. */
export function bySeverity(a: Vulnerability, b: Vulnerability): number {
  return (
    SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) ||
    (b.score ?? 0) - (a.score ?? 0) ||
    compare(a.purl, b.purl) ||
    compare(a.id, b.id)
  );
}

/** The key for EPSS and KEV. */
export function cveOf(ids: readonly string[]): string | null {
  return ids.find((id) => /^CVE-\d{4}-\d{4,19}$/.test(id)) ?? null;
}

/** An advisory that affects a component, and its entry for that package. */
export interface Hit {
  advisory: Advisory;
  affected: Affected;
}

/** One per vulnerability, even if several advisories describe it. */
export function toVulnerabilities(
  component: Component,
  hits: readonly Hit[],
  source: Vulnerability["source"],
): Vulnerability[] {
  return groupByAlias(hits).map((group) => toVulnerability(component, group, source));
}

/** Hits that share an id or alias are one vulnerability, such as GHSA and PYSEC of the same CVE. */
function groupByAlias(hits: readonly Hit[]): Hit[][] {
  let groups: Array<{ ids: Set<string>; hits: Hit[] }> = [];
  for (const hit of hits) {
    const joined = { ids: new Set([hit.advisory.id, ...hit.advisory.aliases]), hits: [hit] };
    const apart: typeof groups = [];
    for (const group of groups) {
      if ([...joined.ids].some((id) => group.ids.has(id))) {
        for (const id of group.ids) joined.ids.add(id);
        joined.hits.unshift(...group.hits);
      } else apart.push(group);
    }
    groups = [...apart, joined];
  }
  return groups.map((group) => group.hits);
}

/** Preferred sources of the id, the most detailed first. */
const SOURCES = ["GHSA-", "PYSEC-", "GO-", "RUSTSEC-", "CVE-"];

function toVulnerability(
  { purl, name, version, ecosystem }: Component,
  group: readonly Hit[],
  source: Vulnerability["source"],
): Vulnerability {
  const hits = group.toSorted((a, b) => rank(a) - rank(b) || compare(a.advisory.id, b.advisory.id));
  const { advisory } = hits[0]!;
  const ids = new Set(hits.flatMap((hit) => [hit.advisory.id, ...hit.advisory.aliases]));
  const rated =
    hits.find(({ affected }) => affected.score !== null) ??
    hits.find(({ affected }) => affected.severity !== "unknown");
  const fixed = new Set(hits.flatMap(({ affected }) => fixesOf(affected)));
  return {
    id: advisory.id,
    aliases: [...ids].filter((id) => id !== advisory.id).sort(compare),
    cve: cveOf([...ids].sort(compare)),
    purl,
    name,
    version,
    severity: rated?.affected.severity ?? "unknown",
    score: rated?.affected.score ?? null,
    summary: advisory.summary,
    fixed: [...fixed]
      .filter((fix) => (compareVersions(ecosystem, fix, version) ?? 1) > 0)
      .sort((a, b) => compareVersions(ecosystem, a, b) ?? compare(a, b))
      .slice(0, 20),
    // Only dep-scan analyses the code.
    reachable: null,
    source,
    url: advisory.url,
  };
}

function rank({ advisory }: Hit): number {
  const at = SOURCES.findIndex((prefix) => advisory.id.startsWith(prefix));
  return at < 0 ? SOURCES.length : at;
}

function fixesOf({ ranges }: Affected): string[] {
  return ranges.flatMap(({ events }) => events.flatMap(({ kind, version }) => (kind === "fixed" ? [version] : [])));
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
