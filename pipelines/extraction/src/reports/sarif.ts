// findings.sarif: the same findings in the form that code hosts and editors read, SARIF 2.1.0. One run, whose rules are those that found something.
import { ARTIFACTS, type Finding, type Severity, type Vulnerability } from "../model.ts";
import { exploitationOf, orderFindings, rank } from "./order.ts";
import type { Content } from "./reports.ts";
import { linkTo, uriOf, visible } from "./words.ts";

const SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json";
const LEVELS: Record<Severity, string> = {
  critical: "error",
  high: "error",
  medium: "warning",
  low: "note",
  unknown: "note",
};
/** Where there is no score: the middle of what the word stands for. */
const SCORES: Record<Severity, number | undefined> = {
  critical: 9.5,
  high: 8,
  medium: 5.5,
  low: 2,
  unknown: undefined,
};

/** What GitHub takes of one run, of results as of rules, of which there are no more than results. A file with more is refused as a whole. */
export const MAX_RESULTS = 25_000;
/** Of a rule; GitHub shows no more. */
const MAX_TAGS = 10;

interface Rule {
  id: string;
  [property: string]: unknown;
}

export function writeSarif(content: Content): string {
  const { input, checkout, code, secrets, extractionId, at } = content;
  const rules = new Map<string, Rule>();
  const all = [...(content.vulnerabilities ?? []), ...orderFindings(code ?? []), ...orderFindings(secrets ?? [])];
  const shown = worstOf(content, all);
  const results = shown.map((one) =>
    "purl" in one ? resultOfVulnerability(content, rules, one) : resultOfFinding(content, rules, one),
  );
  const notes = [
    ...missing(content),
    ...(shown.length < all.length
      ? [`Only the ${shown.length} worst of ${all.length} findings are in this file; findings.json has them all`]
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
          id: `extraction/${visible(input.repository, 400)}/`,
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
        results: results.map((one) => ({ ...one, ruleIndex: index.get(one.ruleId) })),
      },
    ],
  };
  return `${JSON.stringify(log, null, 1)}\n`;
}

/** What nobody could look for, in words. The summary has them too. */
export function missing({
  vulnerabilities,
  exploited,
  code,
  secrets,
}: Pick<Content, "vulnerabilities" | "exploited" | "code" | "secrets">): string[] {
  return [
    ...(vulnerabilities ? [] : ["Vulnerabilities were not looked for in this extraction"]),
    ...(vulnerabilities && !exploited?.read.epss ? ["EPSS was not read in this extraction"] : []),
    ...(vulnerabilities && !exploited?.read.kev ? ["KEV was not read in this extraction"] : []),
    ...(code ? [] : ["The code was not analysed in this extraction"]),
    ...(secrets ? [] : ["Secrets were not looked for in this extraction"]),
  ];
}

/** As many as may be shown, in the same order. What is known to be attacked is the worst, of whatever severity. */
function worstOf(content: Content, all: (Vulnerability | Finding)[]): (Vulnerability | Finding)[] {
  if (all.length <= MAX_RESULTS) return all;
  const badness = (one: Vulnerability | Finding) =>
    "purl" in one && exploitationOf(one, content.exploited)?.kev ? -1 : rank(one.severity);
  const worst = new Set(all.toSorted((one, other) => badness(one) - badness(other)).slice(0, MAX_RESULTS));
  return all.filter((one) => worst.has(one));
}

function resultOfVulnerability(content: Content, rules: Map<string, Rule>, one: Vulnerability) {
  const { origins, exploited } = content;
  const { severity, score, fixed, reachable, aliases } = one;
  const ruleId = visible(one.id, 200);
  const summary = visible(one.summary, 500) || ruleId;
  const help = linkTo(one.url);
  if (!rules.has(ruleId)) {
    rules.set(ruleId, {
      id: ruleId,
      shortDescription: { text: summary },
      ...(help !== undefined && { helpUri: help }),
      ...securityOf(severity, score, ["vulnerability"]),
    });
  }
  const { epss, kev } = exploitationOf(one, exploited) ?? {};
  const origin = origins.get(one.purl);
  const where = `${visible(one.name, 200)} ${visible(one.version, 100)}`;
  const remedy = fixed.length > 0 ? ` Fixed in ${visible(fixed.join(", "), 200)}.` : "";
  return {
    ruleId,
    level: LEVELS[severity],
    message: { text: `${where}: ${summary.replace(/[.]$/, "")}.${remedy}` },
    locations: locationAt(content, origin?.manifest, { startLine: 1 }),
    partialFingerprints: { "vulnerability/v1": `${ruleId} ${visible(one.purl, 2_000)}` },
    properties: {
      purl: visible(one.purl, 2_000),
      aliases: aliases.map((alias) => visible(alias, 200)),
      ...(origin && { direct: origin.direct }),
      ...(reachable !== null && { reachable }),
      ...(epss != null && { epss }),
      ...(kev && { kev: kev.added }),
      source: one.source,
    },
  };
}

function resultOfFinding(content: Content, rules: Map<string, Rule>, one: Finding) {
  const { kind, severity, line, endLine, fingerprint, engine, cwe } = one;
  const rule = visible(one.rule, 200);
  const ruleId = `${kind}/${rule}`;
  const text = visible(one.message, 1_000) || rule;
  if (!rules.has(ruleId)) {
    const tags = [kind, ...cwe.map((number) => `external/cwe/${number.toLowerCase()}`)];
    rules.set(ruleId, {
      id: ruleId,
      shortDescription: { text: kind === "code" ? text : `A secret in the repository: ${rule}` },
      ...securityOf(severity, null, tags),
    });
  }
  return {
    ruleId,
    level: LEVELS[severity],
    message: { text },
    locations: locationAt(content, one.path, { startLine: line, endLine: Math.max(line, endLine) }),
    partialFingerprints: { "finding/v1": fingerprint },
    properties: { engine },
  };
}

/**
 * A path that leads out of the repository is not shown as a place in it. But GitHub refuses the whole file for one result without a place, so that what has
 * none stands at the nearest manifest, else at the package path, else at the bill of materials, which is a report beside this one.
 */
function locationAt(
  { input, sbom }: Content,
  path: string | undefined,
  region: { startLine: number; endLine?: number },
) {
  const places = [path, sbom.manifests?.[0], input.packagePath].flatMap((one) => uriOf(one ?? "") ?? []);
  const uri = places[0] ?? ARTIFACTS.sbom;
  const known = path !== undefined && uriOf(path) === uri;
  return [
    {
      physicalLocation: {
        artifactLocation: { uri, uriBaseId: "SRCROOT" },
        region: known ? region : { startLine: 1 },
      },
    },
  ];
}

function securityOf(severity: Severity, score: number | null, tags: string[]) {
  const number = score ?? SCORES[severity];
  return {
    defaultConfiguration: { level: LEVELS[severity] },
    properties: {
      tags: ["security", ...tags].slice(0, MAX_TAGS),
      ...(number !== undefined && { "security-severity": number.toFixed(1) }),
    },
  };
}
