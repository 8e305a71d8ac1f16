// What dep-scan reports: a CycloneDX document whose vulnerabilities name the components they affect (a "VDR"). Its words have changed from version to
// version, so what is missing is done without; the file is a tool's output about a stranger's repository, and has limits.
import fs from "node:fs/promises";
import path from "node:path";
import type { Vulnerability } from "../model.ts";
import {
  type Fields,
  fieldsOf,
  numberOf,
  objectsIn,
  packageUrlOf,
  sentenceOf,
  textOf,
  webAddress,
} from "../untrusted.ts";
import { bySeverity, cveOf } from "./match.ts";
import { componentOf } from "./packages.ts";
import { severityOfScore, severityOfWord } from "./severity.ts";

export interface Report {
  vulnerabilities: Vulnerability[];
  /** True when there were more than we take. */
  cut: boolean;
}

/** With words for people. */
export class BadReport extends Error {}

const LIMITS = { bytes: 256 * 2 ** 20, files: 50, vulnerabilities: 50_000, affects: 1000, references: 200 };
const ADVISORY_ID = /^(?:GHSA-[\w-]{14}|(?:PYSEC|GO|RUSTSEC)-\d{4}-\d+)$/;

/** Of all reports in the folder, each finding once. Undefined when there is no report at all. */
export async function readReports(folder: string): Promise<Report | undefined> {
  const names = (await fs.readdir(folder)).filter((name) => /\.(?:vdr|vex)\.json$/.test(name)).sort();
  if (names.length === 0) return undefined;
  const found = new Map<string, Vulnerability>();
  let cut = names.length > LIMITS.files;
  for (const name of names.slice(0, LIMITS.files)) {
    const file = path.join(folder, name);
    const stat = await fs.lstat(file);
    if (!stat.isFile()) throw new BadReport("its report is no plain file");
    if (stat.size > LIMITS.bytes) throw new BadReport(`its report is larger than ${LIMITS.bytes / 2 ** 20} MB`);
    for (const one of reported(JSON.parse(await fs.readFile(file, "utf8")))) {
      if (!one || found.size >= LIMITS.vulnerabilities) cut = true;
      else found.set(`${one.id} ${one.purl}`, one);
    }
  }
  return { vulnerabilities: [...found.values()].sort(bySeverity), cut };
}

/** Undefined stands for a finding whose package URL nothing can be stored by. */
function* reported(document: unknown): Iterable<Vulnerability | undefined> {
  const list = fieldsOf(document)?.vulnerabilities;
  if (!Array.isArray(list)) throw new BadReport("its report has no list of vulnerabilities");
  const entries = objectsIn(list, LIMITS.vulnerabilities + 1);
  // Without a word of reachability in the whole report nobody has looked, and nothing is said to be out of reach.
  const looked = entries.some(isReached);
  for (const entry of entries) {
    const id = textOf(entry.id, 100);
    if (!id) continue;
    for (const affect of objectsIn(entry.affects, LIMITS.affects)) {
      const purl = packageUrlOf(affect.ref);
      if (purl !== undefined) yield findingOf(entry, id, purl, affect, looked);
      else if (typeof affect.ref === "string" && affect.ref.startsWith("pkg:")) yield undefined;
    }
  }
}

function findingOf(entry: Fields, id: string, purl: string, affect: Fields, looked: boolean): Vulnerability {
  const [rating] = objectsIn(entry.ratings, 10);
  const score = numberOf(rating?.score, 0, 10);
  const said = severityOfWord(rating?.severity);
  const references = objectsIn(entry.references, LIMITS.references).flatMap((one) => textOf(one.id, 100) ?? []);
  // A record of a CVE names other CVEs as kin, not as names of its own.
  const aliases = references.filter(
    (one) => one !== id && (ADVISORY_ID.test(one) || (!id.startsWith("CVE-") && cveOf([one]))),
  );
  const component = componentOf(purl);
  return {
    id,
    aliases: [...new Set(aliases)].sort(),
    cve: cveOf([id, ...aliases.sort()]),
    purl,
    name: component?.name ?? purl.replace(/^pkg:[^/]+\//, "").replace(/[@?#].*$/, ""),
    version: component?.version ?? "",
    severity: said === "unknown" && score !== undefined ? severityOfScore(score) : said,
    score: score ?? null,
    summary: sentenceOf(entry.description, 300) ?? sentenceOf(entry.detail, 300) ?? id,
    fixed: [...new Set(objectsIn(affect.versions, 100).flatMap(fixedVersion))].slice(0, 20),
    reachable: looked ? isReached(entry) : null,
    source: "dep-scan",
    url: webAddress(fieldsOf(entry.source)?.url) ?? null,
  };
}

function fixedVersion({ status, version }: Fields): string[] {
  const text = status === "unaffected" ? textOf(version, 200) : undefined;
  return text && /\d/.test(text) ? [text] : [];
}

/** Its insights are lines with "\n" spelt out between them, such as "Reachable and Exploitable" and "Used in 3 locations". */
function isReached({ properties }: Fields): boolean {
  return objectsIn(properties, 50).some(
    ({ name, value }) =>
      name === "depscan:insights" && /\bReachable\b|\bUsed in \d+ location/.test(textOf(value, 2000) ?? ""),
  );
}
