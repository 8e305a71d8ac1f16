// Text of strangers on a terminal. Log lines, keys and failures may hold sequences that move the cursor, set the clipboard, forge a link or turn the
// direction of writing; none of them reaches the terminal.

import { inert } from "../../text/escape.ts";

export { inert };

/** Inert, for a place where one line must stay one line. */
export function inLine(text: string): string {
  return inert(text.replaceAll(/\r\n?|[\n\v\f\u0085\u2028\u2029]/g, "⏎").replaceAll("\t", " "));
}

/** JSON stays JSON: what `JSON.stringify` leaves as it is and a terminal would obey is written as an escape. */
export function inertJson(json: string): string {
  return json.replaceAll(DANGEROUS_IN_JSON, (character) => {
    let escaped = "";
    for (let at = 0; at < character.length; at++) {
      escaped += `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`;
    }
    return escaped;
  });
}

/** How many columns a terminal gives it. */
export function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of segments.segment(text)) width += WIDE.test(segment) ? 2 : NOTHING.test(segment) ? 0 : 1;
  return width;
}

/** At most so many columns, with a sign that something is missing. */
export function cutTo(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let cut = "";
  let width = 0;
  for (const { segment } of segments.segment(text)) {
    width += widthOf(segment);
    if (width > columns - 1) break;
    cut += segment;
  }
  return columns > 0 ? `${cut}…` : "";
}

const DANGEROUS_IN_JSON = /(?!\n)\p{Cc}|[\p{Cf}\p{Zl}\p{Zp}]/gu;
const segments = new Intl.Segmenter("en", { granularity: "grapheme" });
const WIDE =
  /^(\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f|\p{Regional_Indicator}{2}|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}])/u;
const NOTHING = /^\p{M}/u;
