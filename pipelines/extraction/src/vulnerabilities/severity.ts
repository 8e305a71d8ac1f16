// Severity of a vulnerability: the base score of its CVSS 3 vector by the published formula, else the label of its source.
import type { Severity } from "../model.ts";
import { type Fields, objectsIn, textOf } from "../untrusted.ts";

export interface Rating {
  severity: Severity;
  score: number | null;
}

/** Rating of an OSV record or of one of its `affected` entries. */
export function ratingOf(record: Fields, label?: unknown): Rating {
  const vectors = objectsIn(record.severity, 10).flatMap(({ score }) => textOf(score, 200) ?? []);
  for (const vector of vectors) {
    const score = baseScore(vector);
    if (score !== undefined) return { severity: severityOfScore(score), score };
  }
  const labelled = severityOfWord(label);
  if (labelled !== "unknown") return { severity: labelled, score: null };
  for (const vector of vectors) {
    const estimate = estimateVersion4(vector);
    if (estimate !== undefined) return { severity: severityOfScore(estimate), score: null };
  }
  return { severity: "unknown", score: null };
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

const WEIGHTS = {
  AV: { N: 0.85, A: 0.62, L: 0.55, P: 0.2 },
  AC: { L: 0.77, H: 0.44 },
  UI: { N: 0.85, R: 0.62 },
  impact: { H: 0.56, L: 0.22, N: 0 },
  /** By scope: unchanged or changed. */
  PR: { U: { N: 0.85, L: 0.62, H: 0.27 }, C: { N: 0.85, L: 0.68, H: 0.5 } },
} as const;

/** Score of a CVSS 3.0 or 3.1 vector. Undefined for other vectors, and if a base metric is missing. */
export function baseScore(vector: string): number | undefined {
  const metrics = /^CVSS:3\.[01]\//.test(vector) && metricsOf(vector);
  return metrics ? scoreOf(metrics) : undefined;
}

/** Approximates a CVSS 4 vector by the nearest CVSS 3 vector: good enough for a severity, not for a score. */
function estimateVersion4(vector: string): number | undefined {
  const metrics = vector.startsWith("CVSS:4.0/") && metricsOf(vector);
  if (!metrics) return undefined;
  const { AV, AC, AT, PR, UI, VC, VI, VA, SC, SI, SA } = metrics;
  const changed = [SC, SI, SA].some((value) => value !== undefined && value !== "N");
  const approximation = {
    AV,
    AC: AT === "P" ? "H" : AC,
    PR,
    UI: UI === "N" ? "N" : "R",
    S: changed ? "C" : "U",
    C: VC,
    I: VI,
    A: VA,
  };
  return scoreOf(approximation);
}

type Metrics = Partial<Record<string, string>>;

/** Undefined if a metric occurs twice: such a vector is invalid. */
function metricsOf(vector: string): Metrics | undefined {
  const metrics: Record<string, string> = Object.create(null);
  for (const part of vector.split("/").slice(1)) {
    const [name = "", value = ""] = part.split(":");
    if (name in metrics) return undefined;
    metrics[name] = value;
  }
  return metrics;
}

function scoreOf(metrics: Metrics): number | undefined {
  const { S } = metrics;
  if (S !== "U" && S !== "C") return undefined;
  const exploitation = [
    weight(WEIGHTS.AV, metrics.AV),
    weight(WEIGHTS.AC, metrics.AC),
    weight(WEIGHTS.PR[S], metrics.PR),
    weight(WEIGHTS.UI, metrics.UI),
  ];
  const losses = [metrics.C, metrics.I, metrics.A].map((value) => weight(WEIGHTS.impact, value));
  if ([...exploitation, ...losses].includes(undefined)) return undefined;

  const base = 1 - losses.reduce<number>((left, loss) => left * (1 - loss!), 1);
  const impact = S === "U" ? 6.42 * base : 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15;
  if (impact <= 0) return 0;
  const sum = impact + exploitation.reduce<number>((product, one) => product * one!, 8.22);
  return roundUp(Math.min(S === "U" ? sum : 1.08 * sum, 10));
}

function weight(weights: Readonly<Record<string, number>>, value: string | undefined): number | undefined {
  return value !== undefined && Object.hasOwn(weights, value) ? weights[value] : undefined;
}

/** Rounds up to one decimal with integers, as CVSS 3.1 defines it, so that 4.000000000000001 is 4.0. */
function roundUp(value: number): number {
  const whole = Math.round(value * 100_000);
  return whole % 10_000 === 0 ? whole / 100_000 : (Math.floor(whole / 10_000) + 1) / 10;
}
