// Severity of a vulnerability: the base score of its CVSS vector, else the label of its source.
import cvss from "ae-cvss-calculator";
import type { Severity } from "../model.ts";
import { type Fields, objectsIn, textOf } from "../untrusted.ts";

export interface Rating {
  severity: Severity;
  score: number | null;
}

/** A vector of CVSS 4.0 with all its metrics has 230 characters. */
const MAX_VECTOR = 300;
/** Newest first: a record that has vectors of several versions is rated by the newest one. */
const VERSIONS = ["CVSS:4.0/", "CVSS:3.1/", "CVSS:3.0/"];

/** Rating of an OSV record or of one of its `affected` entries. */
export function ratingOf(record: Fields, label?: unknown): Rating {
  const vectors = objectsIn(record.severity, 10).flatMap(({ score }) => textOf(score, MAX_VECTOR) ?? []);
  for (const version of VERSIONS) {
    for (const vector of vectors.filter((text) => text.startsWith(version))) {
      const score = baseScore(vector);
      if (score !== undefined) return { severity: severityOfScore(score), score };
    }
  }
  return { severity: severityOfWord(label), score: null };
}

export function severityOfWord(word: unknown): Severity {
  switch (textOf(word, 20)?.toLowerCase()) {
    case "critical":
      return "critical";
    case "high":
    case "important":
      return "high";
    case "medium":
    case "moderate":
      return "medium";
    case "low":
    case "none":
    case "info":
    case "negligible":
      return "low";
    default:
      return "unknown";
  }
}

export function severityOfScore(score: number): Severity {
  if (score >= 9) return "critical";
  if (score >= 7) return "high";
  return score >= 4 ? "medium" : "low";
}

/** Score of a CVSS 3.0, 3.1 or 4.0 vector. Undefined for other vectors, and for those with a missing or repeated base metric. */
export function baseScore(vector: string): number | undefined {
  if (!VERSIONS.some((version) => vector.startsWith(version))) return undefined;
  const names = vector.split("/").map((metric) => metric.split(":")[0]);
  if (new Set(names).size < names.length) return undefined;
  const parsed = parse(vector);
  if (!parsed?.isBaseFullyDefined()) return undefined;
  // `base` of version 4 contains the threat metrics of the vector.
  return parsed instanceof cvss.Cvss4P0 ? parsed.calculateScores().baseMetricsOnly : parsed.calculateScores().base;
}

function parse(vector: string): cvss.Cvss4P0 | cvss.Cvss3P1 | cvss.Cvss3P0 | undefined {
  try {
    return cvss.fromVector(vector) ?? undefined;
  } catch {
    return undefined;
  }
}
