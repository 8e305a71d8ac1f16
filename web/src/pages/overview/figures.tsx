// The figures of the overview: running, waiting, oldest ready job, failed, total time.

import { formatCount, formatDayTime, formatDuration, formatShare, formatTime, plural } from "@stillwake/ui/format.ts";
import { useNow } from "@stillwake/ui/parts/time.tsx";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";

export function Figures({
  stats,
  timeRange,
  workers,
  changing,
}: {
  stats: api.Stats;
  timeRange: string;
  workers: number;
  changing: boolean;
}) {
  const { live, ended, oldestReady, more } = stats;
  const now = useNow();
  const total = ended.completed + ended.failed + ended.cancelled;
  const atLeast = more ? "at least " : "";
  return (
    <dl className="panel figures" data-changing={changing || undefined}>
      <Figure title="Running now" note={workers === 0 ? "no worker is connected" : `on ${plural(workers, "worker")}`}>
        <Link href="/jobs?state=running">{formatCount(live.running)}</Link>
      </Figure>
      <Figure
        title="Waiting"
        note={
          live.paused > 0 ? (
            <Link href="/jobs?state=paused">
              and {atLeast}
              {formatCount(live.paused)} paused
            </Link>
          ) : (
            "none paused"
          )
        }
      >
        <Link href="/jobs?state=queued">
          {formatCount(live.queued)}
          {more && "+"}
        </Link>
      </Figure>
      <Figure
        title="Oldest ready job"
        note={oldestReady === null ? "no job waits for a worker" : `created ${shortTime(oldestReady, now)}`}
      >
        {oldestReady === null ? (
          "–"
        ) : (
          <Link href="/jobs?state=queued&waiting=machine">{roundedDuration(now - Date.parse(oldestReady))}</Link>
        )}
      </Figure>
      <Figure
        title={`Failed in ${timeRange}`}
        note={total === 0 ? "no job ended" : `${formatShare(ended.failed, total)} of ${plural(total, "ended job")}`}
        tone={ended.failed > 0 ? "bad" : undefined}
      >
        {formatCount(ended.failed)}
        {ended.failed > 0 && (
          <Link href="/jobs?state=failed" className="figure-more">
            All failures
          </Link>
        )}
      </Figure>
      <Figure title="Time from start to end" note={`in ${timeRange}`}>
        <span title="Sum over all ended jobs. Includes the time they waited after their start: for retries, children and events.">
          {roundedDuration(totalMs(stats))}
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

function totalMs({ pipelines }: Pick<api.Stats, "pipelines">): number {
  return pipelines.reduce((sum, { totalSeconds }) => sum + totalSeconds * 1000, 0);
}

/** Without the date if it is today. */
function shortTime(at: string, now: number): string {
  return new Date(at).toDateString() === new Date(now).toDateString() ? formatTime(at) : formatDayTime(at);
}

/** In one unit. */
function roundedDuration(ms: number): string {
  if (ms < 60_000) return `${Math.max(0, Math.round(ms / 1000))} s`;
  if (ms < 3 * 3_600_000) return formatDuration(Math.floor(ms / 60_000) * 60_000);
  if (ms < 48 * 3_600_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${formatCount(Math.floor(ms / 86_400_000))} d`;
}
