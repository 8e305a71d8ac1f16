// Text of strangers for a page. It only ever becomes a text node; this is what is done to it before, so that it cannot hide, turn around or pretend either.
import { inert } from "../text/escape.ts";

/** Colours of a terminal are dropped, since they say nothing here; every other control is shown as a sign. Line breaks and tabs stay. */
export function plain(text: string): string {
  // Most lines are plain already, and looking is much cheaper than replacing.
  if (!ODD.test(text)) return text;
  return inert(text.replaceAll("\r\n", "\n").replaceAll(COLOURS, ""));
}

/** The same for a place where one line must stay one line. */
export function plainLine(text: string): string {
  return plain(text.replaceAll(/\r\n?|[\n\v\f\u0085\u2028\u2029]/g, " ⏎ "));
}

export type JsonPart = string | { secret: string };

/** A value as indented JSON, cut where something is that should not be seen by everybody: those parts are to be shown when asked for. */
export function maskedJson(value: unknown): JsonPart[] {
  const parts: JsonPart[] = [];
  let text = "";
  const write = (child: unknown, names: readonly string[], indent: string): void => {
    if (isSecret(names, child)) {
      parts.push(text, { secret: plain(JSON.stringify(child)) });
      text = "";
    } else if (typeof child !== "object" || child === null || Object.keys(child).length === 0) {
      text += plain(JSON.stringify(child) ?? "null");
    } else {
      const isList = Array.isArray(child);
      const fields = Object.entries(child);
      text += isList ? "[\n" : "{\n";
      fields.forEach(([field, one], at) => {
        text += `${indent}  ${isList ? "" : `${plain(JSON.stringify(field))}: `}`;
        // What something is called says what its parts are: a list of tokens, a password in an object.
        write(one, [...names.filter((name) => SECRET_NAME.test(name)), ...namesIn(child, field)], `${indent}  `);
        text += at < fields.length - 1 ? ",\n" : "\n";
      });
      text += `${indent}${isList ? "]" : "}"}`;
    }
  };
  write(value, [], "");
  parts.push(text);
  return parts.filter((part) => part !== "");
}

/** A text of somebody, made plain, cut where it says something that looks like a key or a password. */
export function maskedText(text: string): JsonPart[] {
  const parts: JsonPart[] = [];
  let from = 0;
  for (const { index, 0: secret } of text.matchAll(SECRETS)) {
    parts.push(plain(text.slice(from, index)), { secret: plain(secret) });
    from = index + secret.length;
  }
  parts.push(plain(text.slice(from)));
  return parts.filter((part) => part !== "");
}

/** The same where nothing can be asked for. */
export function veiled(text: string): string {
  return text.replaceAll(SECRETS, COVER);
}

export const COVER = "••••••";

/** What a part of this is called: a field by its name, and a value by the name that stands beside it, as in { name, value }, ["--password", "x"] or [name, value]. */
function namesIn(whole: object, field: string): string[] {
  if (Array.isArray(whole)) {
    const before: unknown = whole[Number(field) - 1];
    const isNamed = typeof before === "string" && (/^--?[\w-]+$/.test(before) || whole.length === 2);
    return isNamed && before.length < 100 && !/\s/.test(before) ? [before.replace(/^-+/, "")] : [];
  }
  if (!/^(value|val|content|data)$/i.test(field)) return [field];
  const { name, key, header, variable } = whole as Record<string, unknown>;
  const beside = name ?? key ?? header ?? variable;
  return typeof beside === "string" ? [field, beside] : [field];
}

const ODD = /[^\n\t -~]/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the sequences that set colours begin with one.
const COLOURS = /\u001b\[[\d;:]*m/g;
const SECRET_NAME =
  /pass(word|phrase|wd)|^pass$|pwd|secret|token|api[-_]?key|authorization|cookie|credential|private[-_]?key|access[-_]?key|signature|^pin$|^otp$/i;
/** A number of tokens is none, however they are counted. */
const COUNT_NAME =
  /tokens|token[-_]?(count|limit|usage|used|budget|size|length|rate|price|cost|total)|(max|min|num|total)[-_]?token/i;
/** Every repetition has an end, so that no text can make looking for these slow. */
const SECRETS = new RegExp(
  [
    // Letters alone may be words: "bearer authentication" is no secret.
    /\b(?:bearer|basic)[ \t]+(?=[\w.~+/=-]{0,80}\d|[\w.~+/=-]{20})[\w.~+/=-]{8,4000}/,
    /\bauthorization["']?[ \t]*[:=][ \t]*["']?(?=\S{0,80}\d|\S{20})[^\s"',;]{8,4000}/,
    // The PWD of a shell is a place.
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
