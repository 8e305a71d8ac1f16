// One job: what it does now, why it waits, why it failed, what it cost. The stream delivers changes as they happen;
// the rest is refetched when it reports one.

import { useRefreshPaused } from "@stillwake/ui/api/user-activity.ts";
import { useEffect, useRef, useState } from "react";
import { JobProgress } from "stillwake/react";
import { Link } from "wouter";
import { type api, hasEnded } from "../api/resources.ts";
import "../css/job.css";
import { escapeText, formatCount, formatDuration, shortId } from "@stillwake/ui/format.ts";
import { usePageTitle } from "@stillwake/ui/page.ts";
import { Empty, ErrorCallout, PageHead } from "@stillwake/ui/parts/panel.tsx";
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { useNow } from "@stillwake/ui/parts/time.tsx";
import { Copy } from "../parts/copy.tsx";
import { failureSentence } from "../parts/failure-text.ts";
import { Timeline } from "../parts/timeline/timeline.tsx";
import { workerTime } from "../parts/timeline/timeline-model.ts";
import { JobActions } from "./job/actions.tsx";
import { Attempts } from "./job/attempts.tsx";
import { Children } from "./job/children.tsx";
import { Cost } from "./job/cost.tsx";
import { LogPanel } from "./job/log.tsx";
import { NowSentence } from "./job/now.tsx";
import { Artifacts, Facts, FailurePanel, InputAndOutput, Webhooks } from "./job/side-panels.tsx";
import {
  mergeStream,
  useAttempts,
  useFollowedJob,
  useJobQuery,
  useRefetchOnChange,
  useReopenAfterRetry,
  useSiblings,
  useSteps,
  useTimelineData,
  useWaitReasons,
} from "./job/use-job-data.ts";
import { waitBeforeStart } from "./job/wait-time.ts";

export default function Page({ params: { id = "" } }: { params: Record<string, string | undefined> }) {
  // The key: another job must not show state of the one before.
  return <OneJob key={id} id={id} />;
}

function OneJob({ id }: { id: string }) {
  const { data, error, dataUpdatedAt } = useJobQuery(id);
  const attempts = useAttempts(id);
  const steps = useSteps(id);
  // Rendered when all three are known, so that nothing moves while it is read.
  if (data && !attempts.isPending && !steps.isPending)
    return (
      <Known
        fetched={data}
        fetchedAt={dataUpdatedAt}
        attempts={attempts.data?.attempts}
        steps={steps.data?.steps}
        stale={error !== null}
      />
    );
  if (error?.status === 404 || error?.status === 400) return <NotFound id={id} message={error.message} />;
  return (
    <>
      <PageHead title="Job" note={`…${shortId(id)}`} />
      {error ? <ErrorCallout error={error} /> : <div className="job-placeholder" aria-busy="true" />}
    </>
  );
}

function NotFound({ id, message }: { id: string; message: string }) {
  return (
    <>
      <PageHead title="Job not found" />
      <div className="panel">
        <Empty title={escapeText(message)}>
          <p className="small">
            No job has the id <code className="untrusted">{escapeText(id)}</code>, it was pruned after its retention
            time, or you do not have access to it.
          </p>
          <Link href="/jobs" className="button">
            See all jobs
          </Link>
        </Empty>
      </div>
    </>
  );
}

function Known({
  fetched,
  fetchedAt,
  attempts,
  steps,
  stale,
}: {
  fetched: api.Job;
  fetchedAt: number;
  attempts: api.Attempt[] | undefined;
  steps: api.Step[] | undefined;
  stale: boolean;
}) {
  const { id } = fetched;
  const refreshPaused = useRefreshPaused();
  const store = useFollowedJob(id);
  useRefetchOnChange(id, store);
  useReopenAfterRetry(fetched, fetchedAt, store);
  const job = mergeStream(fetched, store);
  const siblings = useSiblings(fetched).data?.jobs ?? [];
  const reasons = useWaitReasons(job, siblings);
  const timeline = useTimelineData({ job, store, attempts, steps });
  const running = attempts?.findLast(({ endedAt }) => endedAt === null);
  const over = hasEnded(job.state);
  usePageTitle(`${escapeText(job.pipeline)} ${job.state} · Stillwake`);
  const failedAttempts = attempts?.filter(({ outcome }) => outcome === "failed" || outcome === "lost").length ?? 0;
  const isPruned = store.end !== null && store.end.state === null;
  // A job that is watched while it runs reserves space for what can appear, so that nothing moves.
  const [watched] = useState(!hasEnded(fetched.state));
  const showProgress =
    job.state === "running" || (over ? watched && job.state === "completed" : (store.progress?.fraction ?? 0) > 0);
  return (
    <div className="job" data-watched={watched || undefined}>
      <PageHead
        title={<span className="untrusted">{escapeText(job.pipeline)}</span>}
        note={<StateBadge state={job.state} />}
      >
        <JobActions job={job} onDone={() => store.store.reopen()} />
      </PageHead>
      <p className="job-note soft small">
        <span className="mono" title={id}>
          …{shortId(id)}
        </span>
        <Copy text={id} what="id" />
        {job.key !== null && (
          <span className="untrusted">
            key <Link href={jobsWithKey(job.pipeline, job.key)}>{escapeText(job.key)}</Link>
          </span>
        )}
        {job.tenant !== null && <span className="untrusted">tenant {escapeText(job.tenant)}</span>}
        {job.parent !== null && (
          <span>
            child of <Link href={`/jobs/${job.parent.id}`}>job …{shortId(job.parent.id)}</Link>
          </span>
        )}
      </p>
      {isPruned && (
        <div className="callout" data-tone="amber" role="status">
          This job was pruned after its retention time. The page shows its last known data.
        </div>
      )}
      {refreshPaused && !over && (
        <div className="callout" data-tone="amber" role="status">
          The log is not followed while refreshing is paused. It continues when you use the page.
        </div>
      )}
      {stale && (
        <div className="callout" data-tone="amber" role="status">
          The server does not respond. The page shows the last known data and retries automatically.
        </div>
      )}
      <StateAnnouncement job={job} />
      <NowSentence
        job={job}
        store={store}
        since={running?.claimedAt ?? null}
        failedAttempts={failedAttempts}
        reasons={reasons}
      >
        {showProgress && <JobProgress store={store.store} className="job-progress" />}
        <Figures job={job} attempts={attempts ?? []} steps={steps ?? []} />
      </NowSentence>
      <div className="job-time">
        <Timeline data={timeline} empty={over ? "The job never started." : "Not started. Steps appear here."} />
      </div>
      <div className="job-columns">
        <div className="job-main">
          <LogPanel job={job} store={store.store} siblings={siblings} />
          <Attempts attempts={attempts ?? []} />
          <Children job={fetched} />
        </div>
        <div className="job-side">
          {job.state === "failed" && <FailurePanel failure={job.failure} />}
          <InputAndOutput job={{ ...fetched, state: job.state }} />
          <Artifacts id={id} />
          <Cost id={id} started={job.startedAt !== null} />
          <Webhooks id={id} over={over} />
          <Facts job={job} />
        </div>
      </div>
    </div>
  );
}

/** Announces changes of state to screen readers, but not progress or log lines. */
function StateAnnouncement({ job: { state, waitingFor, failure } }: { job: api.Job }) {
  const before = useRef(state);
  const [announcement, setAnnouncement] = useState("");
  useEffect(() => {
    if (before.current === state) return;
    before.current = state;
    setAnnouncement(
      state === "failed"
        ? `The job failed: ${escapeText(failureSentence(failure)).slice(0, 300)}`
        : hasEnded(state)
          ? `The job is ${state}`
          : state === "queued" && waitingFor !== null
            ? "The job is waiting"
            : `The job is ${state}`,
    );
  }, [state]);
  return (
    <p className="hidden" role="status">
      {announcement}
    </p>
  );
}

const jobsWithKey = (pipeline: string, key: string) => `/jobs?${new URLSearchParams({ pipeline, key })}`;

function Figures({
  job,
  attempts,
  steps,
}: {
  job: api.Job;
  attempts: readonly api.Attempt[];
  steps: readonly api.Step[];
}) {
  const now = useNow();
  const { startedAt, endedAt, state, attempt, maxAttempts } = job;
  const { workedMs, wastedMs } = workerTime(attempts, steps, now);
  const wait = waitBeforeStart(job, attempts[0]?.claimedAt ?? null, now);
  const total = startedAt && (endedAt ? Date.parse(endedAt) : now) - Date.parse(startedAt);
  const counted = `${attempt} of ${maxAttempts}`;
  const figures: [string, string, string?][] = [
    [
      wait.sinceEnqueue ? "From enqueue to start" : "Wait before start",
      wait.ms === null ? "–" : formatDuration(wait.ms),
    ],
    [hasEnded(state) ? "From start to end" : "Since start", total === null ? "–" : formatDuration(Number(total))],
    ["Worker time", formatDuration(workedMs), wastedMs > 500 ? `${formatDuration(wastedMs)} wasted` : undefined],
    attempts.length > attempt && attempts.length > 0
      ? ["Attempts", formatCount(attempts.length), `${counted} counted`]
      : ["Attempts", counted],
  ];
  return (
    <dl className="job-figures">
      {figures.map(([name, value, more]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="number">
            {value}
            {more && <span className="job-figures-more">{more}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
