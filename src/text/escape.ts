// Makes untrusted text safe to show. Log lines, keys and failures may contain sequences that move the cursor, set the
// clipboard, forge a link or reverse the writing direction. They are made visible, not removed.

/** C0 controls and DEL become their one-column symbols; the rest is written as a code point, such as \u{202e}. */
export function escapeControls(text: string): string {
  return text.replaceAll(UNSAFE, toSymbol);
}

/** Escapes a text that must stay on one line: line breaks become ⏎, tabs become spaces. */
export function escapeLine(text: string): string {
  return escapeControls(text.replaceAll(/\r\n?|[\n\v\f\u0085\u2028\u2029]/g, "⏎").replaceAll("\t", " "));
}

/** Escapes what JSON.stringify leaves as it is and a terminal would interpret. The JSON keeps its value. */
export function escapeJson(json: string): string {
  return json.replaceAll(UNSAFE_IN_JSON, (character) =>
    character
      .split("")
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}

// Control characters except line feed and tab, characters that change the direction or are invisible, line separators,
// unpaired surrogates and fillers. A zero-width joiner inside an emoji is allowed.
const UNSAFE =
  /(?!\u200d\p{Extended_Pictographic})(?:(?![\n\t])\p{Cc}|[\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0])/gu;
const UNSAFE_IN_JSON = /(?!\n)\p{Cc}|[\p{Cf}\p{Zl}\p{Zp}]/gu;

function toSymbol(character: string): string {
  const code = character.codePointAt(0)!;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "␡" : `\\u{${code.toString(16)}}`;
}
