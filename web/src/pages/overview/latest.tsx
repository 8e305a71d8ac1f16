// The latest jobs of a kind, a line each.
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import { useAnswer } from "../../api/ask.ts";
import { type nouns, useJobs } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Moment } from "../../parts/moment.tsx";
import { Asked, Empty, Panel } from "../../parts/panel.tsx";
import { StateMark } from "../../parts/state-mark.tsx";
import { inert } from "../../parts/words.ts";
import { failureOf } from "../jobs/row.tsx";

const FEW = 6;

/** To look for failures may mean to look through many jobs: they are asked for once, and again when one more has failed. */
export function LatestFailures({ failed }: { failed: number }) {
  const latest = useAnswer<nouns.JobPage>("/v1/jobs", { query: { state: "failed", limit: FEW }, once: true });
  const { refetch } = latest;
  const seen = useRef(failed);
  useEffect(() => {
    if (failed !== seen.current) void refetch();
    seen.current = failed;
  }, [failed, refetch]);
  return (
    <Panel
      title="Latest failures"
      acts={
        <Link href="/jobs?state=failed" className="small">
          All failures
        </Link>
      }
      bare
    >
      <Asked of={latest}>
        {({ jobs }) =>
          jobs.length === 0 ? (
            <Empty title="No job has failed">
              <p>Jobs that fail are listed here with the sentence that says why.</p>
            </Empty>
          ) : (
            <ul className="latest">
              {jobs.map((job) => (
                <li key={job.id}>
                  <Named job={job} at={job.endedAt} />
                  <span className="latest-says bad foreign">{failureOf(job)}</span>
                </li>
              ))}
            </ul>
          )
        }
      </Asked>
    </Panel>
  );
}

/** For those who see a tenant's jobs and not the installation. */
export function LatestJobs() {
  const latest = useJobs({ limit: 20 });
  const { operate } = useMay();
  return (
    <Panel
      title="Latest jobs"
      acts={
        <Link href="/jobs" className="small">
          All jobs
        </Link>
      }
      bare
    >
      <Asked of={latest}>
        {({ jobs }) =>
          jobs.length === 0 ? (
            <Empty title="There is no job yet">
              {operate && (
                <Link href="/enqueue" className="button" data-kind="main">
                  Enqueue one
                </Link>
              )}
            </Empty>
          ) : (
            <ul className="latest">
              {jobs.map((job) => (
                <li key={job.id}>
                  <Named job={job} at={job.createdAt} />
                  <span className="latest-says">
                    <StateMark state={job.state} waitingFor={job.waitingFor} runAt={job.runAt} />
                    {job.state === "failed" && <span className="bad foreign"> {failureOf(job)}</span>}
                    {job.state === "running" && job.progress?.sentence && (
                      <span className="soft foreign"> {inert(job.progress.sentence)}</span>
                    )}
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Asked>
    </Panel>
  );
}

/** Which job it is, with the way to it, and when. */
function Named({ job, at }: { job: nouns.Job; at: string | null }) {
  return (
    <>
      <Link href={`/jobs/${job.id}`} className="foreign">
        {inert(job.pipeline)}
        {job.key !== null && <span className="soft"> {inert(job.key)}</span>}
      </Link>
      <span className="latest-when soft">
        <Moment at={at} />
      </span>
    </>
  );
}
