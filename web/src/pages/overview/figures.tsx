// The plain figures: what runs, what waits and how long already, what failed, what it took.
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { useNow } from "../../parts/moment.tsx";
import { clockTime, count, dayTime, several, span } from "../../parts/words.ts";

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
  const { live, ended, oldestReady, more } = stats;
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
      <Figure
        title="Oldest that could run"
        note={oldestReady === null ? "none waits for a worker" : `created ${near(oldestReady, now)}`}
      >
        {oldestReady === null ? (
          "–"
        ) : (
          <Link href="/jobs?state=queued&waiting=machine">{rough(now - Date.parse(oldestReady))}</Link>
        )}
      </Figure>
      <Figure
        title={`Failed in ${word}`}
        note={all === 0 ? "nothing ended" : `${percent(ended.failed, all)} of ${several(all, "ended job")}`}
        tone={ended.failed > 0 ? "bad" : undefined}
      >
        {count(ended.failed)}
        {ended.failed > 0 && (
          <Link href="/jobs?state=failed" className="figure-more">
            All failures
          </Link>
        )}
      </Figure>
      <Figure title="Time from start to end" note={`in ${word}`}>
        <span title="The time from the first start to the end, summed over the jobs that ended. What they waited for in between, such as another attempt, children or an event, is in it; jobs that have not ended are not.">
          {rough(totalMs(stats))}
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

function totalMs({ pipelines }: Pick<nouns.Stats, "pipelines">): number {
  return pipelines.reduce((so, { totalSeconds }) => so + totalSeconds * 1000, 0);
}

/** The time of day alone where it is of today. */
function near(at: string, now: number): string {
  return new Date(at).toDateString() === new Date(now).toDateString() ? clockTime(at) : dayTime(at);
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
