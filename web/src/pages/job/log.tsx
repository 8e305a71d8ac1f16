// The live log, and the jobs of the same key before it: one is chosen in the panel and read there, or opened as a page of its own.
import { useEffect, useMemo, useState } from "react";
import { JobLog, type JobStore, type Run } from "stillwake/react";
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { dayTime, inert, shortId } from "../../parts/words.ts";
import { useJobStore } from "./use-job-data.ts";

export function LogPanel({
  job,
  store,
  siblings,
}: {
  job: nouns.Job;
  store: JobStore;
  siblings: readonly nouns.Job[];
}) {
  const [chosen, setChosen] = useState(job.id);
  useEffect(() => setChosen(job.id), [job.id]);
  const runs = useMemo<Run[]>(() => {
    const others = siblings.filter(({ id }) => id !== job.id);
    if (others.length === 0) return [];
    const all = [job, ...others].sort((one, two) => (one.id < two.id ? 1 : -1));
    return all.map((one) => ({
      id: one.id,
      label: `${dayTime(one.createdAt)}${one.id === job.id ? " · this one" : ""}`,
      state: one.state,
      current: one.id === chosen,
    }));
  }, [job, siblings, chosen]);
  const other = chosen === job.id ? undefined : siblings.find(({ id }) => id === chosen);
  return (
    <section className="job-log" aria-labelledby="job-log">
      <h2 id="job-log" className="hidden">
        Log
      </h2>
      {other && (
        <p className="callout small job-log-other" data-tone="amber" role="status">
          <span>
            These are the lines of job …{shortId(other.id)}, made {dayTime(other.createdAt)}
            {other.key !== null && <span className="foreign"> for the same key {inert(other.key)}</span>}.
          </span>
          <span>
            <Link href={`/jobs/${other.id}`}>Open this job</Link>
          </span>
        </p>
      )}
      {other ? (
        <OtherLog key={other.id} id={other.id} runs={runs} onRun={setChosen} />
      ) : (
        <JobLog store={store} runs={runs} onRun={setChosen} className="job-log-view" />
      )}
    </section>
  );
}

function OtherLog({ id, runs, onRun }: { id: string; runs: readonly Run[]; onRun: (id: string) => void }) {
  return <JobLog store={useJobStore(id)} runs={runs} onRun={onRun} className="job-log-view" />;
}
