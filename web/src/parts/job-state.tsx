// The state of a job with the reason why it waits.
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { RelativeTime, useNow } from "@stillwake/ui/parts/time.tsx";
import type { JobState } from "../api/resources.ts";
import { type WaitingReason, waitingReason, waitingTexts } from "./waiting-reason.ts";

/** With `waitingFor` a queued job shows why it waits; with `runAt` as well it notices when its time has come. */
export function JobStateBadge({
  state,
  waitingFor,
  runAt = null,
}: {
  state: JobState;
  waitingFor?: WaitingReason | null;
  runAt?: string | null;
}) {
  return (
    <StateBadge state={state}>
      {state === "queued" && waitingFor !== undefined ? <Waiting waitingFor={waitingFor} runAt={runAt} /> : state}
    </StateBadge>
  );
}

function Waiting({ waitingFor, runAt }: { waitingFor: WaitingReason | null; runAt: string | null }) {
  const reason = waitingReason({ state: "queued", waitingFor, runAt }, useNow()) ?? "machine";
  return waitingTexts[reason] ?? `waits for ${reason}`;
}

/** When a waiting job resumes. */
export function ResumeTime({ at }: { at: string }) {
  const now = useNow();
  if (Date.parse(at) <= now) return "due";
  return (
    <>
      resumes <RelativeTime at={at} />
    </>
  );
}
