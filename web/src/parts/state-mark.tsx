// The state of a job in a word and a shape: nobody has to tell colours apart.
import type { JobState } from "../api/nouns.ts";
import { Moment, useNow } from "./moment.tsx";
import { type Reason, reasonWords, waitsFor } from "./waits.ts";

const shapes: Record<JobState, React.ReactNode> = {
  queued: <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" strokeWidth="1.8" strokeDasharray="2.6 2" />,
  running: (
    <>
      <circle cx="8" cy="8" r="3" fill="currentColor" />
      <path
        className="turning"
        d="M8 1.6a6.4 6.4 0 0 1 6.4 6.4"
        fill="none"
        stroke="currentColor"
        strokeWidth="1.8"
        strokeLinecap="round"
      />
    </>
  ),
  paused: <path d="M5.2 3.2v9.6M10.8 3.2v9.6" stroke="currentColor" strokeWidth="2.6" strokeLinecap="round" />,
  completed: (
    <path
      d="m3 8.6 3.3 3.3L13 4.6"
      fill="none"
      stroke="currentColor"
      strokeWidth="2.2"
      strokeLinecap="round"
      strokeLinejoin="round"
    />
  ),
  failed: <path d="m4 4 8 8m0-8-8 8" stroke="currentColor" strokeWidth="2.2" strokeLinecap="round" />,
  cancelled: (
    <>
      <circle cx="8" cy="8" r="5.7" fill="none" stroke="currentColor" strokeWidth="1.8" />
      <path d="m4.2 11.8 7.6-7.6" stroke="currentColor" strokeWidth="1.8" />
    </>
  ),
};

/** Given why it waits, one that is queued says so; given its time as well, it notices when that has come. */
export function StateMark({
  state,
  waitingFor,
  runAt = null,
}: {
  state: JobState;
  waitingFor?: Reason | null;
  runAt?: string | null;
}) {
  return (
    <span className="state" data-state={state}>
      <StateShape state={state} />
      {state === "queued" && waitingFor !== undefined ? <Waits waitingFor={waitingFor} runAt={runAt} /> : state}
    </span>
  );
}

function Waits({ waitingFor, runAt }: { waitingFor: Reason | null; runAt: string | null }) {
  const reason = waitsFor({ state: "queued", waitingFor, runAt }, useNow()) ?? "machine";
  return reasonWords[reason] ?? `waits for ${reason}`;
}

/** When a job that waits for a time goes on; when that has passed, that it is due. */
export function GoesOn({ at }: { at: string }) {
  const now = useNow();
  if (Date.parse(at) <= now) return "due";
  return (
    <>
      goes on <Moment at={at} />
    </>
  );
}

/** The shape alone, where the word stands elsewhere. */
export function StateShape({ state }: { state: JobState }) {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      {shapes[state]}
    </svg>
  );
}
