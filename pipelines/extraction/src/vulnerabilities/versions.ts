// Decides whether a version is affected by an advisory. Each ecosystem has its own order of versions; versions whose order is
// not implemented are reported as not comparable.
//
//   npm, crates.io, Hex, Pub, Go, GitHub Actions   semantic versions (a leading "v" and missing parts are accepted)
//   PyPI                                           PEP 440
//   Maven, NuGet, Packagist, RubyGems              numbers with dots. A suffix ("-beta9", ".v2019") matters only if the
//                                                  numbers are equal: a pre-release comes before the release; two
//                                                  suffixes are comparable only by NuGet's rules
import * as pep440 from "@renovatebot/pep440";
import semver from "semver";
import type { Ecosystem } from "./packages.ts";

export interface Event {
  kind: "introduced" | "fixed" | "last_affected" | "limit";
  version: string;
}

export interface Range {
  events: Event[];
  /** "<= 2.4.1": last known affected versions of a range without a fix. */
  lastKnown?: string;
}

/** "unknown": a version could not be compared, and no other range is affected. */
export type Verdict = "affected" | "unaffected" | "unknown";

/** Negative, 0 or positive; undefined if they cannot be compared. */
export function compareVersions(ecosystem: Ecosystem, a: string, b: string): number | undefined {
  return comparatorOf(ecosystem)(a, b);
}

/** Ignores the notation: Django 2.2.0 is 2.2. */
export function sameVersion(ecosystem: Ecosystem, a: string, b: string): boolean {
  return a === b || compareVersions(ecosystem, a, b) === 0;
}

export function affectedBy(
  ecosystem: Ecosystem,
  version: string,
  ranges: readonly Range[],
  versions: readonly string[],
): Verdict {
  if (versions.some((listed) => sameVersion(ecosystem, version, listed))) return "affected";
  const verdicts = ranges.map((range) => inRange(ecosystem, version, range));
  if (verdicts.includes("affected")) return "affected";
  return verdicts.includes("unknown") ? "unknown" : "unaffected";
}

/** Applies the events in the order of their versions. */
function inRange(ecosystem: Ecosystem, version: string, { events, lastKnown }: Range): Verdict {
  const compare = comparatorOf(ecosystem);
  const comparable: Array<Event & { order: number }> = [];
  const limits: boolean[] = [];
  for (const event of events) {
    const { kind } = event;
    const from0 = kind === "introduced" && event.version === "0";
    if (kind === "limit" && event.version === "*") limits.push(true);
    else {
      const order = from0 ? 1 : compare(version, event.version);
      if (order === undefined) return "unknown";
      if (kind === "limit") limits.push(order < 0);
      else comparable.push({ ...event, order });
    }
  }
  if (limits.length > 0 && !limits.includes(true)) return "unaffected";

  const sorted = comparable.toSorted((a, b) => {
    if (a.version === "0" || b.version === "0") return Number(b.version === "0") - Number(a.version === "0");
    return compare(a.version, b.version) ?? 0;
  });
  let affected = false;
  for (const { kind, order } of inEventOrder(sorted, compare)) {
    if (kind === "introduced" && order >= 0) affected = true;
    else if (kind === "fixed" && order >= 0) affected = false;
    else if (kind === "last_affected" && order > 0) affected = false;
  }
  if (!affected) return "unaffected";
  const open = lastKnown !== undefined && !comparable.some(({ kind }) => kind !== "introduced") && limits.length === 0;
  return open ? matchesComparators(compare, version, lastKnown) : "affected";
}

/**
 * At one version a range may end and another begin, or a range may consist of that version only. An open range is closed
 * first, and without an open range one is opened first.
 */
function inEventOrder<Item extends Event>(sorted: readonly Item[], compare: Comparator): Item[] {
  const ordered: Item[] = [];
  let open = false;
  for (let at = 0; at < sorted.length; ) {
    const { version } = sorted[at]!;
    const starts: Item[] = [];
    const ends: Item[] = [];
    // Versions that cannot be compared count as equal.
    for (; at < sorted.length && (sorted[at]!.version === version || !compare(sorted[at]!.version, version)); at += 1) {
      (sorted[at]!.kind === "introduced" ? starts : ends).push(sorted[at]!);
    }
    while (starts.length > 0 || ends.length > 0) {
      const [first, second]: [Item[], Item[]] = open ? [ends, starts] : [starts, ends];
      const next: Item = (first.shift() ?? second.shift())!;
      ordered.push(next);
      open = next.kind === "introduced";
    }
  }
  return ordered;
}

/** "<= 7.0.10", ">= 2, < 3". Unreadable comparators are ignored. */
function matchesComparators(compare: Comparator, version: string, comparators: string): Verdict {
  for (const comparator of comparators.split(",")) {
    const [, sign, bound] = /^\s*(<=|>=|<|>|=)\s*(\S+)\s*$/.exec(comparator) ?? [];
    if (!sign || !bound) continue;
    const order = compare(version, bound);
    if (order === undefined) return "unknown";
    const holds =
      (order < 0 && sign.startsWith("<")) || (order > 0 && sign.startsWith(">")) || (order === 0 && sign.endsWith("="));
    if (!holds) return "unaffected";
  }
  return "affected";
}

/** Undefined if the versions cannot be compared. */
type Comparator = (a: string, b: string) => number | undefined;

const MAX_MEMOIZED = 50_000;
const semantic = memoizedComparator(semanticVersion, (a, b) => a.compare(b));
const python = memoizedComparator((text) => pep440.valid(text) ?? undefined, pep440.compare);
const dotted = memoizedComparator(dottedVersion, compareDotted);

function comparatorOf(ecosystem: Ecosystem): Comparator {
  switch (ecosystem) {
    case "PyPI":
      return python;
    case "NuGet":
      return (a, b) => dotted(a, b) ?? semantic(a, b);
    case "Maven":
    case "Packagist":
    case "RubyGems":
      return dotted;
    default:
      return semantic;
  }
}

/** Parsed versions are cached: a large SBOM compares the same few bounds again and again. */
function memoizedComparator<Read>(
  read: (version: string) => Read | undefined,
  compare: (a: Read, b: Read) => number | undefined,
): Comparator {
  const cache = new Map<string, Read | undefined>();
  const parse = (version: string) => {
    if (cache.has(version)) return cache.get(version);
    if (cache.size >= MAX_MEMOIZED) cache.clear();
    const value = version.length <= 200 ? read(version) : undefined;
    cache.set(version, value);
    return value;
  };
  return (a, b) => {
    const [left, right] = [parse(a), parse(b)];
    return left === undefined || right === undefined ? undefined : compare(left, right);
  };
}

/** "v1.2", "1", "1.2.3-rc.1+incompatible". */
function semanticVersion(text: string): semver.SemVer | undefined {
  const [, numbers, rest = ""] = /^[v=\s]*(\d+(?:\.\d+){0,2})([-+].*)?$/i.exec(text.trim()) ?? [];
  if (!numbers) return undefined;
  const whole = [...numbers.split("."), "0", "0"].slice(0, 3).map((part) => part.replace(/^0+(?=\d)/, ""));
  return semver.parse(whole.join(".") + rest, { loose: true }) ?? undefined;
}

/** Suffixes that sort before the release in all of these ecosystems. */
const PRE_RELEASE = /^[.-]?(?:(?:alpha|beta|milestone|rc|cr|snapshot)(?![a-z])|[abm](?=\d))/;

interface Dotted {
  numbers: number[];
  /** Suffix after the numbers, in lower case. */
  rest: string;
}

/**
 * "4.5.3.Final" is "4.5.3" in Maven, and Packagist ignores a leading "v". Undefined for "1.x-dev", which stands for many
 * versions, and for texts that only begin with a number, such as a commit.
 */
function dottedVersion(text: string): Dotted | undefined {
  const plain = text
    .trim()
    .toLowerCase()
    .replace(/^v(?=\d)/, "")
    .replace(/[.-](?:final|ga|release)$/, "");
  const [, parts, rest = ""] =
    /^(\d{1,15}(?:\.\d{1,15})*)((?!\.\d|[.-]?[x*](?:[.-]|$))(?:[.+_-].*|[a-z]+[.-]?\d*)?)$/.exec(plain) ?? [];
  return parts === undefined ? undefined : { numbers: parts.split(".").map(Number), rest };
}

function compareDotted(a: Dotted, b: Dotted): number | undefined {
  for (let at = 0; at < Math.max(a.numbers.length, b.numbers.length); at += 1) {
    const difference = (a.numbers[at] ?? 0) - (b.numbers[at] ?? 0);
    if (difference !== 0) return difference;
  }
  if (a.rest === b.rest) return 0;
  if (b.rest === "" && PRE_RELEASE.test(a.rest)) return -1;
  return a.rest === "" && PRE_RELEASE.test(b.rest) ? 1 : undefined;
}
