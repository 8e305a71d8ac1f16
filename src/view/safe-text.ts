// Escapes untrusted text and masks secrets before a page shows them. The result only ever becomes a text node.
import { escapeControls } from "../text/escape.ts";

/** Removes terminal colours and makes every other control character visible. Line breaks and tabs stay. */
export function escapeText(text: string): string {
  // Most lines need no escaping, and a test is much cheaper than a replacement.
  if (!NEEDS_ESCAPING.test(text)) return text;
  return escapeControls(text.replaceAll("\r\n", "\n").replaceAll(COLOURS, ""));
}

/** For a text that must stay on one line. */
export function escapeTextLine(text: string): string {
  return escapeText(text.replaceAll(/\r\n?|[\n\v\f\u0085\u2028\u2029]/g, " ⏎ "));
}

export type JsonPart = string | { secret: string };

/** A value as indented JSON, split at values that look like secrets: the page shows those on request. */
export function maskedJson(value: unknown): JsonPart[] {
  const parts: JsonPart[] = [];
  let text = "";
  const write = (child: unknown, names: readonly string[], indent: string): void => {
    if (isSecret(names, child)) {
      parts.push(text, { secret: escapeText(JSON.stringify(child)) });
      text = "";
    } else if (typeof child !== "object" || child === null || Object.keys(child).length === 0) {
      text += escapeText(JSON.stringify(child) ?? "null");
    } else {
      const isList = Array.isArray(child);
      const fields = Object.entries(child);
      text += isList ? "[\n" : "{\n";
      fields.forEach(([field, fieldValue], index) => {
        text += `${indent}  ${isList ? "" : `${escapeText(JSON.stringify(field))}: `}`;
        // The name of a container applies to its content: a list of tokens, an object in a field "password".
        write(fieldValue, [...names.filter((name) => SECRET_NAME.test(name)), ...namesIn(child, field)], `${indent}  `);
        text += index < fields.length - 1 ? ",\n" : "\n";
      });
      text += `${indent}${isList ? "]" : "}"}`;
    }
  };
  write(value, [], "");
  parts.push(text);
  return parts.filter((part) => part !== "");
}

/** An escaped text, split at parts that look like keys or passwords. */
export function maskedText(text: string): JsonPart[] {
  const parts: JsonPart[] = [];
  let from = 0;
  for (const { index, 0: secret } of text.matchAll(SECRETS)) {
    parts.push(escapeText(text.slice(from, index)), { secret: escapeText(secret) });
    from = index + secret.length;
  }
  parts.push(escapeText(text.slice(from)));
  return parts.filter((part) => part !== "");
}

/** Replaces secrets where the page has no way to reveal them. */
export function maskSecrets(text: string): string {
  return text.replaceAll(SECRETS, MASK);
}

export const MASK = "••••••";

/** The names of a value: its field, and the name beside it: { name, value }, ["--password", "x"], [name, value]. */
function namesIn(container: object, field: string): string[] {
  if (Array.isArray(container)) {
    const before: unknown = container[Number(field) - 1];
    const isNamed = typeof before === "string" && (/^--?[\w-]+$/.test(before) || container.length === 2);
    return isNamed && before.length < 100 && !/\s/.test(before) ? [before.replace(/^-+/, "")] : [];
  }
  if (!/^(value|val|content|data)$/i.test(field)) return [field];
  const { name, key, header, variable } = container as Record<string, unknown>;
  const beside = name ?? key ?? header ?? variable;
  return typeof beside === "string" ? [field, beside] : [field];
}

const NEEDS_ESCAPING = /[^\n\t -~]/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: colour sequences start with ESC.
const COLOURS = /\u001b\[[\d;:]*m/g;
const SECRET_NAME =
  /pass(word|phrase|wd)|^pass$|pwd|secret|token|api[-_]?key|authorization|cookie|credential|private[-_]?key|access[-_]?key|signature|^pin$|^otp$/i;
/** A number of tokens is not a secret. */
const COUNT_NAME =
  /tokens|token[-_]?(count|limit|usage|used|budget|size|length|rate|price|cost|total)|(max|min|num|total)[-_]?token/i;
/** Every repetition is bounded, so that no text makes the search slow. */
const SECRETS = new RegExp(
  [
    // Letters only may be plain words: "bearer authentication" is not a secret.
    /\b(?:bearer|basic)[ \t]+(?=[\w.~+/=-]{0,80}\d|[\w.~+/=-]{20})[\w.~+/=-]{8,4000}/,
    /\bauthorization["']?[ \t]*[:=][ \t]*["']?(?=\S{0,80}\d|\S{20})[^\s"',;]{8,4000}/,
    // PWD of a shell is a directory.
    /(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|pwd(?==[^/]))=[^\s&"',;]{3,4000}/,
    /\b(?:swt|swr|gh[oprsu]|github_pat|glpat|whsec|sk|rk|pk)[-_](?=[\w-]{0,80}\d|[\w-]{24})[\w-]{8,400}/,
    /\bnpm_[a-z\d]{16,100}|\bA[KS]IA[A-Z\d]{16}\b|\bAIza[\w-]{20,100}|\b(?:xox[a-z]|xapp)-[\w-]{8,400}/,
    /\beyJ[\w-]{1,4000}\.[\w-]{1,4000}\.[\w-]{0,4000}/,
    /:\/\/[^/\s:@]{0,200}:[^/\s@]{1,400}@/,
    /-----BEGIN [A-Z ]{0,40}PRIVATE KEY[\s\S]*?(?:-----END [A-Z ]{0,40}-----|$)/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "gi",
);

function isSecret(names: readonly string[], value: unknown): boolean {
  if (value === null || value === "" || typeof value === "boolean" || typeof value === "object") return false;
  if (typeof value === "string" && value.search(SECRETS) >= 0) return true;
  return names.some((name) => {
    if (!SECRET_NAME.test(name)) return false;
    if (typeof value === "number") return !COUNT_NAME.test(name);
    return !(/^(old)?pwd$/i.test(name) && String(value).startsWith("/"));
  });
}
