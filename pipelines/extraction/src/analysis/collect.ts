// Turns the matches of a tool into findings: sorted, limited in number, with a fingerprint that is the same in the next
// extraction. Texts of tools are untrusted: they are made storable here, and escaped where they are shown.
import { createHash } from "node:crypto";
import type { StepHandle } from "stillwake/worker";
import { type Finding, SEVERITIES, type Severity } from "../model.ts";
import { storable } from "../untrusted.ts";

export interface Match extends Omit<Finding, "kind" | "engine" | "fingerprint"> {
  /** The matched code, for the fingerprint; undefined for a secret. */
  text?: string;
}

export const MAX_FINDINGS = 5_000;
const MAX_MESSAGE = 1_000;
const MAX_PATH = 1_000;
const MAX_RULE = 200;
const MAX_TEXT = 10_000;
const MAX_LINE_NUMBER = 2 ** 31 - 1;
/** Weaknesses about credentials. */
const ABOUT_SECRETS = /^CWE-(?:256|257|259|260|312|321|522|540|798)\b/i;

export function collect(
  step: Pick<StepHandle, "log">,
  kind: Finding["kind"],
  engine: string,
  matches: readonly Match[],
): Finding[] {
  const numbers = new Map<string, number>();
  const seen = new Set<string>();
  const found: Finding[] = [];
  for (const match of [...matches].sort(byLocation)) {
    const { severity, cwe } = match;
    const rule = storable(match.rule, MAX_RULE);
    const path = storable(match.path, MAX_PATH);
    const line = lineNumber(match.line);
    const endLine = Math.max(line, lineNumber(match.endLine));
    const text = hash(fingerprintText(match));
    // Tools report a location twice if they read a file in overlapping parts.
    const location = `${rule}\n${path}\n${line}\n${endLine}\n${match.text === undefined ? "" : hash(match.text)}`;
    if (match.text === undefined && seen.has(location)) continue;
    seen.add(location);
    const same = `${kind}\n${rule}\n${path}\n${text}`;
    const number = (numbers.get(same) ?? 0) + 1;
    numbers.set(same, number);
    const message = storable(match.message, MAX_MESSAGE);
    const fingerprint = hash(`${same}\n${number}`);
    found.push({ kind, rule, severity, path, line, endLine, message, cwe: cweNumbers(cwe), engine, fingerprint });
  }
  if (found.length <= MAX_FINDINGS) return found;
  step.log.warning(`Too many findings - only the ${MAX_FINDINGS} most severe are kept`, { found: found.length });
  return found
    .sort((a, b) => rank(a.severity) - rank(b.severity))
    .slice(0, MAX_FINDINGS)
    .sort(byLocation);
}

/**
 * The part of the code that goes into the fingerprint. Not the line number, because code moves, and no quoted text: it may be
 * a password, whose hash could be guessed. Empty if the rule is about credentials.
 */
function fingerprintText({ text = "", cwe }: Match): string {
  if (cwe.some((id) => ABOUT_SECRETS.test(id))) return "";
  let kept = "";
  let quote = "";
  for (let at = 0; at < Math.min(text.length, MAX_TEXT); at++) {
    const character = text[at]!;
    if (quote !== "" && character === "\\") at += 1;
    else if (quote === "") {
      kept += character;
      if (`"'\``.includes(character)) quote = character;
    } else if (character === quote) quote = "";
  }
  return kept.replace(/\s+/g, " ").trim();
}

function byLocation(a: Omit<Match, "severity">, b: Omit<Match, "severity">): number {
  return (
    compareText(a.path, b.path) ||
    a.line - b.line ||
    a.endLine - b.endLine ||
    compareText(a.rule, b.rule) ||
    compareText(a.text ?? "", b.text ?? "")
  );
}

/** By code units, because locale order differs between machines. */
function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function rank(severity: Severity): number {
  return SEVERITIES.indexOf(severity);
}

function lineNumber(value: unknown): number {
  return typeof value === "number" && Number.isInteger(value) ? Math.min(Math.max(value, 1), MAX_LINE_NUMBER) : 1;
}

/** "CWE-78: OS command injection" becomes "CWE-78". */
function cweNumbers(values: readonly unknown[]): string[] {
  const numbers = values.map((value) =>
    typeof value === "string" ? /^CWE-\d{1,5}\b/i.exec(value)?.[0].toUpperCase() : undefined,
  );
  return [...new Set(numbers.filter((number) => number !== undefined))].slice(0, 10);
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 40);
}
