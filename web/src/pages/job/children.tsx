// The child jobs of a job, and how many have ended.

import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeText, formatCount, shortId } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { Duration } from "@stillwake/ui/parts/time.tsx";
import { useState } from "react";
import { Link } from "wouter";
import { type api, jobPath } from "../../api/resources.ts";
import { failureSentence } from "../../parts/failure-text.ts";
import { JobStateBadge } from "../../parts/job-state.tsx";

const INITIAL_ROWS = 20;
const MAX_ROWS = 200;

export function Children({ job }: { job: api.Job }) {
  const { children, id } = job;
  const [limit, setLimit] = useState(INITIAL_ROWS);
  const [only, setOnly] = useState<"failed">();
  const page = useApiQuery<api.JobPage>(jobPath(id, "/children"), {
    query: { limit, state: only },
    enabled: children !== null,
    changing: ({ jobs }) => jobs.some(({ endedAt }) => endedAt === null),
  });
  if (!children || children.total === 0) return null;
  const { total, completed, failed, cancelled } = children;
  const left = total - completed - failed - cancelled;
  const parts = [
    [completed, "completed"],
    [left, "remaining"],
    [failed, "failed"],
    [cancelled, "cancelled"],
  ] as const;
  return (
    <Panel
      title="Children"
      actions={
        failed > 0 && (
          <Button aria-pressed={only === "failed"} onClick={() => setOnly(only ? undefined : "failed")}>
            Only failed
          </Button>
        )
      }
      bare
    >
      <div className="job-children-counts">
        <div className="job-children-bar" aria-hidden="true">
          <span data-state="completed" style={{ width: `${(completed / total) * 100}%` }} />
          <span data-state="failed" style={{ width: `${(failed / total) * 100}%` }} />
          <span data-state="cancelled" style={{ width: `${(cancelled / total) * 100}%` }} />
        </div>
        <p className="small number">
          {formatCount(total)} in total:{" "}
          {parts
            .filter(([amount]) => amount > 0)
            .map(([amount, state]) => `${formatCount(amount)} ${state}`)
            .join(", ")}
        </p>
      </div>
      <Loaded query={page}>
        {({ jobs, cursor }) => (
          <>
            <ul className="job-children-list">
              {jobs.map((child) => (
                <li key={child.id}>
                  <JobStateBadge state={child.state} waitingFor={child.waitingFor} runAt={child.runAt} />
                  <Link href={`/jobs/${child.id}`} className="mono">
                    …{shortId(child.id)}
                  </Link>
                  <span className="untrusted soft small">
                    {child.failure
                      ? escapeText(failureSentence(child.failure))
                      : child.parent && `#${formatCount(child.parent.index + 1)}`}
                  </span>
                  <span className="small soft">
                    <Duration from={child.startedAt} to={child.endedAt} />
                  </span>
                </li>
              ))}
            </ul>
            {(cursor !== null || limit < total) && jobs.length >= limit && (
              <div className="job-children-more">
                {limit < MAX_ROWS ? (
                  <Button kind="plain" onClick={() => setLimit(Math.min(MAX_ROWS, limit * 3))}>
                    Show more
                  </Button>
                ) : (
                  <Link href={`/jobs?parent=${id}`}>See all in the list of jobs</Link>
                )}
              </div>
            )}
          </>
        )}
      </Loaded>
    </Panel>
  );
}
