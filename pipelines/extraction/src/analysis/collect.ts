// From what a tool has pointed at to findings: in one order, with a fingerprint that the next extraction makes again, no more than a page can bear. What a tool
// prints is a stranger's text: it is cut and made storable here, and escaped by whoever shows it.
import { createHash } from "node:crypto";
import type { StepHandle } from "stillwake/worker";
import { type Finding, SEVERITIES, type Severity } from "../model.ts";

/** What a rule has matched. */
export interface Match {
  rule: string;
  severity: Severity;
  path: string;
  line: number;
  endLine: number;
  message: string;
  cwe: string[];
  /** The code that matched, for the fingerprint; nothing for a secret. */
  text?: string;
}

export const MAX_FINDINGS = 5_000;
const MAX_MESSAGE = 1_000;
const MAX_PATH = 1_000;
const MAX_RULE = 200;
const MAX_TEXT = 10_000;
const LAST_LINE = 2 ** 31 - 1;
/** Credentials in code, on their way or at rest. */
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
  for (const match of [...matches].sort(byPlace)) {
    const { severity, cwe } = match;
    const rule = storable(match.rule, MAX_RULE);
    const path = storable(match.path, MAX_PATH);
    const line = lineNumber(match.line);
    const endLine = Math.max(line, lineNumber(match.endLine));
    const text = hash(essence(match));
    // Tools tell of one place twice when they read a file in overlapping parts.
    const place = `${rule}\n${path}\n${line}\n${endLine}\n${match.text === undefined ? "" : hash(match.text)}`;
    if (match.text === undefined && seen.has(place)) continue;
    seen.add(place);
    const same = `${kind}\n${rule}\n${path}\n${text}`;
    const number = (numbers.get(same) ?? 0) + 1;
    numbers.set(same, number);
    const message = storable(match.message, MAX_MESSAGE);
    const fingerprint = hash(`${same}\n${number}`);
    found.push({ kind, rule, severity, path, line, endLine, message, cwe: cweNumbers(cwe), engine, fingerprint });
  }
  if (found.length <= MAX_FINDINGS) return found;
  step.log.warn(`Too many findings - only the ${MAX_FINDINGS} most severe are kept`, { found: found.length });
  return found
    .sort((a, b) => rank(a.severity) - rank(b.severity))
    .slice(0, MAX_FINDINGS)
    .sort(byPlace);
}

/** Text of a stranger that Postgres and JSON can hold: cut, without NUL and without half a surrogate pair. */
export function storable(text: unknown, most: number): string {
  if (typeof text !== "string") return "";
  const cut = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return Buffer.from(cut.replaceAll("\0", "\ufffd"), "utf8").toString("utf8");
}

/**
 * What a fingerprint knows of the code. Not the line, because code moves; and nothing that stands in quotes: it may be a password, and the hash of a short one
 * can be guessed by whoever gets hold of the table. Where the rule is about passwords it knows nothing at all.
 */
function essence({ text = "", cwe }: Match): string {
  if (cwe.some((one) => ABOUT_SECRETS.test(one))) return "";
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

function byPlace(a: Omit<Match, "severity">, b: Omit<Match, "severity">): number {
  return (
    order(a.path, b.path) ||
    a.line - b.line ||
    a.endLine - b.endLine ||
    order(a.rule, b.rule) ||
    order(a.text ?? "", b.text ?? "")
  );
}

/** By code units: the order of a locale differs from machine to machine. */
function order(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function rank(severity: Severity): number {
  return SEVERITIES.indexOf(severity);
}

function lineNumber(value: unknown): number {
  return typeof value === "number" && Number.isInteger(value) ? Math.min(Math.max(value, 1), LAST_LINE) : 1;
}

/** "CWE-78: OS command injection" becomes "CWE-78". */
function cweNumbers(given: readonly unknown[]): string[] {
  const numbers = given.map((one) =>
    typeof one === "string" ? /^CWE-\d{1,5}\b/i.exec(one)?.[0].toUpperCase() : undefined,
  );
  return [...new Set(numbers.filter((one) => one !== undefined))].slice(0, 10);
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 40);
}
