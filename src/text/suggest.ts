// "Did you mean …?": the known word that is nearest to one that was written.

/** Undefined when none is so near that it could have been meant. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  const [first] = known.map((one) => ({ one, far: distance(one, word) })).sort((a, b) => a.far - b.far);
  // Of a short word nearly every other one is three letters away.
  return first && first.far <= Math.min(3, Math.max(1, Math.floor(word.length / 2))) ? first.one : undefined;
}

/** How many letters have to change; two neighbours that changed places are one. */
function distance(given: string, other: string): number {
  const [a, b] = [given.toLowerCase(), other.toLowerCase()];
  const rows = [Array.from({ length: b.length + 1 }, (_, index) => index)];
  for (let i = 1; i <= a.length; i++) {
    const [row, before] = [rows[i - 1]!, rows[i - 2]];
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swapped = before && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const change = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, row[j]! + 1, next[j - 1]! + 1, swapped ? before[j - 2]! + 1 : change));
    }
    rows.push(next);
  }
  return rows[a.length]![b.length]!;
}
