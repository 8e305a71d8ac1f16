// Data types that the steps of an extraction exchange and store.

/** Artifacts that pass results from step to step. */
export const ARTIFACTS = {
  sbom: "sbom.cdx.json",
  vulnerabilities: "found/vulnerabilities.json",
  code: "found/code.json",
  secrets: "found/secrets.json",
} as const;

export const SEVERITIES = ["critical", "high", "medium", "low", "unknown"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** The files in the scratch directory, under `source`. */
export interface Checkout {
  commit: string;
  branch: string;
  files: number;
  bytes: number;
}

/** One component of the SBOM. `direct`: a manifest of the repository names it. */
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
  /** Id in its source: GHSA-…, PYSEC-…, GO-…, CVE-…. */
  id: string;
  aliases: string[];
  /** The key for EPSS and KEV. */
  cve: string | null;
  purl: string;
  name: string;
  version: string;
  severity: Severity;
  /** CVSS base score. */
  score: number | null;
  summary: string;
  fixed: string[];
  /** Null if it was not analysed. */
  reachable: boolean | null;
  source: "dep-scan" | "built-in" | "osv.dev";
  url: string | null;
}

/** How many of the dependencies were checked for vulnerabilities. */
export interface Coverage {
  checked: number;
  total: number;
  /** Why the others were not: "8 have no version". */
  notes: string[];
}

/** The result of the vulnerability scan. */
export interface VulnerabilityScan {
  vulnerabilities: Vulnerability[];
  /** Null if it is not known: dep-scan does not report it. */
  coverage: Coverage | null;
}

/** Data of the feeds about a CVE. */
export interface Exploitation {
  epss: number | null;
  percentile: number | null;
  kev: { added: string; due: string | null; ransomware: boolean } | null;
}

/** Data of the feeds by CVE, and which feeds could be read: for the others the stored data stays. */
export interface Exploited {
  byCve: Record<string, Exploitation>;
  read: { epss: boolean; kev: boolean };
}

/** A location in the code that a rule matched: static analysis, or a secret. Never contains the secret itself. */
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
  /** Stays the same in the next extraction. Not derived from the secret. */
  fingerprint: string;
}
