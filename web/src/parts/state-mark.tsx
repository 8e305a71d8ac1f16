// The state of a job in a word and a shape: nobody has to tell colours apart.
import type { JobState } from "../api/nouns.ts";

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

const reasons: Record<string, string> = {
  time: "waits for its time",
  retry: "waits to be tried again",
  key: "waits for its key",
  limit: "waits for a limit",
  children: "waits for its children",
  event: "waits for an event",
  machine: "waits for a worker",
};

export function StateMark({ state, waitingFor }: { state: JobState; waitingFor?: string | null }) {
  return (
    <span className="state" data-state={state}>
      <StateShape state={state} />
      {state === "queued" && waitingFor !== undefined ? reasonOf(waitingFor) : state}
    </span>
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

/** Why a job waits, as the end of a sentence that begins with the job. */
function reasonOf(waitingFor: string | null): string {
  return waitingFor === null ? "waits for a worker" : (reasons[waitingFor] ?? `waits for ${waitingFor}`);
}
