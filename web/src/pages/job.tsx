// One job: what it is doing now, why it waits, what killed it, what it cost. The stream tells it as it happens; the rest is asked for when something has.
import { useEffect, useRef, useState } from "react";
import { JobProgress } from "stillwake/react";
import { Link } from "wouter";
import { isOver, type nouns } from "../api/nouns.ts";
import { useIsResting } from "../api/touched.ts";
import "../look/job.css";
import { Copy } from "../parts/copy.tsx";
import { sentenceOf } from "../parts/failure-words.ts";
import { useNow } from "../parts/moment.tsx";
import { Empty, PageHead, Wrong } from "../parts/panel.tsx";
import { StateMark } from "../parts/state-mark.tsx";
import { Timeline } from "../parts/timeline/timeline.tsx";
import { costOf } from "../parts/timeline/timeline-model.ts";
import { count, inert, shortId, span } from "../parts/words.ts";
import { useTitle } from "../title.ts";
import { Acts } from "./job/acts.tsx";
import { Attempts } from "./job/attempts.tsx";
import { Children } from "./job/children.tsx";
import { Cost } from "./job/cost.tsx";
import { LogPanel } from "./job/log.tsx";
import { NowSentence } from "./job/now.tsx";
import { Artifacts, Facts, FailurePanel, InOut, Webhooks } from "./job/sides.tsx";
import {
  standing,
  useAttemptsOf,
  useFollowedJob,
  useFreshness,
  useJobAnswer,
  useReasons,
  useRevival,
  useSiblings,
  useStepsOf,
  useTimeline,
} from "./job/use-job-data.ts";
import { waitedToStart } from "./job/waited.ts";

export default function Page({ params: { id = "" } }: { params: Record<string, string | undefined> }) {
  // Another job is another page: nothing of the one before may be taken for it.
  return <OneJob key={id} id={id} />;
}

function OneJob({ id }: { id: string }) {
  const { data, error, dataUpdatedAt } = useJobAnswer(id);
  const attempts = useAttemptsOf(id);
  const steps = useStepsOf(id);
  // All at once: what comes in one after the other pushes down what is being read.
  if (data && !attempts.isPending && !steps.isPending)
    return (
      <Known
        asked={data}
        askedAt={dataUpdatedAt}
        attempts={attempts.data?.attempts}
        steps={steps.data?.steps}
        stale={error !== null}
      />
    );
  if (error?.status === 404 || error?.status === 400) return <NotThere id={id} words={error.message} />;
  return (
    <>
      <PageHead title="Job" note={`…${shortId(id)}`} />
      {error ? <Wrong error={error} /> : <div className="job-placeholder" aria-busy="true" />}
    </>
  );
}

function NotThere({ id, words }: { id: string; words: string }) {
  return (
    <>
      <PageHead title="There is no such job" />
      <div className="panel">
        <Empty title={inert(words)}>
          <p className="small">
            It was never enqueued here, or its retention is over and it was pruned; or it is not yours to see. The
            address says <code className="foreign">{inert(id)}</code>.
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
  asked,
  askedAt,
  attempts,
  steps,
  stale,
}: {
  asked: nouns.Job;
  askedAt: number;
  attempts: nouns.Attempt[] | undefined;
  steps: nouns.Step[] | undefined;
  stale: boolean;
}) {
  const { id } = asked;
  const resting = useIsResting();
  const store = useFollowedJob(id);
  useFreshness(id, store);
  useRevival(asked, askedAt, store);
  const job = standing(asked, store);
  const siblings = useSiblings(asked).data?.jobs ?? [];
  const reasons = useReasons(job, siblings);
  const given = useTimeline({ job, store, attempts, steps });
  const running = attempts?.findLast(({ endedAt }) => endedAt === null);
  const over = isOver(job.state);
  useTitle(`${inert(job.pipeline)} ${job.state}`);
  const tries = attempts?.filter(({ outcome }) => outcome === "failed" || outcome === "lost").length ?? 0;
  const forgotten = store.end !== null && store.end.state === null;
  // An event is waited for in a step that is called as the event is, unless its code says otherwise.
  const awaited = steps?.findLast(({ name }) => given.open?.has(name))?.name ?? "";
  // Whoever watches a job to its end sees nothing jump: what can come has its place from the beginning.
  const [watched] = useState(!isOver(asked.state));
  const isFar =
    job.state === "running" || (over ? watched && job.state === "completed" : (store.progress?.fraction ?? 0) > 0);
  return (
    <div className="job" data-watched={watched || undefined}>
      <PageHead title={<span className="foreign">{inert(job.pipeline)}</span>} note={<StateMark state={job.state} />}>
        <Acts job={job} awaited={awaited} onActed={() => store.store.reopen()} />
      </PageHead>
      <p className="job-note soft small">
        <span className="mono" title={id}>
          …{shortId(id)}
        </span>
        <Copy text={id} what="id" />
        {job.key !== null && (
          <span className="foreign">
            key <Link href={listOf(job.pipeline, job.key)}>{inert(job.key)}</Link>
          </span>
        )}
        {job.tenant !== null && <span className="foreign">tenant {inert(job.tenant)}</span>}
        {job.parent !== null && (
          <span>
            child of <Link href={`/jobs/${job.parent.id}`}>job …{shortId(job.parent.id)}</Link>
          </span>
        )}
      </p>
      {forgotten && (
        <div className="callout" data-tone="amber" role="status">
          Its retention is over, and it was pruned. What is shown here is what was known of it.
        </div>
      )}
      {resting && !over && (
        <div className="callout" data-tone="amber" role="status">
          Its lines are not followed while the page rests. They come as soon as somebody is back.
        </div>
      )}
      {stale && (
        <div className="callout" data-tone="amber" role="status">
          The server does not answer. What is shown is what it said last; this page asks again by itself.
        </div>
      )}
      <Spoken job={job} />
      <NowSentence
        job={job}
        store={store}
        since={running?.claimedAt ?? null}
        tries={tries}
        awaited={awaited}
        reasons={reasons}
      >
        {isFar && <JobProgress store={store.store} className="job-progress" />}
        <Figures job={job} attempts={attempts ?? []} kept={steps ?? []} />
      </NowSentence>
      <div className="job-time">
        <Timeline given={given} empty={over ? "It never began." : "It has not begun. Its steps will stand here."} />
      </div>
      <div className="job-columns">
        <div className="job-main">
          <LogPanel job={job} store={store.store} siblings={siblings} />
          <Attempts attempts={attempts ?? []} />
          <Children job={asked} />
        </div>
        <div className="job-side">
          {job.state === "failed" && <FailurePanel failure={job.failure} />}
          <InOut job={{ ...asked, state: job.state }} />
          <Artifacts id={id} />
          <Cost id={id} started={job.startedAt !== null} />
          <Webhooks id={id} over={over} />
          <Facts job={job} />
        </div>
      </div>
    </div>
  );
}

/** For those who hear the page: that the job has come into another state, and nothing of what it says meanwhile. */
function Spoken({ job: { state, waitingFor, failure } }: { job: nouns.Job }) {
  const before = useRef(state);
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (before.current === state) return;
    before.current = state;
    setSaid(
      state === "failed"
        ? `The job has failed: ${inert(sentenceOf(failure)).slice(0, 300)}`
        : isOver(state)
          ? `The job is ${state}`
          : state === "queued" && waitingFor !== null
            ? "The job waits now"
            : `The job is ${state} now`,
    );
  }, [state]);
  return (
    <p className="hidden" role="status">
      {said}
    </p>
  );
}

const listOf = (pipeline: string, key: string) => `/jobs?${new URLSearchParams({ pipeline, key })}`;

/** What it cost. */
function Figures({
  job,
  attempts,
  kept,
}: {
  job: nouns.Job;
  attempts: readonly nouns.Attempt[];
  kept: readonly nouns.Step[];
}) {
  const now = useNow();
  const { startedAt, endedAt, state, attempt, maxAttempts } = job;
  const { workedMs, vainMs } = costOf(attempts, kept, now);
  const waited = waitedToStart(job, attempts[0]?.claimedAt ?? null, now);
  const whole = startedAt && (endedAt ? Date.parse(endedAt) : now) - Date.parse(startedAt);
  const charged = `${attempt} of ${maxAttempts}`;
  const figures: [string, string, string?][] = [
    [waited.whole ? "From enqueue to start" : "Waited to start", waited.ms === null ? "–" : span(waited.ms)],
    [isOver(state) ? "From start to end" : "Since it started", whole === null ? "–" : span(Number(whole))],
    ["Worker time", span(workedMs), vainMs > 500 ? `${span(vainMs)} of it in wastedStarts` : undefined],
    attempts.length > attempt && attempts.length > 0
      ? ["Attempts", count(attempts.length), `${charged} counted`]
      : ["Attempts", charged],
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
