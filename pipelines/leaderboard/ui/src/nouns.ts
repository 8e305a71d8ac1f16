// What the API answers, as the page has it, and what can be told from it.
import type { Told } from "@stillwake/kit/ui/ask.ts";
import type * as answers from "../../src/board.ts";

/** A leaderboard without its contributors. */
export type Summary = Told<answers.Summary>;
export type Board = Told<answers.Board>;
export type Contributor = Told<answers.Contributor>;
export type Budget = Told<answers.Budget>;

/** Whether there is anybody left to look up, of commits that are counted. What somebody is at already is left to him, so that asking does no harm. */
export function canLookUp({ stage, status, times, lookups }: Summary): boolean {
  const counted = stage === "users" || (status === "failed" && times.commitsEndedAt !== null);
  return counted && lookups.processed < lookups.total;
}

/** After how many milliseconds there may be something new; undefined where nothing moves any more. */
export function pace(board: Summary): number | undefined {
  const { total, processed, failed } = board.lookups;
  if (board.stage === null) return undefined;
  // All that is left has failed: somebody has to look it up again.
  return board.stage === "users" && total > 0 && processed + failed >= total ? 15_000 : 1000;
}
