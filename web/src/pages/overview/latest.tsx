// The latest failures, and for users of one tenant the latest jobs.

import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { Empty, Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { type ReactNode, useEffect, useRef } from "react";
import { Link } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import { type api, useJobs } from "../../api/resources.ts";
import { JobStateBadge } from "../../parts/job-state.tsx";
import { rowFailure } from "../jobs/row.tsx";

const MAX_FAILURES = 6;

/** A search for failures can read many jobs: fetched once, and again when the number of failures changes. */
export function LatestFailures({ failed }: { failed: number }) {
  const latest = useApiQuery<api.JobPage>("/v1/jobs", { query: { state: "failed", limit: MAX_FAILURES }, once: true });
  const { refetch } = latest;
  const seen = useRef(failed);
  useEffect(() => {
    if (failed !== seen.current) void refetch();
    seen.current = failed;
  }, [failed, refetch]);
  return (
    <LatestPanel
      title="Latest failures"
      query={latest}
      all={{ href: "/jobs?state=failed", text: "All failures" }}
      empty={
        <Empty title="No job has failed">
          <p>Failed jobs are listed here with their reason.</p>
        </Empty>
      }
    >
      {(job) => (
        <>
          <JobLink job={job} at={job.endedAt} />
          <span className="latest-text bad untrusted">{rowFailure(job)}</span>
        </>
      )}
    </LatestPanel>
  );
}

export function LatestJobs() {
  const latest = useJobs({ limit: 20 });
  const { operate } = usePermissions();
  return (
    <LatestPanel
      title="Latest jobs"
      query={latest}
      all={{ href: "/jobs", text: "All jobs" }}
      empty={
        <Empty title="No jobs yet">
          {operate && (
            <Link href="/enqueue" className="button" data-kind="main">
              Enqueue a job
            </Link>
          )}
        </Empty>
      }
    >
      {(job) => (
        <>
          <JobLink job={job} at={job.createdAt} />
          <span className="latest-text">
            <JobStateBadge state={job.state} waitingFor={job.waitingFor} runAt={job.runAt} />
            {job.state === "failed" && <span className="bad untrusted"> {rowFailure(job)}</span>}
            {job.state === "running" && job.progress?.sentence && (
              <span className="soft untrusted"> {escapeText(job.progress.sentence)}</span>
            )}
          </span>
        </>
      )}
    </LatestPanel>
  );
}

function LatestPanel({
  title,
  query,
  all,
  empty,
  children,
}: {
  title: string;
  query: ReturnType<typeof useJobs>;
  all: { href: string; text: string };
  empty: ReactNode;
  children: (job: api.Job) => ReactNode;
}) {
  return (
    <Panel
      title={title}
      actions={
        <Link href={all.href} className="small">
          {all.text}
        </Link>
      }
      bare
    >
      <Loaded query={query}>
        {({ jobs }) =>
          jobs.length === 0 ? (
            empty
          ) : (
            <ul className="latest">
              {jobs.map((job) => (
                <li key={job.id}>{children(job)}</li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </Panel>
  );
}

function JobLink({ job, at }: { job: api.Job; at: string | null }) {
  return (
    <>
      <Link href={`/jobs/${job.id}`} className="untrusted">
        {escapeText(job.pipeline)}
        {job.key !== null && <span className="soft"> {escapeText(job.key)}</span>}
      </Link>
      <span className="latest-when soft">
        <RelativeTime at={at} />
      </span>
    </>
  );
}
