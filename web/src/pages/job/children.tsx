// The jobs that it has spawned, and how far they are.
import { useState } from "react";
import { Link } from "wouter";
import { useAnswer } from "../../api/ask.ts";
import { type nouns, ofJob } from "../../api/nouns.ts";
import { Button } from "../../parts/button.tsx";
import { sentenceOf } from "../../parts/failure-words.ts";
import { Span } from "../../parts/moment.tsx";
import { Asked, Panel } from "../../parts/panel.tsx";
import { StateMark } from "../../parts/state-mark.tsx";
import { count, inert, shortId } from "../../parts/words.ts";

const PAGE = 20;
const MOST = 200;

export function Children({ job }: { job: nouns.Job }) {
  const { children, id } = job;
  const [limit, setLimit] = useState(PAGE);
  const [only, setOnly] = useState<"failed">();
  const answer = useAnswer<nouns.JobPage>(ofJob(id, "/children"), {
    query: { limit, state: only },
    enabled: children !== null,
    moving: ({ jobs }) => jobs.some(({ endedAt }) => endedAt === null),
  });
  if (!children || children.total === 0) return null;
  const { total, completed, failed, cancelled } = children;
  const left = total - completed - failed - cancelled;
  const parts = [
    [completed, "completed"],
    [left, "to go"],
    [failed, "failed"],
    [cancelled, "cancelled"],
  ] as const;
  return (
    <Panel
      title="Children"
      acts={
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
          {count(total)} in all:{" "}
          {parts
            .filter(([amount]) => amount > 0)
            .map(([amount, words]) => `${count(amount)} ${words}`)
            .join(", ")}
        </p>
      </div>
      <Asked of={answer}>
        {({ jobs, cursor }) => (
          <>
            <ul className="job-children-list">
              {jobs.map((child) => (
                <li key={child.id}>
                  <StateMark state={child.state} waitingFor={child.waitingFor} runAt={child.runAt} />
                  <Link href={`/jobs/${child.id}`} className="mono">
                    …{shortId(child.id)}
                  </Link>
                  <span className="foreign soft small">
                    {child.failure
                      ? inert(sentenceOf(child.failure))
                      : child.parent && `no. ${count(child.parent.index + 1)}`}
                  </span>
                  <span className="small soft">
                    <Span from={child.startedAt} to={child.endedAt} />
                  </span>
                </li>
              ))}
            </ul>
            {(cursor !== null || limit < total) && jobs.length >= limit && (
              <div className="job-children-more">
                {limit < MOST ? (
                  <Button kind="plain" onClick={() => setLimit(Math.min(MOST, limit * 3))}>
                    Show more
                  </Button>
                ) : (
                  <Link href={`/jobs?parent=${id}`}>See all in the list of jobs</Link>
                )}
              </div>
            )}
          </>
        )}
      </Asked>
    </Panel>
  );
}
