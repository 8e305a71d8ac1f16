// One job in a line or two: what it is, how it stands, and the sentence that says why.
import { memo, type ReactNode } from "react";
import { Link } from "wouter";
import { isOver } from "../../api/nouns.ts";
import { Moment, Span } from "../../parts/moment.tsx";
import { GoesOn, StateMark } from "../../parts/state-mark.tsx";
import { hasTime } from "../../parts/waits.ts";
import { count, inert, shortId } from "../../parts/words.ts";
import { shareOf } from "./share.ts";
import type { Row } from "./slim.ts";

interface Given {
  job: Row;
  index: number;
  /** Undefined: nothing can be done with it, so there is nothing to select it for. */
  picked: boolean | undefined;
  onPick: (index: number, picked: boolean, isRange: boolean) => void;
}

export const JobRow = memo(function JobRow({ job, index, picked, onPick }: Given) {
  const { id, pipeline, key, tenant, state, attempt, maxAttempts } = job;
  return (
    <tr className="job-row" aria-rowindex={index + 2} data-picked={picked || undefined}>
      {picked !== undefined && (
        <td className="job-pick">
          <label>
            <input
              type="checkbox"
              className="pick"
              checked={picked}
              aria-label={`Select ${inert(pipeline)} ${shortId(id)}`}
              onChange={({ target, nativeEvent }) =>
                onPick(index, target.checked, (nativeEvent as MouseEvent).shiftKey === true)
              }
            />
          </label>
        </td>
      )}
      <td className="job-state">
        <StateMark state={state} waitingFor={job.waitingFor} runAt={job.runAt} />
      </td>
      <th scope="row" className="job-name">
        <div className="one-line">
          <Link href={`/jobs/${id}`} className="foreign">
            {inert(pipeline)}
          </Link>
          {key !== null && <span className="job-key foreign">{inert(key)}</span>}
          {tenant !== null && <span className="tag foreign">{inert(tenant)}</span>}
          {attempt > 1 && (
            <span className="tag number" data-tone="amber">
              attempt {count(attempt)} of {count(maxAttempts)}
            </span>
          )}
        </div>
        <div className="job-says one-line foreign">{sentenceOf(job)}</div>
      </th>
      <td className="job-progress">
        <Meter job={job} />
      </td>
      <td className="number job-took">
        {(isOver(state) || state === "running") && <Span from={job.startedAt} to={job.endedAt} />}
      </td>
      <td className="number job-age">
        <Moment at={job.createdAt} />
      </td>
      <td className="mono job-id" title={id}>
        {shortId(id)}
      </td>
    </tr>
  );
});

/** How far it is, where that is known. */
export function Meter({ job }: { job: Row }) {
  const share = shareOf(job);
  if (share === undefined) return null;
  const { percent, of } = share;
  return (
    <span className="meter" title={of && `${count(of.done)} of ${count(of.total)}`}>
      <span className="meter-line" aria-hidden="true">
        <span style={{ width: `${percent}%` }} />
      </span>
      <span className="number">{percent} %</span>
    </span>
  );
}

/** What there is to know about it beyond its state. */
function sentenceOf(job: Row): ReactNode {
  const { state, waitingFor, failure, cancel, pause, progress, missing, children, runAt } = job;
  if (state === "failed") return <span className="bad">{failureOf(job)}</span>;
  if (state === "cancelled") return told(cancel);
  if (state === "paused") return told(pause);
  if (state === "completed") return missing.length > 0 && `without ${missing.map(inert).join(", ")}`;
  if (state === "running") return progress?.sentence && inert(progress.sentence);
  if (waitingFor === "children" && children) {
    const { total, completed, failed, cancelled } = children;
    return `${count(completed + failed + cancelled)} of ${count(total)} children have ended`;
  }
  if (waitingFor === "event" || waitingFor === "key" || waitingFor === "machine") return null;
  return (
    <>
      {runAt !== null && hasTime(job) && <GoesOn at={runAt} />}
      {runAt !== null && hasTime(job) && failure && ", after: "}
      {failure && failureOf(job)}
    </>
  );
}

function told(said: Row["cancel"]): string | null {
  if (!said) return null;
  const { by, reason } = said;
  return inert([by && `by ${by}`, reason].filter(Boolean).join(": "));
}

/** The sentence written for people where there is one. */
export function failureOf({ failure }: Pick<Row, "failure">): string {
  return inert(failure?.sentence ?? failure?.message ?? failure?.code ?? "It did not say why");
}
