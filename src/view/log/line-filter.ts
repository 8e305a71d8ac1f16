// Selects the lines to show. Lines are only appended, so each line is matched once per query; without a query nothing is copied.
import { escapeText } from "../safe-text.ts";
import type { Line } from "../snapshot.ts";
import type { Level } from "../wire.ts";

export const LEVELS: readonly Level[] = ["info", "success", "warning", "error"];

export interface LineQuery {
  levels: ReadonlySet<Level>;
  step: string | null;
  text: string;
}

const ALL: LineQuery = { levels: new Set(LEVELS), step: null, text: "" };

export class LineFilter {
  #query = ALL;
  #searchText = "";
  #lines: readonly Line[] = [];
  #matched = 0;
  #shown: Line[] = [];

  get isActive(): boolean {
    const { levels, step, text } = this.#query;
    return levels.size < LEVELS.length || step !== null || text !== "";
  }

  get count(): number {
    return this.isActive ? this.#shown.length : this.#matched;
  }

  /** The shown line with this index. */
  at(index: number): Line | undefined {
    return this.isActive ? this.#shown[index] : this.#lines[index];
  }

  /** The index of a line among the shown lines; -1 when it is not shown. */
  indexOf(no: number): number {
    if (!this.isActive) return no < this.#matched ? no : -1;
    let low = 0;
    let high = this.#shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#shown[middle]!.no < no) low = middle + 1;
      else high = middle;
    }
    return this.#shown[low]?.no === no ? low : -1;
  }

  /** All shown lines, for copying. */
  all(): readonly Line[] {
    return this.isActive ? this.#shown : this.#lines.slice(0, this.#matched);
  }

  setQuery(query: Partial<LineQuery>): void {
    this.#query = { ...this.#query, ...query };
    this.#searchText = this.#query.text.trim().toLowerCase();
    this.#matched = 0;
    this.#shown = [];
    this.update(this.#lines);
  }

  /** Matches the lines appended since the last call. Returns true when the list was replaced: indexes have changed. */
  update(lines: readonly Line[]): boolean {
    const isReplaced = lines !== this.#lines;
    if (isReplaced) {
      this.#lines = lines;
      this.#matched = 0;
      this.#shown = [];
    }
    if (this.isActive) {
      for (let no = this.#matched; no < lines.length; no++) {
        const line = lines[no]!;
        if (this.#matches(line)) this.#shown.push(line);
      }
    }
    this.#matched = lines.length;
    return isReplaced;
  }

  #matches({ level, step, message }: Line): boolean {
    const { levels, step: wantedStep } = this.#query;
    if (!levels.has(level) || (wantedStep !== null && step !== wantedStep)) return false;
    if (this.#searchText === "") return true;
    return (
      escapeText(message).toLowerCase().includes(this.#searchText) ||
      (step?.toLowerCase().includes(this.#searchText) ?? false)
    );
  }
}
