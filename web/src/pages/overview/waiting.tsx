// Why jobs wait, in words, with how many for each reason, and the way to them.
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { count } from "../../parts/words.ts";

/** The place of each is always the same, so that nothing moves when one comes or goes. */
const reasons = [
  ["machine", "for a worker"],
  ["key", "for their key"],
  ["limit", "for a limit"],
  ["retry", "to be tried again"],
  ["time", "for their time"],
  ["children", "for their children"],
  ["event", "for an event"],
] as const;

export function Waiting({ stats: { waiting, live } }: { stats: nouns.Stats }) {
  const known = reasons.map(([reason, says]) => ({ reason, says, number: waiting[reason] ?? 0 }));
  const most = Math.max(1, live.paused, ...known.map(({ number }) => number));
  return (
    <ul className="waiting">
      {known.map(({ reason, says, number }) => (
        <Line key={reason} href={`/jobs?state=queued&waiting=${reason}`} says={says} number={number} most={most} />
      ))}
      <Line href="/jobs?state=paused" says="paused" number={live.paused} most={most} />
    </ul>
  );
}

function Line({ href, says, number, most }: { href: string; says: string; number: number; most: number }) {
  return (
    <li data-none={number === 0 || undefined}>
      {number > 0 ? <Link href={href}>{says}</Link> : <span>{says}</span>}
      <span className="waiting-line" aria-hidden="true">
        <span style={{ width: `${(number / most) * 100}%` }} />
      </span>
      <span className="number">{count(number)}</span>
    </li>
  );
}
