// Text of strangers, made harmless to look at. Log lines, keys and failures may hold sequences that move a cursor, set the clipboard, forge a link or turn
// the direction of writing. They are shown, not removed, so that nothing can hide by being printed. Free of Node, because browsers show such text too.

/** C0 and DEL have pictures of one column each; the rest is written as a number. */
export function inert(text: string): string {
  return text.replaceAll(DANGEROUS, picture);
}

// Controls but for the line break and the tab, all that turns the direction or is invisible, line separators, halves of surrogate pairs, fillers. What
// joins two signs to one, as in the picture of a family, may stay.
const DANGEROUS =
  /(?!\u200d\p{Extended_Pictographic})(?:(?![\n\t])\p{Cc}|[\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0])/gu;

function picture(character: string): string {
  const code = character.codePointAt(0)!;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "␡" : `\\u{${code.toString(16)}}`;
}
