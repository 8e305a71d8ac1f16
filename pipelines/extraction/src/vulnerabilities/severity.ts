// How bad a vulnerability is: the base score of its CVSS vector, by the published formula of version 3, or else the word its source has for it.
import type { Severity } from "../model.ts";
import { type Fields, objectsIn, textOf } from "../untrusted.ts";

export interface Rating {
  severity: Severity;
  score: number | null;
}

/** Of an OSV record, or of one of its `affected` entries, which may have ratings of their own. */
export function ratingOf(record: Fields, label?: unknown): Rating {
  const vectors = objectsIn(record.severity, 10).flatMap(({ score }) => textOf(score, 200) ?? []);
  for (const vector of vectors) {
    const score = baseScore(vector);
    if (score !== undefined) return { severity: severityOfScore(score), score };
  }
  const said = severityOfWord(label);
  if (said !== "unknown") return { severity: said, score: null };
  for (const vector of vectors) {
    const guess = guessOfVersion4(vector);
    if (guess !== undefined) return { severity: severityOfScore(guess), score: null };
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
  /** By whether the scope is unchanged or changed. */
  PR: { U: { N: 0.85, L: 0.62, H: 0.27 }, C: { N: 0.85, L: 0.68, H: 0.5 } },
} as const;

/** Of a vector of CVSS 3.0 or 3.1. Undefined for everything else, and for a vector that lacks a base metric. */
export function baseScore(vector: string): number | undefined {
  const metrics = /^CVSS:3\.[01]\//.test(vector) && metricsOf(vector);
  return metrics ? scoreOf(metrics) : undefined;
}

/**
 * The table behind scores of version 4 is long, so its vector is read as the one of version 3 that is nearest. Good for a word, not for a number.
 */
function guessOfVersion4(vector: string): number | undefined {
  const metrics = vector.startsWith("CVSS:4.0/") && metricsOf(vector);
  if (!metrics) return undefined;
  const { AV, AC, AT, PR, UI, VC, VI, VA, SC, SI, SA } = metrics;
  const changed = [SC, SI, SA].some((value) => value !== undefined && value !== "N");
  const near = {
    AV,
    AC: AT === "P" ? "H" : AC,
    PR,
    UI: UI === "N" ? "N" : "R",
    S: changed ? "C" : "U",
    C: VC,
    I: VI,
    A: VA,
  };
  return scoreOf(near);
}

type Metrics = Partial<Record<string, string>>;

/** Undefined when a metric is named twice: such a vector says nothing. */
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

/** To the next tenth, as version 3.1 says it: by whole numbers, so that 4.000000000000001 is 4.0 on every machine. */
function roundUp(value: number): number {
  const whole = Math.round(value * 100_000);
  return whole % 10_000 === 0 ? whole / 100_000 : (Math.floor(whole / 10_000) + 1) / 10;
}
