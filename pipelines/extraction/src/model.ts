// What the parts of an extraction hand to one another, and what its tables hold.

/** The artifacts that carry what was found from step to step. */
export const ARTIFACTS = {
  sbom: "sbom.cdx.json",
  vulnerabilities: "found/vulnerabilities.json",
  code: "found/code.json",
  secrets: "found/secrets.json",
} as const;

export const SEVERITIES = ["critical", "high", "medium", "low", "unknown"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** What the clone left in the scratch directory, under `source`. */
export interface Checkout {
  commit: string;
  branch: string;
  files: number;
  bytes: number;
}

/** One component of the SBOM. `direct`: a manifest of the repository names it itself. */
export interface Dependency {
  purl: string;
  name: string;
  version: string;
  ecosystem: string;
  direct: boolean;
  scope: string | null;
  licenses: string[];
}

export interface Vulnerability {
  /** As its source calls it: GHSA-…, PYSEC-…, GO-…, CVE-…. */
  id: string;
  aliases: string[];
  /** What EPSS and KEV know it by, if anything. */
  cve: string | null;
  purl: string;
  name: string;
  version: string;
  severity: Severity;
  /** CVSS base score. */
  score: number | null;
  summary: string;
  fixed: string[];
  /** Null where nobody has looked. */
  reachable: boolean | null;
  source: "dep-scan" | "built-in";
  url: string | null;
}

/** What the feeds say of a CVE. */
export interface Exploitation {
  epss: number | null;
  percentile: number | null;
  kev: { added: string; due: string | null; ransomware: boolean } | null;
}

/** What the feeds say of all that was found, by CVE, and which of them could be read: of the others, what was known before stays. */
export interface Exploited {
  byCve: Record<string, Exploitation>;
  read: { epss: boolean; kev: boolean };
}

/** A place in the code, found by a rule: static analysis, or a secret. The secret itself is never in here. */
export interface Finding {
  kind: "code" | "secret";
  rule: string;
  severity: Severity;
  path: string;
  line: number;
  endLine: number;
  message: string;
  cwe: string[];
  engine: string;
  /** The same for the same finding in the next extraction; made without the secret in clear. */
  fingerprint: string;
}
