// What runs now, by name: the first thing that somebody who has just started a job looks for. It stands beside what waits, which is always as high, so that
// jobs come and go here without moving the page.
import { useRef } from "react";
import { Link } from "wouter";
import { useAnswer } from "../../api/ask.ts";
import type { nouns } from "../../api/nouns.ts";
import { Span } from "../../parts/moment.tsx";
import { Panel } from "../../parts/panel.tsx";
import { StateShape } from "../../parts/state-mark.tsx";
import { count, inert, several } from "../../parts/words.ts";
import { Meter } from "../jobs/row.tsx";

const FEW = 5;

export const useRunning = (running: number) =>
  useAnswer<nouns.JobPage>("/v1/jobs", { query: { state: "running", limit: FEW }, enabled: running > 0 });

/** As overview.css has it. */
const ROW_PX = 50;

export function Running({ running, jobs }: { running: number; jobs: readonly nouns.Job[] }) {
  // Where it stands alone, on a phone, it keeps the room it once had.
  const most = useRef(1);
  most.current = Math.max(most.current, jobs.length);
  return (
    <Panel
      title="Running now"
      acts={
        running > 0 && (
          <Link href="/jobs?state=running" className="small number">
            {running > FEW ? `All ${count(running)} running` : "All running"}
          </Link>
        )
      }
      bare
    >
      {jobs.length === 0 ? (
        <p className="running-none soft small" style={{ minHeight: most.current * ROW_PX }}>
          Nothing runs. What is started shows here, with how far it is.
        </p>
      ) : (
        <ul className="running" style={{ minHeight: most.current * ROW_PX }}>
          {jobs.map((job) => (
            <Line key={job.id} job={job} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Line({ job }: { job: nouns.Job }) {
  const { id, pipeline, key, progress, cancel, attempt, maxAttempts, crashes, startedAt } = job;
  const says = cancel ? "was asked to stop" : progress?.sentence && inert(progress.sentence);
  return (
    <li>
      <span className="state" data-state="running">
        <StateShape state="running" />
      </span>
      <span className="running-name one-line">
        <Link href={`/jobs/${id}`} className="foreign">
          {inert(pipeline)}
        </Link>
        {key !== null && <span className="soft foreign"> {inert(key)}</span>}
        {crashes > 0 ? (
          <span className="tag number" data-tone="amber">
            went on after {several(crashes, "crash", "crashes")}
          </span>
        ) : (
          attempt > 1 && (
            <span className="tag number" data-tone="amber">
              attempt {count(attempt)} of {count(maxAttempts)}
            </span>
          )
        )}
      </span>
      {says && <span className="running-says one-line soft foreign">{says}</span>}
      <span className="running-meter">
        <Meter job={job} />
      </span>
      <span className="running-since number soft" title="Since it first began">
        <Span from={startedAt} to={null} />
      </span>
    </li>
  );
}
