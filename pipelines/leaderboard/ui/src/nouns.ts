// What the API answers, as the page has it, and what can be told from it.
import type { Told } from "@stillwake/kit/ui/ask.ts";
import type * as answers from "../../src/board.ts";

/** A leaderboard without its contributors. */
export type Summary = Told<answers.Summary>;
export type Board = Told<answers.Board>;
export type Contributor = Told<answers.Contributor>;
export type Budget = Told<answers.Budget>;

/** Whether it makes sense to look up again what is left: nobody is at it, or some of it has failed. */
export function canLookUp(board: Summary): boolean {
  const { total, processed, failed } = board.lookups;
  return processed < total && (board.stage === null || (board.stage === "users" && failed > 0));
}

/** After how many milliseconds there may be something new; undefined where nothing moves any more. */
export function pace(board: Summary): number | undefined {
  const { total, processed, failed } = board.lookups;
  if (board.stage === null) return undefined;
  // All that is left has failed: somebody has to look it up again.
  return board.stage === "users" && total > 0 && processed + failed >= total ? 15_000 : 1000;
}
