// The states of a leaderboard in a word and a shape.
import { type Look, Mark } from "@stillwake/kit/ui/parts/marks.tsx";
import type { Summary } from "../nouns.ts";

const STATES: Record<Summary["status"], readonly [look: Look, word: string]> = {
  pending: ["waits", "waiting"],
  commits_processing: ["works", "counting commits"],
  users_processing: ["works", "looking up contributors"],
  completed: ["good", "complete"],
  failed: ["bad", "failed"],
};

export const stateWord = ({ status }: Summary) => STATES[status]?.[1] ?? "unknown";

export function StateMark({ board }: { board: Summary }) {
  return <Mark look={STATES[board.status]?.[0] ?? "waits"} word={stateWord(board)} />;
}
