// Whether a version is one of those an advisory names. Each ecosystem orders its versions by its own rules; where we do not have them all, we say that
// a version cannot be compared rather than guess.
//
//   npm, crates.io, Hex, Pub, Go, GitHub Actions   semantic versions (a "v" in front and missing parts are forgiven)
//   PyPI                                           PEP 440
//   Maven, NuGet, Packagist, RubyGems              numbers with dots, of any length. What follows them ("-beta9", ".v2019") decides only where the numbers are
//                                                  the same: a pre-release comes before the plain version, two suffixes are compared by NuGet's rules alone
import * as pep440 from "@renovatebot/pep440";
import semver from "semver";
import type { Ecosystem } from "./packages.ts";

export interface Event {
  kind: "introduced" | "fixed" | "last_affected" | "limit";
  version: string;
}

export interface Range {
  events: Event[];
  /** "<= 2.4.1": where an unfixed range ended when somebody last looked. */
  lastKnown?: string;
}

/** "unknown": at least one version could not be compared, and nothing else says that it is affected. */
export type Verdict = "affected" | "unaffected" | "unknown";

/** Below 0, 0, above 0; undefined when the two cannot be compared. */
export function compareVersions(ecosystem: Ecosystem, one: string, other: string): number | undefined {
  return orderOf(ecosystem)(one, other);
}

/** Whether the two are the same version, however it is written: Django 2.2.0 is 2.2. */
export function sameVersion(ecosystem: Ecosystem, one: string, other: string): boolean {
  return one === other || compareVersions(ecosystem, one, other) === 0;
}

export function affectedBy(
  ecosystem: Ecosystem,
  version: string,
  ranges: readonly Range[],
  versions: readonly string[],
): Verdict {
  if (versions.some((one) => sameVersion(ecosystem, version, one))) return "affected";
  const verdicts = ranges.map((range) => inRange(ecosystem, version, range));
  if (verdicts.includes("affected")) return "affected";
  return verdicts.includes("unknown") ? "unknown" : "unaffected";
}

/** The events in the order of their versions, each of which turns the answer. */
function inRange(ecosystem: Ecosystem, version: string, { events, lastKnown }: Range): Verdict {
  const compare = orderOf(ecosystem);
  const turns: Array<Event & { against: number }> = [];
  const limits: boolean[] = [];
  for (const event of events) {
    const { kind } = event;
    const from0 = kind === "introduced" && event.version === "0";
    if (kind === "limit" && event.version === "*") limits.push(true);
    else {
      const against = from0 ? 1 : compare(version, event.version);
      if (against === undefined) return "unknown";
      if (kind === "limit") limits.push(against < 0);
      else turns.push({ ...event, against });
    }
  }
  if (limits.length > 0 && !limits.includes(true)) return "unaffected";

  const sorted = turns.toSorted((one, other) => {
    if (one.version === "0" || other.version === "0")
      return Number(other.version === "0") - Number(one.version === "0");
    return compare(one.version, other.version) ?? 0;
  });
  let affected = false;
  for (const { kind, against } of inTurn(sorted, compare)) {
    if (kind === "introduced" && against >= 0) affected = true;
    else if (kind === "fixed" && against >= 0) affected = false;
    else if (kind === "last_affected" && against > 0) affected = false;
  }
  if (!affected) return "unaffected";
  const open = lastKnown !== undefined && !turns.some(({ kind }) => kind !== "introduced") && limits.length === 0;
  return open ? below(compare, version, lastKnown) : "affected";
}

/**
 * At one version a range may end and another begin, or a range may be that version alone. However they are written, what is open is ended first and
 * what is closed is begun first.
 */
function inTurn<One extends Event>(sorted: readonly One[], compare: Order): One[] {
  const order: One[] = [];
  let open = false;
  for (let at = 0; at < sorted.length; ) {
    const { version } = sorted[at]!;
    const begins: One[] = [];
    const ends: One[] = [];
    // What cannot be told apart counts as one version too.
    for (; at < sorted.length && (sorted[at]!.version === version || !compare(sorted[at]!.version, version)); at += 1) {
      (sorted[at]!.kind === "introduced" ? begins : ends).push(sorted[at]!);
    }
    while (begins.length > 0 || ends.length > 0) {
      const [first, second]: [One[], One[]] = open ? [ends, begins] : [begins, ends];
      const next: One = (first.shift() ?? second.shift())!;
      order.push(next);
      open = next.kind === "introduced";
    }
  }
  return order;
}

/** "<= 7.0.10", ">= 2, < 3". What cannot be read does not narrow the range. */
function below(compare: Order, version: string, comparators: string): Verdict {
  for (const comparator of comparators.split(",")) {
    const [, sign, bound] = /^\s*(<=|>=|<|>|=)\s*(\S+)\s*$/.exec(comparator) ?? [];
    if (!sign || !bound) continue;
    const against = compare(version, bound);
    if (against === undefined) return "unknown";
    const holds =
      (against < 0 && sign.startsWith("<")) ||
      (against > 0 && sign.startsWith(">")) ||
      (against === 0 && sign.endsWith("="));
    if (!holds) return "unaffected";
  }
  return "affected";
}

/** Undefined when one of the two is not understood, or what tells them apart is not. */
type Order = (one: string, other: string) => number | undefined;

const MAX_KNOWN = 50_000;
const semantic = order(semanticVersion, (one, other) => one.compare(other));
const python = order((text) => pep440.valid(text) ?? undefined, pep440.compare);
const dotted = order(numbers, compareNumbers);

function orderOf(ecosystem: Ecosystem): Order {
  switch (ecosystem) {
    case "PyPI":
      return python;
    case "NuGet":
      return (one, other) => dotted(one, other) ?? semantic(one, other);
    case "Maven":
    case "Packagist":
    case "RubyGems":
      return dotted;
    default:
      return semantic;
  }
}

/** What was read is remembered: the same few bounds are met again and again in a large SBOM. */
function order<Read>(
  read: (version: string) => Read | undefined,
  compare: (one: Read, other: Read) => number | undefined,
): Order {
  const known = new Map<string, Read | undefined>();
  const understood = (version: string) => {
    if (known.has(version)) return known.get(version);
    if (known.size >= MAX_KNOWN) known.clear();
    const value = version.length <= 200 ? read(version) : undefined;
    known.set(version, value);
    return value;
  };
  return (one, other) => {
    const [a, b] = [understood(one), understood(other)];
    return a === undefined || b === undefined ? undefined : compare(a, b);
  };
}

/** "v1.2", "1", "1.2.3-rc.1+incompatible". */
function semanticVersion(text: string): semver.SemVer | undefined {
  const [, numbers, rest = ""] = /^[v=\s]*(\d+(?:\.\d+){0,2})([-+].*)?$/i.exec(text.trim()) ?? [];
  if (!numbers) return undefined;
  const whole = [...numbers.split("."), "0", "0"].slice(0, 3).map((part) => part.replace(/^0+(?=\d)/, ""));
  return semver.parse(whole.join(".") + rest, { loose: true }) ?? undefined;
}

/** What comes before the plain version by everybody's rules. */
const PRE_RELEASE = /^[.-]?(?:(?:alpha|beta|milestone|rc|cr|snapshot)(?![a-z])|[abm](?=\d))/;

interface Dotted {
  numbers: number[];
  /** What follows the numbers, in lower case. */
  rest: string;
}

/**
 * "4.5.3.Final" is "4.5.3" in Maven, and a "v" in front means nothing in Packagist. Undefined for "1.x-dev", which is any of many versions, and for what only
 * begins with a number, as a commit may.
 */
function numbers(text: string): Dotted | undefined {
  const plain = text
    .trim()
    .toLowerCase()
    .replace(/^v(?=\d)/, "")
    .replace(/[.-](?:final|ga|release)$/, "");
  const [, parts, rest = ""] =
    /^(\d{1,15}(?:\.\d{1,15})*)((?!\.\d|[.-]?[x*](?:[.-]|$))(?:[.+_-].*|[a-z]+[.-]?\d*)?)$/.exec(plain) ?? [];
  return parts === undefined ? undefined : { numbers: parts.split(".").map(Number), rest };
}

function compareNumbers(one: Dotted, other: Dotted): number | undefined {
  for (let at = 0; at < Math.max(one.numbers.length, other.numbers.length); at += 1) {
    const difference = (one.numbers[at] ?? 0) - (other.numbers[at] ?? 0);
    if (difference !== 0) return difference;
  }
  if (one.rest === other.rest) return 0;
  if (other.rest === "" && PRE_RELEASE.test(one.rest)) return -1;
  return one.rest === "" && PRE_RELEASE.test(other.rest) ? 1 : undefined;
}
