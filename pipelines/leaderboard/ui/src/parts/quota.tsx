// The remaining calls of GitHub's rate limit, and when it resets. The countdown runs between two responses.
import { escapeLine, formatCount, formatDuration, formatTime, plural } from "@stillwake/ui/format.ts";
import { useNow } from "@stillwake/ui/parts/time.tsx";
import type { Quota } from "../types.ts";

export function QuotaNote({ quota }: { quota: Quota }) {
  const now = useNow();
  return (
    <div className="quota" data-waiting={quota.waiting || undefined}>
      <p className="number">{quota.waiting ? waitText(quota, now) : callsText(quota, now)}</p>
      {quota.waiting && !isUsedUp(quota) && quota.reason && (
        <p className="soft small untrusted">{escapeLine(quota.reason)}</p>
      )}
    </div>
  );
}

function callsText({ remaining, limit, resetAt }: Quota, now: number): string {
  if (remaining === null) return "The number of remaining calls is known after the first call.";
  const calls = limit === null ? plural(remaining, "call") : `${formatCount(remaining)} of ${formatCount(limit)} calls`;
  if (resetAt === null) return `${calls} left`;
  return `${calls} left, ${Date.parse(resetAt) > now ? "resets at" : "reset at"} ${formatTime(resetAt)}`;
}

/** GitHub can also reject calls that come too fast while some are left. */
const isUsedUp = ({ remaining, reason }: Quota) => remaining === 0 || (remaining === null && reason === null);

function waitText(quota: Quota, now: number): string {
  const { waitingUntil } = quota;
  const why = isUsedUp(quota) ? "GitHub's quota is used up" : "GitHub rate limit reached";
  if (waitingUntil === null) return `${why}: resumes when GitHub allows more calls`;
  const seconds = Math.ceil((Date.parse(waitingUntil) - now) / 1000);
  const when = seconds < 1 ? "any moment" : `in ${seconds < 60 ? `${seconds} s` : formatDuration(seconds * 1000)}`;
  return `${why}: resumes at ${formatTime(waitingUntil)} (${when})`;
}
