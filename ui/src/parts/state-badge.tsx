// A state as an icon and a word: it is recognizable without its colour.
import type { ReactNode } from "react";

export type State = "queued" | "running" | "paused" | "completed" | "failed" | "cancelled";

const icons: Record<State, ReactNode> = {
  queued: <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" strokeWidth="1.8" strokeDasharray="2.6 2" />,
  running: (
    <>
      <circle cx="8" cy="8" r="3" fill="currentColor" />
      <path
        className="spinner"
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

/** `children`: the word, if it is not the name of the state. */
export function StateBadge({ state, children = state }: { state: State; children?: ReactNode }) {
  return (
    <span className="state" data-state={state}>
      <StateIcon state={state} />
      {children}
    </span>
  );
}

export function StateIcon({ state }: { state: State }) {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      {icons[state]}
    </svg>
  );
}
