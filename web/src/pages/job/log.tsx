// The live log of a job. Other jobs of the same key can be selected in its toolbar; their log is then shown instead.

import { escapeText, formatDayTime, shortId } from "@stillwake/ui/format.ts";
import { useEffect, useMemo, useState } from "react";
import { JobLog, type JobStore, type Run } from "stillwake/react";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";
import { useJobStore } from "./use-job-data.ts";

export function LogPanel({ job, store, siblings }: { job: api.Job; store: JobStore; siblings: readonly api.Job[] }) {
  const [selected, setSelected] = useState(job.id);
  useEffect(() => setSelected(job.id), [job.id]);
  const runs = useMemo<Run[]>(() => {
    const others = siblings.filter(({ id }) => id !== job.id);
    if (others.length === 0) return [];
    const all = [job, ...others].sort((a, b) => (a.id < b.id ? 1 : -1));
    return all.map(({ id, createdAt, state }) => ({
      id,
      label: `${formatDayTime(createdAt)}${id === job.id ? " · this job" : ""}`,
      state,
      current: id === selected,
    }));
  }, [job, siblings, selected]);
  const other = selected === job.id ? undefined : siblings.find(({ id }) => id === selected);
  return (
    <section className="job-log" aria-labelledby="job-log">
      <h2 id="job-log" className="hidden">
        Log
      </h2>
      {other && (
        <p className="callout small job-log-other" data-tone="amber" role="status">
          <span>
            This is the log of job …{shortId(other.id)}, created {formatDayTime(other.createdAt)}
            {other.key !== null && <span className="untrusted"> with the same key {escapeText(other.key)}</span>}.
          </span>
          <span>
            <Link href={`/jobs/${other.id}`}>Open this job</Link>
          </span>
        </p>
      )}
      {other ? (
        <OtherLog key={other.id} id={other.id} runs={runs} onRun={setSelected} />
      ) : (
        <JobLog store={store} runs={runs} onRun={setSelected} className="job-log-view" />
      )}
    </section>
  );
}

function OtherLog({ id, runs, onRun }: { id: string; runs: readonly Run[]; onRun: (id: string) => void }) {
  return <JobLog store={useJobStore(id)} runs={runs} onRun={onRun} className="job-log-view" />;
}
