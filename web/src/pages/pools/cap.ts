/** Parses the cap of a pool: null for an empty text, which means no cap, and undefined for an invalid text. */
export function parseCap(text: string): number | null | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  if (!/^\d{1,9}$/.test(trimmed)) return undefined;
  const cap = Number(trimmed);
  return cap >= 1 ? cap : undefined;
}
