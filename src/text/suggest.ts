// Finds the known name that a misspelled one was probably meant to be: "Did you mean …?".

/** Undefined when no known name is close enough. */
export function findClosest(name: string, known: readonly string[]): string | undefined {
  const [best] = known
    .map((candidate) => ({ candidate, edits: editDistance(candidate, name) }))
    .sort((a, b) => a.edits - b.edits);
  // For a short name nearly every other one is within three edits.
  return best && best.edits <= Math.min(3, Math.max(1, Math.floor(name.length / 2))) ? best.candidate : undefined;
}

/** Damerau-Levenshtein distance, ignoring case: swapping two neighbours is one edit. */
function editDistance(left: string, right: string): number {
  const [a, b] = [left.toLowerCase(), right.toLowerCase()];
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
