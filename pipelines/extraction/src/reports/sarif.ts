// findings.sarif: the findings as SARIF 2.1.0 for code hosts and editors. One run with the rules that matched.
import { ARTIFACTS, type Finding, type Severity, type Vulnerability } from "../model.ts";
import { relativeUri, visibleText, webLink } from "../untrusted.ts";
import { exploitationFor, orderFindings, rank } from "./order.ts";
import type { Content } from "./reports.ts";

const SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json";
const LEVELS: Record<Severity, string> = {
  critical: "error",
  high: "error",
  medium: "warning",
  low: "note",
  unknown: "note",
};
/** Used without a CVSS score: the middle of the range of the severity. */
const SCORES: Record<Severity, number | undefined> = {
  critical: 9.5,
  high: 8,
  medium: 5.5,
  low: 2,
  unknown: undefined,
};

/** GitHub's limit of results and rules per run. It rejects a file with more. */
export const MAX_RESULTS = 25_000;
/** Tags per rule; GitHub shows no more. */
const MAX_TAGS = 10;

interface Rule {
  id: string;
  [property: string]: unknown;
}

export function writeSarif(content: Content): string {
  const { input, checkout, code, secrets, extractionId, at } = content;
  const rules = new Map<string, Rule>();
  const all = [...(content.vulnerabilities ?? []), ...orderFindings(code ?? []), ...orderFindings(secrets ?? [])];
  const shown = mostSevere(content, all);
  const results = shown.map((item) =>
    "purl" in item ? vulnerabilityResult(content, rules, item) : findingResult(content, rules, item),
  );
  const notes = [
    ...missingNotes(content),
    ...(shown.length < all.length
      ? [`This file has only the ${shown.length} most severe of ${all.length} findings; findings.json has all of them`]
      : []),
  ];
  const index = new Map([...rules.keys()].map((id, number) => [id, number]));
  const log = {
    $schema: SCHEMA,
    version: "2.1.0",
    runs: [
      {
        tool: { driver: { name: "stillwake-extraction", rules: [...rules.values()] } },
        automationDetails: {
          id: `extraction/${visibleText(input.repository, 400)}/`,
          correlationGuid: input.projectId,
          guid: extractionId,
        },
        invocations: [
          {
            executionSuccessful: true,
            ...(at !== undefined && { endTimeUtc: at }),
            toolExecutionNotifications: notes.map((text) => ({ level: "warning", message: { text } })),
          },
        ],
        originalUriBaseIds: { SRCROOT: { description: { text: "The root of the repository" } } },
        columnKind: "utf16CodeUnits",
        properties: {
          provider: input.provider,
          repository: input.repository,
          branch: checkout.branch,
          commit: checkout.commit,
          packagePath: input.packagePath,
        },
        results: results.map((result) => ({ ...result, ruleIndex: index.get(result.ruleId) })),
      },
    ],
  };
  return `${JSON.stringify(log, null, 1)}\n`;
}

/** Notes about scans that did not run, or only in part. Also shown in the summary. */
export function missingNotes({
  vulnerabilities,
  coverage,
  exploited,
  code,
  secrets,
}: Pick<Content, "vulnerabilities" | "coverage" | "exploited" | "code" | "secrets">): string[] {
  const why = coverage && coverage.notes.length > 0 ? `: ${visibleText(coverage.notes.join("; "), 1_000)}` : "";
  const partly = vulnerabilities && coverage && coverage.checked < coverage.total;
  return [
    ...(vulnerabilities ? [] : [`This extraction did not scan for vulnerabilities${why}`]),
    ...(partly
      ? [`Only ${coverage.checked} of ${coverage.total} dependencies were checked for vulnerabilities${why}`]
      : []),
    ...(vulnerabilities && !exploited?.read.epss ? ["This extraction could not read EPSS"] : []),
    ...(vulnerabilities && !exploited?.read.kev ? ["This extraction could not read KEV"] : []),
    ...(code ? [] : ["This extraction did not analyse the code"]),
    ...(secrets ? [] : ["This extraction did not scan for secrets"]),
  ];
}

/** The most severe ones within the limit, in the same order. Known exploited ones come before all others. */
function mostSevere(content: Content, all: (Vulnerability | Finding)[]): (Vulnerability | Finding)[] {
  if (all.length <= MAX_RESULTS) return all;
  const order = (item: Vulnerability | Finding) =>
    "purl" in item && exploitationFor(item, content.exploited)?.kev ? -1 : rank(item.severity);
  const kept = new Set(all.toSorted((a, b) => order(a) - order(b)).slice(0, MAX_RESULTS));
  return all.filter((item) => kept.has(item));
}

function vulnerabilityResult(content: Content, rules: Map<string, Rule>, vulnerability: Vulnerability) {
  const { origins, exploited } = content;
  const { severity, score, fixed, reachable, aliases } = vulnerability;
  const ruleId = visibleText(vulnerability.id, 200);
  const summary = visibleText(vulnerability.summary, 500) || ruleId;
  const help = webLink(vulnerability.url);
  if (!rules.has(ruleId)) {
    rules.set(ruleId, {
      id: ruleId,
      shortDescription: { text: summary },
      ...(help !== undefined && { helpUri: help }),
      ...securityProperties(severity, score, ["vulnerability"]),
    });
  }
  const { epss, kev } = exploitationFor(vulnerability, exploited) ?? {};
  const origin = origins.get(vulnerability.purl);
  const name = `${visibleText(vulnerability.name, 200)} ${visibleText(vulnerability.version, 100)}`;
  const remedy = fixed.length > 0 ? ` Fixed in ${visibleText(fixed.join(", "), 200)}.` : "";
  return {
    ruleId,
    level: LEVELS[severity],
    message: { text: `${name}: ${summary.replace(/[.]$/, "")}.${remedy}` },
    locations: locationAt(content, origin?.manifest, { startLine: 1 }),
    partialFingerprints: { "vulnerability/v1": `${ruleId} ${visibleText(vulnerability.purl, 2_000)}` },
    properties: {
      purl: visibleText(vulnerability.purl, 2_000),
      aliases: aliases.map((alias) => visibleText(alias, 200)),
      ...(origin && { direct: origin.direct }),
      ...(reachable !== null && { reachable }),
      ...(epss != null && { epss }),
      ...(kev && { kev: kev.added }),
      source: vulnerability.source,
    },
  };
}

function findingResult(content: Content, rules: Map<string, Rule>, finding: Finding) {
  const { kind, severity, line, endLine, fingerprint, engine, cwe } = finding;
  const rule = visibleText(finding.rule, 200);
  const ruleId = `${kind}/${rule}`;
  const text = visibleText(finding.message, 1_000) || rule;
  if (!rules.has(ruleId)) {
    const tags = [kind, ...cwe.map((number) => `external/cwe/${number.toLowerCase()}`)];
    rules.set(ruleId, {
      id: ruleId,
      shortDescription: { text: kind === "code" ? text : `A secret in the repository: ${rule}` },
      ...securityProperties(severity, null, tags),
    });
  }
  return {
    ruleId,
    level: LEVELS[severity],
    message: { text },
    locations: locationAt(content, finding.path, { startLine: line, endLine: Math.max(line, endLine) }),
    partialFingerprints: { "finding/v1": fingerprint },
    properties: { engine },
  };
}

/**
 * GitHub rejects the whole file if one result has no location. Without a valid path in the repository, a result is located at
 * the nearest manifest, else at the package path, else at the SBOM.
 */
function locationAt(
  { input, sbom }: Content,
  path: string | undefined,
  region: { startLine: number; endLine?: number },
) {
  const uris = [path, sbom.manifests?.[0], input.packagePath].flatMap((file) => relativeUri(file ?? "") ?? []);
  const uri = uris[0] ?? ARTIFACTS.sbom;
  const valid = path !== undefined && relativeUri(path) === uri;
  return [
    {
      physicalLocation: {
        artifactLocation: { uri, uriBaseId: "SRCROOT" },
        region: valid ? region : { startLine: 1 },
      },
    },
  ];
}

function securityProperties(severity: Severity, score: number | null, tags: string[]) {
  const number = score ?? SCORES[severity];
  return {
    defaultConfiguration: { level: LEVELS[severity] },
    properties: {
      tags: ["security", ...tags].slice(0, MAX_TAGS),
      ...(number !== undefined && { "security-severity": number.toFixed(1) }),
    },
  };
}
