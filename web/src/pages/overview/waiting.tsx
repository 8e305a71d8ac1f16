// The number of waiting jobs by reason, each with a link to the jobs.

import { formatCount } from "@stillwake/ui/format.ts";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";

/** In a fixed order, so that nothing moves when a count changes. */
const reasons = [
  ["machine", "for a worker"],
  ["key", "for their key"],
  ["limit", "for a limit"],
  ["retry", "for a retry"],
  ["time", "for their time"],
  ["children", "for their children"],
  ["event", "for an event"],
] as const;

export function Waiting({ stats: { waiting, live } }: { stats: api.Stats }) {
  const counts = reasons.map(([reason, label]) => ({ reason, label, number: waiting[reason] ?? 0 }));
  const max = Math.max(1, live.paused, ...counts.map(({ number }) => number));
  return (
    <ul className="waiting">
      {counts.map(({ reason, label, number }) => (
        <Bar key={reason} href={`/jobs?state=queued&waiting=${reason}`} label={label} number={number} max={max} />
      ))}
      <Bar href="/jobs?state=paused" label="paused" number={live.paused} max={max} />
    </ul>
  );
}

function Bar({ href, label, number, max }: { href: string; label: string; number: number; max: number }) {
  return (
    <li data-none={number === 0 || undefined}>
      {number > 0 ? <Link href={href}>{label}</Link> : <span>{label}</span>}
      <span className="waiting-bar" aria-hidden="true">
        <span style={{ width: `${(number / max) * 100}%` }} />
      </span>
      <span className="number">{formatCount(number)}</span>
    </li>
  );
}
