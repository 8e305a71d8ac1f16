// Sorts findings by severity, in the same order on every machine.
import {
  type Exploitation,
  type Exploited,
  type Finding,
  SEVERITIES,
  type Severity,
  type Vulnerability,
} from "../model.ts";

/** Known exploited ones first, then by severity, then by likelihood of exploitation. */
export function orderVulnerabilities(
  found: readonly Vulnerability[],
  exploited: Exploited | undefined,
): Vulnerability[] {
  const exploitation = (vulnerability: Vulnerability) => exploitationFor(vulnerability, exploited);
  return [...found].sort(
    (a, b) =>
      Number(Boolean(exploitation(b)?.kev)) - Number(Boolean(exploitation(a)?.kev)) ||
      rank(a.severity) - rank(b.severity) ||
      (exploitation(b)?.epss ?? 0) - (exploitation(a)?.epss ?? 0) ||
      byText(a.id, b.id) ||
      byText(a.purl, b.purl),
  );
}

export function orderFindings(found: readonly Finding[]): Finding[] {
  return [...found].sort(
    (a, b) =>
      rank(a.severity) - rank(b.severity) ||
      byText(a.path, b.path) ||
      a.line - b.line ||
      byText(a.rule, b.rule) ||
      byText(a.fingerprint, b.fingerprint),
  );
}

export function exploitationFor(
  { cve }: Pick<Vulnerability, "cve">,
  exploited: Exploited | undefined,
): Exploitation | undefined {
  return cve !== null && exploited && Object.hasOwn(exploited.byCve, cve) ? exploited.byCve[cve] : undefined;
}

export function countBySeverity(found: readonly { severity: Severity }[]): Record<Severity, number> {
  const counts = { critical: 0, high: 0, medium: 0, low: 0, unknown: 0 };
  for (const { severity } of found) counts[severity] += 1;
  return counts;
}

export function rank(severity: Severity): number {
  return SEVERITIES.indexOf(severity);
}

/** By code units, because locale order differs between machines. */
function byText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
