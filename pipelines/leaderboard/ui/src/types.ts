// The types of the API's responses, and what follows from them.
import type { JsonOf, Page } from "@stillwake/ui/api/json.ts";
import type { State } from "@stillwake/ui/parts/state-badge.tsx";
import type * as board from "../../src/board.ts";

export type { Page };
/** A leaderboard without its contributors. */
export type Summary = JsonOf<board.Summary>;
export type Board = JsonOf<board.Board>;
export type Contributor = JsonOf<board.Contributor>;
export type Quota = JsonOf<board.Quota>;

/** The state of a leaderboard or of one of its stages, with its label. */
export type BoardState = readonly [state: State, label: string];

const STATES: Record<Summary["status"], BoardState> = {
  pending: ["queued", "waiting"],
  commits_processing: ["running", "counting commits"],
  users_processing: ["running", "looking up contributors"],
  completed: ["completed", "complete"],
  failed: ["failed", "failed"],
};

export const boardState = ({ status }: Pick<Summary, "status">): BoardState => STATES[status] ?? ["queued", "unknown"];

/** Whether contributors of counted commits are left to look up. A look-up that is already running is not repeated. */
export function canLookUp({ stage, status, times, lookups }: Summary): boolean {
  const isCounted = stage === "users" || (status === "failed" && times.commitsEndedAt !== null);
  return isCounted && lookups.processed < lookups.total;
}

/** Whether the leaderboard changes within seconds. If all remaining look-ups have failed, it needs an action. */
export function isInProgress({ stage, lookups: { total, processed, failed } }: Summary): boolean {
  return stage !== null && !(stage === "users" && total > 0 && processed + failed >= total);
}
