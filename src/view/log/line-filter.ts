// Which lines are shown. Lines only ever come at the end, so what was looked at once is not looked at again until the question changes; without a question nothing
// is copied, however many lines there are.
import { plain } from "../plain.ts";
import type { Line } from "../snapshot.ts";
import type { Level } from "../wire.ts";

export const LEVELS: readonly Level[] = ["info", "success", "warning", "error"];

export interface Question {
  levels: ReadonlySet<Level>;
  step: string | null;
  text: string;
}

const ANY: Question = { levels: new Set(LEVELS), step: null, text: "" };

export class LineFilter {
  #question = ANY;
  #wanted = "";
  #lines: readonly Line[] = [];
  #looked = 0;
  #shown: Line[] = [];

  get question(): Question {
    return this.#question;
  }

  get isAsking(): boolean {
    const { levels, step, text } = this.#question;
    return levels.size < LEVELS.length || step !== null || text !== "";
  }

  get count(): number {
    return this.isAsking ? this.#shown.length : this.#looked;
  }

  /** The line in this place among those that are shown. */
  at(place: number): Line | undefined {
    return this.isAsking ? this.#shown[place] : this.#lines[place];
  }

  /** Where a line stands among those that are shown; -1 when it is not. */
  placeOf(no: number): number {
    if (!this.isAsking) return no < this.#looked ? no : -1;
    let low = 0;
    let high = this.#shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#shown[middle]!.no < no) low = middle + 1;
      else high = middle;
    }
    return this.#shown[low]?.no === no ? low : -1;
  }

  /** All that are shown, for copying. */
  all(): readonly Line[] {
    return this.isAsking ? this.#shown : this.#lines.slice(0, this.#looked);
  }

  ask(question: Partial<Question>): void {
    this.#question = { ...this.#question, ...question };
    this.#wanted = this.#question.text.trim().toLowerCase();
    this.#looked = 0;
    this.#shown = [];
    this.take(this.#lines);
  }

  /** Takes in what has come since. True when it is another list, in which places mean something else. */
  take(lines: readonly Line[]): boolean {
    const anew = lines !== this.#lines;
    if (anew) {
      this.#lines = lines;
      this.#looked = 0;
      this.#shown = [];
    }
    if (this.isAsking) {
      for (let no = this.#looked; no < lines.length; no++) {
        const line = lines[no]!;
        if (this.#matches(line)) this.#shown.push(line);
      }
    }
    this.#looked = lines.length;
    return anew;
  }

  #matches({ level, step, message }: Line): boolean {
    const { levels, step: wantedStep } = this.#question;
    if (!levels.has(level) || (wantedStep !== null && step !== wantedStep)) return false;
    if (this.#wanted === "") return true;
    return plain(message).toLowerCase().includes(this.#wanted) || (step?.toLowerCase().includes(this.#wanted) ?? false);
  }
}
