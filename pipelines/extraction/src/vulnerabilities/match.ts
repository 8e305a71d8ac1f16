// The built-in matcher: components of an SBOM beside advisories, through the names of packages, so that its time grows with what is found and not with
// the product of the two. One finding for each vulnerability and component, whatever number of databases tell of it.
import { SEVERITIES, type Vulnerability } from "../model.ts";
import type { Advisories, Advisory, Affected } from "./advisories.ts";
import type { Component } from "./packages.ts";
import { affectedBy, compareVersions } from "./versions.ts";

export interface Matched {
  vulnerabilities: Vulnerability[];
  /** Components that an advisory names, in a version that could not be compared with it. */
  undecided: string[];
  /** Those without a version, which are affected only by what affects every version. */
  unversioned: string[];
}

export function matchAdvisories(
  components: Iterable<Component>,
  { byPackage }: Pick<Advisories, "byPackage">,
): Matched {
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
    for (const group of groupsOf(hits)) {
      const vulnerability = findingOf(component, group);
      found.set(`${vulnerability.id} ${vulnerability.purl}`, vulnerability);
    }
  }
  return {
    vulnerabilities: [...found.values()].sort(bySeverity),
    undecided: [...undecided],
    unversioned: [...unversioned],
  };
}

/** The worst first, and the same order every time. */
export function bySeverity(one: Vulnerability, other: Vulnerability): number {
  return (
    SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity) ||
    (other.score ?? 0) - (one.score ?? 0) ||
    compare(one.purl, other.purl) ||
    compare(one.id, other.id)
  );
}

/** What EPSS and KEV know it by. */
export function cveOf(ids: readonly string[]): string | null {
  return ids.find((id) => /^CVE-\d{4}-\d{4,19}$/.test(id)) ?? null;
}

interface Hit {
  advisory: Advisory;
  affected: Affected;
}

/** GHSA and PYSEC of one CVE are one vulnerability: hits that have an id or an alias in common belong together. */
function groupsOf(hits: readonly Hit[]): Hit[][] {
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

/** Which of several ids a vulnerability goes by: that of the source with the most to say of it. */
const SOURCES = ["GHSA-", "PYSEC-", "GO-", "RUSTSEC-", "CVE-"];

function findingOf({ purl, name, version, ecosystem }: Component, group: readonly Hit[]): Vulnerability {
  const hits = group.toSorted((one, other) => rank(one) - rank(other) || compare(one.advisory.id, other.advisory.id));
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
      .sort((one, other) => compareVersions(ecosystem, one, other) ?? compare(one, other))
      .slice(0, 20),
    // Only dep-scan looks into the code.
    reachable: null,
    source: "built-in",
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

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}
