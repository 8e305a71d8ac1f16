// A cap as somebody has written it. What cannot be read must never pass for "none": it would take the cap away.

/** A number, null for no cap, undefined for what is neither. */
export function readCap(text: string): number | null | undefined {
  const said = text.trim();
  if (said === "") return null;
  if (!/^\d{1,9}$/.test(said)) return undefined;
  const most = Number(said);
  return most >= 1 ? most : undefined;
}
