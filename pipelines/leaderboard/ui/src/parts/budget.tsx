// How many calls GitHub still allows, and from when on it allows more. Between two answers of the server the seconds are counted here.
import { useNow } from "@stillwake/kit/ui/parts/now.ts";
import { clock, count, inLine, span } from "@stillwake/kit/ui/parts/words.ts";
import type { Budget } from "../nouns.ts";

export function BudgetNote({ budget }: { budget: Budget }) {
  const now = useNow();
  return (
    <div className="budget" data-waiting={budget.waiting || undefined}>
      <p className="number">{budget.waiting ? waitWords(budget, now) : callWords(budget, now)}</p>
      {budget.waiting && !isSpent(budget) && budget.reason && (
        <p className="soft small foreign">{inLine(budget.reason)}</p>
      )}
    </div>
  );
}

function callWords({ remaining, limit, resetAt }: Budget, now: number): string {
  if (remaining === null) return "How many calls are left is known after the first one.";
  const left = `${count(remaining)}${limit === null ? "" : ` of ${count(limit)}`} ${remaining === 1 && limit === null ? "call" : "calls"} left`;
  if (resetAt === null) return left;
  return `${left}, renewed ${Date.parse(resetAt) > now ? "at" : "since"} ${clock(resetAt)}`;
}

/** It may have to wait although calls are left: GitHub refuses some when they come too fast. */
const isSpent = ({ remaining, reason }: Budget) => remaining === 0 || (remaining === null && reason === null);

function waitWords(budget: Budget, now: number): string {
  const { waitingUntil } = budget;
  const why = isSpent(budget) ? "GitHub's budget is used up" : "GitHub wants a pause";
  if (waitingUntil === null) return `${why} - goes on when it allows more`;
  const seconds = Math.ceil((Date.parse(waitingUntil) - now) / 1000);
  const when = seconds < 1 ? "any moment" : `in ${seconds < 60 ? `${seconds} s` : span(seconds * 1000)}`;
  return `${why} - goes on at ${clock(waitingUntil)} (${when})`;
}
