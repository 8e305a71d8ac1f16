// The plain figures: what runs, what waits and how long already, what failed, what it took.
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { useNow } from "../../parts/moment.tsx";
import { clockTime, count, several, span } from "../../parts/words.ts";

export function Figures({
  stats,
  word,
  workers,
  changing,
}: {
  stats: nouns.Stats;
  word: string;
  workers: number;
  changing: boolean;
}) {
  const { live, ended, oldest, more } = stats;
  const now = useNow();
  const all = ended.completed + ended.failed + ended.cancelled;
  const most = more ? "at least " : "";
  return (
    <dl className="panel figures" data-changing={changing || undefined}>
      <Figure title="Running now" note={workers === 0 ? "no worker is there" : `on ${several(workers, "worker")}`}>
        <Link href="/jobs?state=running">{count(live.running)}</Link>
      </Figure>
      <Figure
        title="Waiting"
        note={
          live.paused > 0 ? (
            <Link href="/jobs?state=paused">
              and {most}
              {count(live.paused)} paused
            </Link>
          ) : (
            "none paused"
          )
        }
      >
        <Link href="/jobs?state=queued">
          {count(live.queued)}
          {more && "+"}
        </Link>
      </Figure>
      <Figure title="Oldest waiting" note={oldest === null ? "nothing waits" : `since ${clockTime(oldest)}`}>
        {oldest === null ? "–" : rough(now - Date.parse(oldest))}
      </Figure>
      <Figure
        title="Failed"
        note={all === 0 ? `nothing ended in ${word}` : `${percent(ended.failed, all)} of ${several(all, "ended job")}`}
        tone={ended.failed > 0 ? "bad" : undefined}
      >
        <Link href="/jobs?state=failed">{count(ended.failed)}</Link>
      </Figure>
      <Figure title="Worker time" note={`spent in ${word}`}>
        <span title="For each pipeline, the mean time of its jobs that ended, from start to end, times their number. Jobs that still run are not in it.">
          {rough(workerMs(stats))}
        </span>
      </Figure>
    </dl>
  );
}

function Figure({
  title,
  note,
  tone,
  children,
}: {
  title: string;
  note: ReactNode;
  tone?: "bad";
  children: ReactNode;
}) {
  return (
    <div className="figure" data-tone={tone}>
      <dt>{title}</dt>
      <dd className="figure-value number">{children}</dd>
      <dd className="figure-note number">{note}</dd>
    </div>
  );
}

/** What ended jobs have taken. Those without a time, which never began, took none; the mean is that of those with one. */
function workerMs({ pipelines }: Pick<nouns.Stats, "pipelines">): number {
  return pipelines.reduce((so, { completed, failed, cancelled, meanSeconds }) => {
    return so + (completed + failed + cancelled) * (meanSeconds ?? 0) * 1000;
  }, 0);
}

/** One unit: a figure is to be read from afar. */
function rough(ms: number): string {
  if (ms < 60_000) return `${Math.max(0, Math.round(ms / 1000))} s`;
  if (ms < 3 * 3_600_000) return span(Math.floor(ms / 60_000) * 60_000);
  if (ms < 48 * 3_600_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${count(Math.floor(ms / 86_400_000))} d`;
}

function percent(part: number, whole: number): string {
  const share = (part / whole) * 100;
  return share > 0 && share < 1 ? "under 1 %" : `${Math.round(share)} %`;
}
