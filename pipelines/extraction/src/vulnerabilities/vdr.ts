// Reads dep-scan's reports: CycloneDX documents with the vulnerabilities of components (VDR). Their fields differ between
// versions, so missing ones are tolerated. The content is untrusted and limited.
import fs from "node:fs/promises";
import path from "node:path";
import type { Vulnerability } from "../model.ts";
import { type Fields, fieldsOf, numberOf, objectsIn, packageUrlOf, shortLine, textOf, webUrl } from "../untrusted.ts";
import { bySeverity, cveOf } from "./match.ts";
import { componentOf } from "./packages.ts";
import { severityOfScore, severityOfWord } from "./severity.ts";

export interface Report {
  vulnerabilities: Vulnerability[];
  /** Whether findings beyond the limits were dropped. */
  truncated: boolean;
}

/** Its message is shown to people. */
export class InvalidReport extends Error {}

const LIMITS = { bytes: 256 * 2 ** 20, files: 50, vulnerabilities: 50_000, affects: 1000, references: 200 };
const ADVISORY_ID = /^(?:GHSA-[\w-]{14}|(?:PYSEC|GO|RUSTSEC)-\d{4}-\d+)$/;

/** Unique findings of all reports in the folder. Undefined without a report. */
export async function readReports(folder: string): Promise<Report | undefined> {
  const names = (await fs.readdir(folder)).filter((name) => /\.(?:vdr|vex)\.json$/.test(name)).sort();
  if (names.length === 0) return undefined;
  const found = new Map<string, Vulnerability>();
  let truncated = names.length > LIMITS.files;
  for (const name of names.slice(0, LIMITS.files)) {
    const file = path.join(folder, name);
    const stat = await fs.lstat(file);
    if (!stat.isFile()) throw new InvalidReport("its report is not a regular file");
    if (stat.size > LIMITS.bytes) throw new InvalidReport(`its report is larger than ${LIMITS.bytes / 2 ** 20} MB`);
    for (const vulnerability of readVulnerabilities(JSON.parse(await fs.readFile(file, "utf8")))) {
      if (!vulnerability || found.size >= LIMITS.vulnerabilities) truncated = true;
      else found.set(`${vulnerability.id} ${vulnerability.purl}`, vulnerability);
    }
  }
  return { vulnerabilities: [...found.values()].sort(bySeverity), truncated };
}

/** Yields undefined for a finding whose package URL cannot be stored. */
function* readVulnerabilities(document: unknown): Iterable<Vulnerability | undefined> {
  const list = fieldsOf(document)?.vulnerabilities;
  if (!Array.isArray(list)) throw new InvalidReport("its report has no list of vulnerabilities");
  const entries = objectsIn(list, LIMITS.vulnerabilities + 1);
  // If no entry mentions reachability, it was not analysed.
  const analysed = entries.some(isReachable);
  for (const entry of entries) {
    const id = textOf(entry.id, 100);
    if (!id) continue;
    for (const affect of objectsIn(entry.affects, LIMITS.affects)) {
      const purl = packageUrlOf(affect.ref);
      if (purl !== undefined) yield toVulnerability(entry, id, purl, affect, analysed);
      else if (typeof affect.ref === "string" && affect.ref.startsWith("pkg:")) yield undefined;
    }
  }
}

function toVulnerability(entry: Fields, id: string, purl: string, affect: Fields, analysed: boolean): Vulnerability {
  const [rating] = objectsIn(entry.ratings, 10);
  const score = numberOf(rating?.score, 0, 10);
  const labelled = severityOfWord(rating?.severity);
  const references = objectsIn(entry.references, LIMITS.references).flatMap(
    (reference) => textOf(reference.id, 100) ?? [],
  );
  // Other CVEs in the references of a CVE are related, not aliases.
  const aliases = references.filter(
    (other) => other !== id && (ADVISORY_ID.test(other) || (!id.startsWith("CVE-") && cveOf([other]))),
  );
  const component = componentOf(purl);
  return {
    id,
    aliases: [...new Set(aliases)].sort(),
    cve: cveOf([id, ...aliases.sort()]),
    purl,
    name: component?.name ?? purl.replace(/^pkg:[^/]+\//, "").replace(/[@?#].*$/, ""),
    version: component?.version ?? "",
    severity: labelled === "unknown" && score !== undefined ? severityOfScore(score) : labelled,
    score: score ?? null,
    summary: shortLine(entry.description, 300) ?? shortLine(entry.detail, 300) ?? id,
    fixed: [...new Set(objectsIn(affect.versions, 100).flatMap(fixedVersion))].slice(0, 20),
    reachable: analysed ? isReachable(entry) : null,
    source: "dep-scan",
    url: webUrl(fieldsOf(entry.source)?.url) ?? null,
  };
}

function fixedVersion({ status, version }: Fields): string[] {
  const text = status === "unaffected" ? textOf(version, 200) : undefined;
  return text && /\d/.test(text) ? [text] : [];
}

/** The property contains lines such as "Reachable and Exploitable" and "Used in 3 locations". */
function isReachable({ properties }: Fields): boolean {
  return objectsIn(properties, 50).some(
    ({ name, value }) =>
      name === "depscan:insights" && /\bReachable\b|\bUsed in \d+ location/.test(textOf(value, 2000) ?? ""),
  );
}
