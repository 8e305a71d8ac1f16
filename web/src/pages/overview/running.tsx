// The running jobs. The panel beside it has a fixed height, so jobs that start and end do not move the page.

import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeText, formatCount, plural } from "@stillwake/ui/format.ts";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { StateIcon } from "@stillwake/ui/parts/state-badge.tsx";
import { Duration } from "@stillwake/ui/parts/time.tsx";
import { useRef } from "react";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";
import { Meter } from "../jobs/row.tsx";

const MAX_ROWS = 5;

export const useRunning = (running: number) =>
  useApiQuery<api.JobPage>("/v1/jobs", { query: { state: "running", limit: MAX_ROWS }, enabled: running > 0 });

/** The same height as in overview.css. */
const ROW_PX = 50;

export function Running({ running, jobs }: { running: number; jobs: readonly api.Job[] }) {
  // On a phone it is alone in its row and keeps its largest height.
  const maxRows = useRef(1);
  maxRows.current = Math.max(maxRows.current, jobs.length);
  return (
    <Panel
      title="Running now"
      actions={
        running > 0 && (
          <Link href="/jobs?state=running" className="small number">
            {running > MAX_ROWS ? `All ${formatCount(running)} running` : "All running"}
          </Link>
        )
      }
      bare
    >
      {jobs.length === 0 ? (
        <p className="running-none soft small" style={{ minHeight: maxRows.current * ROW_PX }}>
          No job is running.
        </p>
      ) : (
        <ul className="running" style={{ minHeight: maxRows.current * ROW_PX }}>
          {jobs.map((job) => (
            <RunningJob key={job.id} job={job} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function RunningJob({ job }: { job: api.Job }) {
  const { id, pipeline, key, progress, cancel, attempt, maxAttempts, crashes, startedAt } = job;
  const text = cancel ? "stopping" : progress?.sentence && escapeText(progress.sentence);
  return (
    <li>
      <span className="state" data-state="running">
        <StateIcon state="running" />
      </span>
      <span className="running-name one-line">
        <Link href={`/jobs/${id}`} className="untrusted">
          {escapeText(pipeline)}
        </Link>
        {key !== null && <span className="soft untrusted"> {escapeText(key)}</span>}
        {crashes > 0 ? (
          <span className="tag number" data-tone="amber">
            resumed after {plural(crashes, "crash", "crashes")}
          </span>
        ) : (
          attempt > 1 && (
            <span className="tag number" data-tone="amber">
              attempt {formatCount(attempt)} of {formatCount(maxAttempts)}
            </span>
          )
        )}
      </span>
      {text && <span className="running-text one-line soft untrusted">{text}</span>}
      <span className="running-meter">
        <Meter job={job} />
      </span>
      <span className="running-since number soft" title="Since its first start">
        <Duration from={startedAt} to={null} />
      </span>
    </li>
  );
}
