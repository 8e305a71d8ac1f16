// Text of strangers for a page. It only ever becomes a text node; this is what is done to it before, so that it cannot hide, turn around or pretend either.
import { inert } from "../inert.ts";

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
  const write = (child: unknown, name: string, indent: string): void => {
    if (isSecret(name, child)) {
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
        // What a list is called says what its members are.
        write(one, isList ? name : field, `${indent}  `);
        text += at < fields.length - 1 ? ",\n" : "\n";
      });
      text += `${indent}${isList ? "]" : "}"}`;
    }
  };
  write(value, "", "");
  parts.push(text);
  return parts.filter((part) => part !== "");
}

const ODD = /[^\n\t -~]/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the sequences that set colours begin with one.
const COLOURS = /\u001b\[[\d;:]*m/g;
const SECRET_NAME =
  /pass(word|phrase|wd)|^pass$|secret|token|api[-_]?key|authorization|cookie|credential|private[-_]?key|access[-_]?key|signature|^pin$|^otp$/i;
const SECRET_VALUE =
  /^(bearer|basic) \S{8}|^(swt|swr|ghp|gho|ghs|ghu|github_pat|glpat|sk|rk|pk|xox[abprs]|AKIA|whsec)[-_]\w{8}|^eyJ[\w-]+\.[\w-]+\.|:\/\/[^/\s:@]+:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY/;

function isSecret(name: string, value: unknown): boolean {
  if (value === null || value === "" || typeof value === "boolean") return false;
  if (typeof value === "string" && SECRET_VALUE.test(value)) return true;
  return typeof value !== "object" && SECRET_NAME.test(name);
}
