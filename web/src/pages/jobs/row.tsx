// A row of the job list: state, pipeline, key, and a sentence about its state.

import { escapeText, formatCount, shortId } from "@stillwake/ui/format.ts";
import { Duration, RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { memo, type ReactNode } from "react";
import { Link } from "wouter";
import { hasEnded } from "../../api/resources.ts";
import { JobStateBadge, ResumeTime } from "../../parts/job-state.tsx";
import { hasResumeTime } from "../../parts/waiting-reason.ts";
import { type JobRowData, progressOf } from "./row-data.ts";

interface JobRowProps {
  job: JobRowData;
  index: number;
  /** Undefined: the user may not act on jobs, so there is no checkbox. */
  selected: boolean | undefined;
  onSelect: (index: number, selected: boolean, isRange: boolean) => void;
}

export const JobRow = memo(function JobRow({ job, index, selected, onSelect }: JobRowProps) {
  const { id, pipeline, key, tenant, state, attempt, maxAttempts } = job;
  return (
    <tr className="job-row" aria-rowindex={index + 2} data-selected={selected || undefined}>
      {selected !== undefined && (
        <td className="job-select">
          <label>
            <input
              type="checkbox"
              className="select-box"
              checked={selected}
              aria-label={`Select ${escapeText(pipeline)} ${shortId(id)}`}
              onChange={({ target, nativeEvent }) =>
                onSelect(index, target.checked, (nativeEvent as MouseEvent).shiftKey === true)
              }
            />
          </label>
        </td>
      )}
      <td className="job-state">
        <JobStateBadge state={state} waitingFor={job.waitingFor} runAt={job.runAt} />
      </td>
      <th scope="row" className="job-name">
        <div className="one-line">
          <Link href={`/jobs/${id}`} className="untrusted">
            {escapeText(pipeline)}
          </Link>
          {key !== null && <span className="job-key untrusted">{escapeText(key)}</span>}
          {tenant !== null && <span className="tag untrusted">{escapeText(tenant)}</span>}
          {attempt > 1 && (
            <span className="tag number" data-tone="amber">
              attempt {formatCount(attempt)} of {formatCount(maxAttempts)}
            </span>
          )}
        </div>
        <div className="job-sentence one-line untrusted">{jobSentence(job)}</div>
      </th>
      <td className="job-progress">
        <Meter job={job} />
      </td>
      <td className="number job-took">
        {(hasEnded(state) || state === "running") && <Duration from={job.startedAt} to={job.endedAt} />}
      </td>
      <td className="number job-age">
        <RelativeTime at={job.createdAt} />
      </td>
      <td className="mono job-id" title={id}>
        {shortId(id)}
      </td>
    </tr>
  );
});

export function Meter({ job }: { job: JobRowData }) {
  const progress = progressOf(job);
  if (progress === undefined) return null;
  const { percent, items } = progress;
  return (
    <span className="meter" title={items && `${formatCount(items.done)} of ${formatCount(items.total)}`}>
      <span className="meter-line" aria-hidden="true">
        <span style={{ width: `${percent}%` }} />
      </span>
      <span className="number">{percent} %</span>
    </span>
  );
}

/** The reason for its state. */
function jobSentence(job: JobRowData): ReactNode {
  const { state, waitingFor, failure, cancel, pause, progress, missing, children, runAt } = job;
  if (state === "failed") return <span className="bad">{rowFailure(job)}</span>;
  if (state === "cancelled") return requestText(cancel);
  if (state === "paused") return requestText(pause);
  if (state === "completed") return missing.length > 0 && `without ${missing.map(escapeText).join(", ")}`;
  if (state === "running") return progress?.sentence && escapeText(progress.sentence);
  if (waitingFor === "children" && children) {
    const { total, completed, failed, cancelled } = children;
    return `${formatCount(completed + failed + cancelled)} of ${formatCount(total)} children ended`;
  }
  if (waitingFor === "event" || waitingFor === "key" || waitingFor === "machine") return null;
  return (
    <>
      {runAt !== null && hasResumeTime(job) && <ResumeTime at={runAt} />}
      {runAt !== null && hasResumeTime(job) && failure && ", after: "}
      {failure && rowFailure(job)}
    </>
  );
}

/** Who requested a cancel or a pause, and why. */
function requestText(request: JobRowData["cancel"]): string | null {
  if (!request) return null;
  const { by, reason } = request;
  return escapeText([by && `by ${by}`, reason].filter(Boolean).join(": "));
}

export function rowFailure({ failure }: Pick<JobRowData, "failure">): string {
  return escapeText(failure?.sentence ?? failure?.message ?? failure?.code ?? "no reason given");
}
