// The data of a job's page. The stream delivers its state; data that only HTTP has is refetched when the stream reports
// a change. Only the progress of children is polled, because the stream of their parent does not contain it.

import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { useRefreshPaused } from "@stillwake/ui/api/user-activity.ts";
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { type FollowedJob, JobStore } from "stillwake/react";
import { usePermissions } from "../../api/permissions.ts";
import { type api, hasEnded, jobPath, useLimits, useMachines, usePools } from "../../api/resources.ts";
import { LogIndex, type TimelineData } from "../../parts/timeline/timeline-model.ts";

/** The stream sends at most this number of steps that completed before it was opened. */
const MAX_STREAMED_STEPS = 500;
/** Changes within this time cause one refetch. */
const REFETCH_DELAY_MS = 250;
const MIN_RENDER_INTERVAL_MS = 200;
/** A limit whose end differs by less from the time of the job is taken to be what the job waits for. */
const SAME_TIME_MS = 1500;

const hasOpenChildren = ({ state, children }: api.Job) =>
  !hasEnded(state) && children !== null && children.completed + children.failed + children.cancelled < children.total;

interface TimelineSources {
  job: api.Job;
  store: FollowedJob;
  attempts: api.Attempt[] | undefined;
  steps: api.Step[] | undefined;
}

/** The server of this page, which may be mounted below a path. */
const serverUrl = () => resolveUrl("").replace(/\/$/, "");

/** A store that closes its stream while refreshing is paused and resumes it afterwards. */
export function useJobStore(id: string): JobStore {
  const store = useMemo(() => new JobStore({ id, server: serverUrl() }), [id]);
  const paused = useRefreshPaused();
  useEffect(() => {
    // Components stay subscribed while it is closed; a new subscriber opens it again.
    if (!paused) return store.subscribe(() => {});
    store.close();
  }, [store, paused]);
  return store;
}

/** The job's store. The log renders every line; the page around it renders a few times a second. */
export function useFollowedJob(id: string): FollowedJob {
  const store = useJobStore(id);
  const subscribe = useCallback(
    (notify: () => void) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      let last = 0;
      const flush = () => {
        timer = undefined;
        last = performance.now();
        notify();
      };
      const unsubscribe = store.subscribe(() => {
        timer ??= setTimeout(flush, Math.max(0, last + MIN_RENDER_INTERVAL_MS - performance.now()));
      });
      return () => {
        clearTimeout(timer);
        unsubscribe();
      };
    },
    [store],
  );
  const snapshot = useSyncExternalStore(subscribe, store.getSnapshot);
  return useMemo(() => ({ ...snapshot, store }), [snapshot, store]);
}

export function useJobQuery(id: string) {
  const query = useApiQuery<api.Job>(jobPath(id), { once: true });
  // The same query with polling, while children have not ended.
  useApiQuery<api.Job>(jobPath(id), { enabled: query.data !== undefined && hasOpenChildren(query.data) });
  return query;
}

export const useAttempts = (id: string) =>
  useApiQuery<{ attempts: api.Attempt[] }>(jobPath(id, "/attempts"), { once: true });
export const useSteps = (id: string) => useApiQuery<{ steps: api.Step[] }>(jobPath(id, "/steps"), { once: true });
export const useArtifacts = (id: string) =>
  useApiQuery<{ artifacts: api.Artifact[] }>(jobPath(id, "/artifacts"), { once: true });

/** Jobs of the same pipeline and key, newest first: earlier jobs, and the one that has the key while this one waits. */
export function useSiblings(job: api.Job | undefined) {
  const query = { pipeline: job?.pipeline, key: job?.key ?? undefined, limit: 30 };
  return useApiQuery<api.JobPage>("/v1/jobs", { query, enabled: job?.key !== null && job !== undefined, once: true });
}

/** Refetches when the stream reports a new state, a completed step or an event. */
export function useRefetchOnChange(id: string, store: FollowedJob): void {
  const client = useQueryClient();
  const { job, steps, lines, version, end } = store;
  const counter = useRef({ lines, next: 0, events: 0 });
  const events = useMemo(() => {
    if (counter.current.lines !== lines) counter.current = { lines, next: 0, events: 0 };
    const { current } = counter;
    for (; current.next < lines.length; current.next++) if (lines[current.next]!.kind === "event") current.events += 1;
    return current.events;
  }, [lines, version]);
  const completed = steps.filter(({ state }) => state === "kept").length;
  const signature = job && [job.state, job.waitingFor, job.attempt, job.runAt, completed, events, end?.state].join(" ");
  const last = useRef<string | null>(null);
  useEffect(() => {
    if (signature === null) return;
    const before = last.current;
    last.current = signature;
    // The first message of the stream repeats what was just fetched.
    if (before === null) return;
    const timer = setTimeout(() => {
      const path = jobPath(id);
      void client.invalidateQueries({
        predicate: ({ queryKey: [key] }) => typeof key === "string" && (key.startsWith(path) || key === "/v1/jobs"),
      });
    }, REFETCH_DELAY_MS);
    return () => clearTimeout(timer);
  }, [signature, id, client]);
}

/** Reopens the store of an ended job after a retry. */
export function useReopenAfterRetry(fetched: api.Job, fetchedAt: number, { connection, store }: FollowedJob): void {
  // Only after a new response: one from before the end would reopen it again and again.
  useEffect(() => {
    if (connection === "over" && !hasEnded(fetched.state)) store.reopen();
  }, [fetchedAt]);
}

/** The job as fetched, with the newer state from the stream. */
export function mergeStream(job: api.Job, { job: streamed, end }: FollowedJob): api.Job {
  if (!streamed) return job;
  const { state, waitingFor, awaitedEvent, attempt, maxAttempts, runAt, startedAt, endedAt, missing } = streamed;
  const failure = end?.failure && !job.failure?.stack ? (end.failure as api.Job["failure"]) : job.failure;
  return { ...job, state, waitingFor, awaitedEvent, attempt, maxAttempts, runAt, startedAt, endedAt, missing, failure };
}

/**
 * The data of the timeline. HTTP also returns the steps of unfinished lists and of waits; the stream has no results for
 * them, and they are `open`.
 */
export function useTimelineData({ job, store, attempts = [], steps = [] }: TimelineSources): Omit<TimelineData, "now"> {
  const index = useRef(new LogIndex());
  const { steps: streamedSteps, lines, version, job: streamedJob } = store;
  return useMemo(() => {
    const byName = new Map(steps.map((step) => [step.name, step]));
    const results = new Set<string>();
    for (const { name, state, savedAt, startedAt, tookMs, epoch } of streamedSteps) {
      if (state !== "kept" || savedAt === null || epoch === null) continue;
      results.add(name);
      // HTTP has exact times; the store may know the step from its last log line only.
      if (byName.get(name)?.epoch !== epoch) byName.set(name, { name, epoch, startedAt, savedAt, tookMs });
    }
    const all = [...byName.values()];
    const isComplete = streamedJob !== null && all.length < MAX_STREAMED_STEPS;
    const open = new Set(isComplete ? all.map(({ name }) => name).filter((name) => !results.has(name)) : []);
    return {
      job,
      attempts: withoutStale(attempts, job),
      steps: all,
      open,
      log: index.current.add(lines),
    };
  }, [job, attempts, steps, streamedSteps, lines, version, streamedJob]);
}

/** The fetched attempts may be older than the state: a job that does not run has no open attempt. */
function withoutStale(attempts: readonly api.Attempt[], { state }: api.Job): TimelineData["attempts"] {
  return state === "running"
    ? attempts
    : attempts.filter(({ endedAt, outcome }) => endedAt !== null || outcome !== null);
}

export interface WaitReasons {
  pool?: api.Pool | undefined;
  /** The number of workers of its pool. */
  machines?: number | undefined;
  limit?: api.Limit | undefined;
  /** The job that has its key. */
  holder?: api.Job | undefined;
}

/** Why a job waits: its pool, its limit and the job that has its key. */
export function useWaitReasons(job: api.Job | undefined, siblings: readonly api.Job[]): WaitReasons {
  const { oversee } = usePermissions();
  const waits = job?.state === "queued";
  const reason = job?.waitingFor ?? "machine";
  const isDue = (reason === "time" || reason === "retry") && Date.parse(job?.runAt ?? "") <= Date.now();
  const forMachine = oversee && waits && (reason === "machine" || isDue);
  const forLimit = oversee && waits && reason === "limit";
  const pools = usePools(forMachine);
  const machines = useMachines(forMachine);
  const limits = useLimits(forLimit);
  const pipelines = useApiQuery<{ pipelines: api.Pipeline[] }>("/v1/pipelines", { enabled: forLimit, once: true });
  if (!job || !waits) return {};
  const needs = pipelines.data?.pipelines.find(({ name }) => name === job.pipeline)?.limits ?? [];
  return {
    pool: forMachine ? pools.data?.pools.find(({ name }) => name === job.pool) : undefined,
    machines: forMachine ? machines.data?.machines.filter(({ pool }) => pool === job.pool).length : undefined,
    limit: forLimit ? findLimit(job, limits.data?.limits ?? [], needs) : undefined,
    holder: reason === "key" ? findHolder(job, siblings) : undefined,
  };
}

/** A limit that its pipeline declares; or one that ends when the job resumes, because code may use other limits. */
function findLimit({ runAt }: api.Job, limits: readonly api.Limit[], needs: readonly string[]): api.Limit | undefined {
  const spent = limits.filter(({ until }) => until !== null);
  const resumesAt = Date.parse(runAt ?? "");
  return (
    spent.find(({ name }) => needs.includes(name)) ??
    spent.find(({ until }) => Math.abs(Date.parse(until!) - resumesAt) < SAME_TIME_MS)
  );
}

function findHolder(job: api.Job, siblings: readonly api.Job[]): api.Job | undefined {
  return siblings.findLast(({ id, state, waitingFor }) => id !== job.id && !hasEnded(state) && waitingFor !== "key");
}
