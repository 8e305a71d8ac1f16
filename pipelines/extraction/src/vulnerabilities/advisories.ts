// A folder of OSV advisories, .json and .yaml, as the built-in matcher needs them: by package, and only those of packages that the SBOM has, because all
// of them would not fit into memory. The folder is the operator's, but its contents are the world's: everything has a limit, and a broken file is counted.
import fs from "node:fs";
import path from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { parse } from "yaml";
import { type Fields, fieldsOf, objectsIn, sentenceOf, textOf, textsIn, webAddress } from "../untrusted.ts";
import { ECOSYSTEMS, ecosystemOf, packageKey } from "./packages.ts";
import { type Rating, ratingOf } from "./severity.ts";
import type { Event, Range } from "./versions.ts";

export interface Advisory {
  id: string;
  aliases: string[];
  summary: string;
  url: string | null;
  withdrawn: boolean;
  /** When it was last changed, in milliseconds; 0 when it does not say. */
  modified: number;
  /** What it says of one package. */
  affected: Affected[];
}

export interface Affected extends Rating {
  key: string;
  versions: string[];
  ranges: Range[];
}

export interface Advisories {
  /** All that were read and are in force, of whatever package. */
  count: number;
  /** Names of files that are no advisories, the first few. */
  broken: { count: number; names: string[] };
  /** All there are, of whatever kind. */
  files: number;
  /** Files that were too many, too large or too deep. */
  left: number;
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
/** The longest that nothing else of the runner gets its turn. */
const TURN_MS = 10;

/** `wanted`: the keys of the packages that are asked for. */
export async function loadAdvisories(
  folder: string,
  wanted: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<Advisories> {
  const found: Advisories = {
    count: 0,
    broken: { count: 0, names: [] },
    files: 0,
    left: 0,
    byPackage: new Map(),
  };
  const newest = new Map<string, Advisory>();
  let since = 0;
  // One after the other without promises is four times as fast as many at once with them, as long as there is a pause now and then.
  for (const file of filesBelow(folder, found, 0)) {
    if (performance.now() - since > TURN_MS) {
      await turn();
      signal.throwIfAborted();
      since = performance.now();
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

/** An OSV record as an advisory; undefined when it is none. */
export function readAdvisory(record: unknown): Advisory | undefined {
  const fields = fieldsOf(record);
  const id = textOf(fields?.id, 100);
  if (!fields || !id || !Array.isArray(fields.affected)) return undefined;
  const label = fieldsOf(fields.database_specific)?.severity;
  const whole = ratingOf(fields, label);
  return {
    id,
    aliases: textsIn(fields.aliases, LIMITS.aliases, 100),
    summary: sentenceOf(fields.summary, 300) ?? sentenceOf(fields.details, 300) ?? id,
    url: addressOf(id, fields) ?? null,
    withdrawn: textOf(fields.withdrawn, 100) !== undefined,
    modified: momentOf(fields.modified),
    affected: objectsIn(fields.affected, LIMITS.affected).flatMap((one) => affectedOf(one, whole) ?? []),
  };
}

function momentOf(value: unknown): number {
  return Math.max(Date.parse(textOf(value, 100) ?? "") || 0, 0);
}

/** In the order of their names, which is the same on every machine. Links to files are followed, as volumes of Kubernetes are made of them; links to folders may lead in circles. */
function* filesBelow(folder: string, found: Advisories, depth: number): Generator<string> {
  const entries = fs.readdirSync(folder, { withFileTypes: true });
  for (const entry of entries.sort((one, other) => (one.name < other.name ? -1 : 1))) {
    if (entry.name.startsWith(".")) continue;
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) {
      if (depth < LIMITS.depth) yield* filesBelow(file, found, depth + 1);
      else found.left += 1;
    } else if (/\.(?:json|ya?ml)$/i.test(entry.name)) {
      found.files += 1;
      if (found.files <= LIMITS.files) yield file;
      else found.left += 1;
    }
  }
}

function readFile(file: string, wanted: ReadonlySet<string>, found: Advisories): Advisory | "broken" | undefined {
  try {
    const stat = fs.statSync(file);
    if (!stat.isFile() || stat.size > LIMITS.bytes) {
      found.left += 1;
      return undefined;
    }
    const text = fs.readFileSync(file, "utf8");
    if (/\.json$/i.test(file)) return readAdvisory(JSON.parse(text)) ?? "broken";
    return passedOver(text, wanted) ?? readAdvisory(yamlOf(text)) ?? "broken";
  } catch {
    return "broken";
  }
}

/** Without types but null: 5.10 is the version "5.10" and not the number 5.1. */
function yamlOf(text: string): unknown {
  return parse(text, { schema: "failsafe", customTags: ["null"], maxAliasCount: 20, logLevel: "silent" });
}

/**
 * YAML takes a hundred times as long as JSON to read. A file that names none of the packages is only counted; undefined when it has to be read after all,
 * which is whenever a name is not written plainly.
 */
function passedOver(text: string, wanted: ReadonlySet<string>): Advisory | undefined {
  const id = /^id:[ \t]+(['"]?)([\w.:-]{1,100})\1[ \t]*$/m.exec(text)?.[2];
  const names = [...text.matchAll(/\bname["']?[ \t]*:[ \t]*(?:"([^"]*)"|'([^']*)'|([^\n,}]*))/g)];
  if (!id || names.length === 0 || /^withdrawn:/m.test(text)) return undefined;
  for (const [, double, single, plain] of names) {
    const name = (double ?? single ?? plain!).trim();
    if (name === "" || /^[*&|>!#]|\\| #/.test(name)) return undefined;
    if (ECOSYSTEMS.some((ecosystem) => wanted.has(packageKey(ecosystem, name)))) return undefined;
  }
  const modified = momentOf(/^modified:[ \t]+['"]?([^'"\s]+)/m.exec(text)?.[1]);
  return { id, aliases: [], summary: "", url: null, withdrawn: false, modified, affected: [] };
}

function affectedOf(one: Fields, whole: Rating): Affected | undefined {
  const named = fieldsOf(one.package);
  const ecosystem = ecosystemOf(textOf(named?.ecosystem, 100) ?? "");
  const name = textOf(named?.name, 500);
  if (!ecosystem || !name) return undefined;
  const specific = fieldsOf(one.database_specific);
  const own = ratingOf(one, specific?.severity ?? fieldsOf(one.ecosystem_specific)?.severity);
  const lastKnown = textOf(specific?.last_known_affected_version_range, 200);
  const ranges = objectsIn(one.ranges, LIMITS.ranges).flatMap((range) => rangeOf(range, lastKnown) ?? []);
  const rating = own.severity === "unknown" ? whole : own;
  return { key: packageKey(ecosystem, name), versions: textsIn(one.versions, LIMITS.versions, 200), ranges, ...rating };
}

/** A range over commits says nothing of versions. */
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

/** Where a person reads more: the page of the database that gave the id, or else the first page that the advisory names. */
function addressOf(id: string, { references }: Fields): string | undefined {
  if (/^GHSA(?:-[\w]{4}){3}$/.test(id)) return `https://github.com/advisories/${id}`;
  if (/^(?:PYSEC|GO|RUSTSEC|MAL|CVE)-[\w-]+$/.test(id)) return `https://osv.dev/vulnerability/${id}`;
  return objectsIn(references, 50).flatMap(({ url }) => webAddress(url) ?? [])[0];
}

function index(byPackage: Advisories["byPackage"], advisory: Advisory): void {
  for (const affected of advisory.affected) {
    const list = byPackage.get(affected.key);
    if (list) list.push({ advisory, affected });
    else byPackage.set(affected.key, [{ advisory, affected }]);
  }
}
