// The remaining calls of GitHub's rate limit, and when it resets. The countdown runs between two responses.
import { escapeLine, formatCount, formatDuration, formatTime, plural } from "@stillwake/ui/format.ts";
import { useNow } from "@stillwake/ui/parts/time.tsx";
import type { Budget } from "../types.ts";

export function BudgetNote({ budget }: { budget: Budget }) {
  const now = useNow();
  return (
    <div className="budget" data-waiting={budget.waiting || undefined}>
      <p className="number">{budget.waiting ? waitText(budget, now) : callsText(budget, now)}</p>
      {budget.waiting && !isUsedUp(budget) && budget.reason && (
        <p className="soft small untrusted">{escapeLine(budget.reason)}</p>
      )}
    </div>
  );
}

function callsText({ remaining, limit, resetAt }: Budget, now: number): string {
  if (remaining === null) return "The number of remaining calls is known after the first call.";
  const calls = limit === null ? plural(remaining, "call") : `${formatCount(remaining)} of ${formatCount(limit)} calls`;
  if (resetAt === null) return `${calls} left`;
  return `${calls} left, ${Date.parse(resetAt) > now ? "resets at" : "reset at"} ${formatTime(resetAt)}`;
}

/** GitHub can also reject calls that come too fast while some are left. */
const isUsedUp = ({ remaining, reason }: Budget) => remaining === 0 || (remaining === null && reason === null);

function waitText(budget: Budget, now: number): string {
  const { waitingUntil } = budget;
  const why = isUsedUp(budget) ? "GitHub's budget is used up" : "GitHub rate limit reached";
  if (waitingUntil === null) return `${why}: resumes when GitHub allows more calls`;
  const seconds = Math.ceil((Date.parse(waitingUntil) - now) / 1000);
  const when = seconds < 1 ? "any moment" : `in ${seconds < 60 ? `${seconds} s` : formatDuration(seconds * 1000)}`;
  return `${why}: resumes at ${formatTime(waitingUntil)} (${when})`;
}
