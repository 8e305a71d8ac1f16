// Loads OSV advisories (.json, .yaml) from a folder, indexed by package, and only for packages of the SBOM, because all of
// them would not fit into memory. The content is untrusted: everything is limited, and invalid files are counted.
import fs from "node:fs";
import path from "node:path";
import { setImmediate as yieldToEventLoop } from "node:timers/promises";
import { parse } from "yaml";
import { type Fields, fieldsOf, objectsIn, shortLine, textOf, textsIn, webUrl } from "../untrusted.ts";
import { ECOSYSTEMS, ecosystemOf, packageKey } from "./packages.ts";
import { type Rating, ratingOf } from "./severity.ts";
import type { Event, Range } from "./versions.ts";

export interface Advisory {
  id: string;
  aliases: string[];
  summary: string;
  url: string | null;
  withdrawn: boolean;
  /** Last change in milliseconds; 0 if unknown. */
  modified: number;
  /** Of the whole advisory; a package may have its own. */
  rating: Rating;
  /** One entry per package, or several with different ranges. */
  affected: Affected[];
}

export interface Affected extends Rating {
  key: string;
  versions: string[];
  ranges: Range[];
}

export interface Advisories {
  /** All valid advisories that are not withdrawn, of any package. */
  count: number;
  /** Files that are not advisories; the names of the first few. */
  broken: { count: number; names: string[] };
  /** Number of .json and .yaml files. */
  files: number;
  /** Files beyond the limits of number, size or depth. */
  skipped: number;
  byPackage: Map<string, Array<{ advisory: Advisory; affected: Affected }>>;
}

const LIMITS = {
  files: 500_000,
  depth: 8,
  bytes: 4 * 2 ** 20,
  affected: 2000,
  ranges: 200,
  events: 500,
  versions: 20_000,
  aliases: 50,
};
/** Longest time to block the event loop. */
const MAX_BLOCK_MS = 10;

/** `wanted`: keys of the packages to load. */
export async function loadAdvisories(
  folder: string,
  wanted: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<Advisories> {
  const found: Advisories = {
    count: 0,
    broken: { count: 0, names: [] },
    files: 0,
    skipped: 0,
    byPackage: new Map(),
  };
  const newest = new Map<string, Advisory>();
  let resumedAt = 0;
  // Synchronous reads with a pause now and then are four times as fast as concurrent asynchronous ones.
  for (const file of filesBelow(folder, found, 0)) {
    if (performance.now() - resumedAt > MAX_BLOCK_MS) {
      await yieldToEventLoop();
      signal.throwIfAborted();
      resumedAt = performance.now();
    }
    const advisory = readFile(file, wanted, found);
    if (advisory === "broken") {
      found.broken.count += 1;
      if (found.broken.names.length < 5) found.broken.names.push(path.relative(folder, file));
    } else if (advisory && advisory.modified > (newest.get(advisory.id)?.modified ?? -1)) {
      newest.set(advisory.id, { ...advisory, affected: advisory.affected.filter(({ key }) => wanted.has(key)) });
    }
  }
  for (const advisory of newest.values()) {
    if (advisory.withdrawn) continue;
    found.count += 1;
    index(found.byPackage, advisory);
  }
  return found;
}

/** Undefined if the OSV record is not a valid advisory. */
export function readAdvisory(record: unknown): Advisory | undefined {
  const fields = fieldsOf(record);
  const id = textOf(fields?.id, 100);
  if (!fields || !id || !Array.isArray(fields.affected)) return undefined;
  const label = fieldsOf(fields.database_specific)?.severity;
  const whole = ratingOf(fields, label);
  return {
    id,
    aliases: textsIn(fields.aliases, LIMITS.aliases, 100),
    summary: shortLine(fields.summary, 300) ?? shortLine(fields.details, 300) ?? id,
    url: advisoryUrl(id, fields) ?? null,
    withdrawn: textOf(fields.withdrawn, 100) !== undefined,
    modified: parseTime(fields.modified),
    rating: whole,
    affected: objectsIn(fields.affected, LIMITS.affected).flatMap((entry) => affectedOf(entry, whole) ?? []),
  };
}

function parseTime(value: unknown): number {
  return Math.max(Date.parse(textOf(value, 100) ?? "") || 0, 0);
}

/** Sorted by name. Follows links to files (Kubernetes volumes use them), but not links to folders, which may form a cycle. */
function* filesBelow(folder: string, found: Advisories, depth: number): Generator<string> {
  const entries = fs.readdirSync(folder, { withFileTypes: true });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (entry.name.startsWith(".")) continue;
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) {
      if (depth < LIMITS.depth) yield* filesBelow(file, found, depth + 1);
      else found.skipped += 1;
    } else if (/\.(?:json|ya?ml)$/i.test(entry.name)) {
      found.files += 1;
      if (found.files <= LIMITS.files) yield file;
      else found.skipped += 1;
    }
  }
}

function readFile(file: string, wanted: ReadonlySet<string>, found: Advisories): Advisory | "broken" | undefined {
  try {
    const stat = fs.statSync(file);
    if (!stat.isFile() || stat.size > LIMITS.bytes) {
      found.skipped += 1;
      return undefined;
    }
    const text = fs.readFileSync(file, "utf8");
    if (/\.json$/i.test(file)) return readAdvisory(JSON.parse(text)) ?? "broken";
    return readUnmatchedYaml(text, wanted) ?? readAdvisory(parseYaml(text)) ?? "broken";
  } catch {
    return "broken";
  }
}

/** All scalars but null stay strings: 5.10 is the version "5.10" and not the number 5.1. */
function parseYaml(text: string): unknown {
  return parse(text, { schema: "failsafe", customTags: ["null"], maxAliasCount: 20, logLevel: "silent" });
}

/**
 * Parsing YAML takes a hundred times as long as JSON. A file that names none of the wanted packages is only counted. Returns
 * undefined if the file must be parsed: it names one, or a name is not a plain scalar.
 */
function readUnmatchedYaml(text: string, wanted: ReadonlySet<string>): Advisory | undefined {
  const id = /^id:[ \t]+(['"]?)([\w.:-]{1,100})\1[ \t]*$/m.exec(text)?.[2];
  const names = [...text.matchAll(/\bname["']?[ \t]*:[ \t]*(?:"([^"]*)"|'([^']*)'|([^\n,}]*))/g)];
  if (!id || names.length === 0 || /^withdrawn:/m.test(text)) return undefined;
  for (const [, double, single, plain] of names) {
    const name = (double ?? single ?? plain!).trim();
    if (name === "" || /^[*&|>!#]|\\| #/.test(name)) return undefined;
    if (ECOSYSTEMS.some((ecosystem) => wanted.has(packageKey(ecosystem, name)))) return undefined;
  }
  const modified = parseTime(/^modified:[ \t]+['"]?([^'"\s]+)/m.exec(text)?.[1]);
  const rating: Rating = { severity: "unknown", score: null };
  return { id, aliases: [], summary: "", url: null, withdrawn: false, modified, rating, affected: [] };
}

function affectedOf(entry: Fields, whole: Rating): Affected | undefined {
  const named = fieldsOf(entry.package);
  const ecosystem = ecosystemOf(textOf(named?.ecosystem, 100) ?? "");
  const name = textOf(named?.name, 500);
  if (!ecosystem || !name) return undefined;
  const specific = fieldsOf(entry.database_specific);
  const own = ratingOf(entry, specific?.severity ?? fieldsOf(entry.ecosystem_specific)?.severity);
  const lastKnown = textOf(specific?.last_known_affected_version_range, 200);
  const ranges = objectsIn(entry.ranges, LIMITS.ranges).flatMap((range) => rangeOf(range, lastKnown) ?? []);
  const rating = own.severity === "unknown" ? whole : own;
  return {
    key: packageKey(ecosystem, name),
    versions: textsIn(entry.versions, LIMITS.versions, 200),
    ranges,
    ...rating,
  };
}

/** Undefined for a range of git commits. */
function rangeOf({ type, events }: Fields, lastKnown: string | undefined): Range | undefined {
  if (type !== "SEMVER" && type !== "ECOSYSTEM") return undefined;
  const kinds = ["introduced", "fixed", "last_affected", "limit"] as const;
  const read = objectsIn(events, LIMITS.events).flatMap((event) =>
    kinds.flatMap((kind): Event[] => {
      const version = textOf(event[kind], 200);
      return version ? [{ kind, version }] : [];
    }),
  );
  return { events: read, ...(lastKnown !== undefined && { lastKnown }) };
}

/** The page of the advisory's database, else the first reference. */
function advisoryUrl(id: string, { references }: Fields): string | undefined {
  if (/^GHSA(?:-[\w]{4}){3}$/.test(id)) return `https://github.com/advisories/${id}`;
  if (/^(?:PYSEC|GO|RUSTSEC|MAL|CVE)-[\w-]+$/.test(id)) return `https://osv.dev/vulnerability/${id}`;
  return objectsIn(references, 50).flatMap(({ url }) => webUrl(url) ?? [])[0];
}

function index(byPackage: Advisories["byPackage"], advisory: Advisory): void {
  for (const affected of advisory.affected) {
    const list = byPackage.get(affected.key);
    if (list) list.push({ advisory, affected });
    else byPackage.set(affected.key, [{ advisory, affected }]);
  }
}
