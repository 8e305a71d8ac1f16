// A state in a word and a shape: nobody has to tell colours apart. And how long ago something was.
import type { ReactNode } from "react";
import { useNow } from "./now.ts";
import { distance, wholeTime } from "./words.ts";

export type Look = "waits" | "works" | "good" | "bad" | "over";

const shapes: Record<Look, ReactNode> = {
  waits: <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" strokeWidth="1.8" strokeDasharray="2.6 2" />,
  works: (
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
  good: (
    <path
      d="m3 8.6 3.3 3.3L13 4.6"
      fill="none"
      stroke="currentColor"
      strokeWidth="2.2"
      strokeLinecap="round"
      strokeLinejoin="round"
    />
  ),
  bad: <path d="m4 4 8 8m0-8-8 8" stroke="currentColor" strokeWidth="2.2" strokeLinecap="round" />,
  over: (
    <>
      <circle cx="8" cy="8" r="5.7" fill="none" stroke="currentColor" strokeWidth="1.8" />
      <path d="m4.2 11.8 7.6-7.6" stroke="currentColor" strokeWidth="1.8" />
    </>
  ),
};

export function Mark({ look, word }: { look: Look; word: string }) {
  return (
    <span className="state" data-look={look}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {shapes[look]}
      </svg>
      {word}
    </span>
  );
}

export function Moment({ at }: { at: string | null }) {
  const now = useNow();
  if (at === null) return <span className="soft">–</span>;
  return (
    <time dateTime={at} title={wholeTime(at)} className="number">
      {distance(at, now)}
    </time>
  );
}
