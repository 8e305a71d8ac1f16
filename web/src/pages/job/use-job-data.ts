// What the page of a job knows, and from where: the stream says how it stands, and what only HTTP tells is asked again when the stream says that something has
// happened. Nothing is polled, except how far children are, which the stream of their parent does not tell.
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import { type FollowedJob, JobStore } from "stillwake/react";
import { useAnswer } from "../../api/ask.ts";
import { addressOf } from "../../api/call.ts";
import { isOver, type nouns, ofJob, useLimits, useMachines, usePools } from "../../api/nouns.ts";
import { useIsResting } from "../../api/touched.ts";
import { useMay } from "../../api/who.ts";
import { type Given, Heard } from "../../parts/timeline/timeline-model.ts";

/** The stream tells at most so many steps that were kept before. */
const MAX_TOLD = 500;
const SETTLE_MS = 250;
const CALM_MS = 200;
const SAME_MS = 1500;

const isMoving = ({ state, children }: nouns.Job) =>
  !isOver(state) && children !== null && children.completed + children.failed + children.cancelled < children.total;

export interface JobKnown {
  job: nouns.Job;
  store: FollowedJob;
  attempts: nouns.Attempt[] | undefined;
  steps: nouns.Step[] | undefined;
}

/** The server is where the page came from, also when it is mounted below a path. */
const serverHere = () => addressOf("").replace(/\/$/, "");

/** A store that rests when the page does: it lets its stream go, and goes on where it was when somebody is back. */
export function useJobStore(id: string): JobStore {
  const store = useMemo(() => new JobStore({ id, server: serverHere() }), [id]);
  const resting = useIsResting();
  useEffect(() => {
    // Whoever shows the store stays subscribed meanwhile; one more subscriber opens it again.
    if (!resting) return store.subscribe(() => {});
    store.close();
  }, [store, resting]);
  return store;
}

/** The store of the job. Its log follows it line by line; the page around the log is drawn a few times a second, however much is said. */
export function useFollowedJob(id: string): FollowedJob {
  const store = useJobStore(id);
  const subscribe = useCallback(
    (call: () => void) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      let last = 0;
      const tell = () => {
        timer = undefined;
        last = performance.now();
        call();
      };
      const leave = store.subscribe(() => {
        timer ??= setTimeout(tell, Math.max(0, last + CALM_MS - performance.now()));
      });
      return () => {
        clearTimeout(timer);
        leave();
      };
    },
    [store],
  );
  const snapshot = useSyncExternalStore(subscribe, store.getSnapshot);
  return useMemo(() => ({ ...snapshot, store }), [snapshot, store]);
}

export function useJobAnswer(id: string) {
  const answer = useAnswer<nouns.Job>(ofJob(id), { once: true });
  // A second asker of the same question, for as long as children are under way.
  useAnswer<nouns.Job>(ofJob(id), { enabled: answer.data !== undefined && isMoving(answer.data) });
  return answer;
}

export const useAttemptsOf = (id: string) =>
  useAnswer<{ attempts: nouns.Attempt[] }>(ofJob(id, "/attempts"), { once: true });
export const useStepsOf = (id: string) => useAnswer<{ steps: nouns.Step[] }>(ofJob(id, "/steps"), { once: true });
export const useArtifactsOf = (id: string) =>
  useAnswer<{ artifacts: nouns.Artifact[] }>(ofJob(id, "/artifacts"), { once: true });

/** Jobs of the same pipeline and key, newest first: those before it, and who holds the key while it waits. */
export function useSiblings(job: nouns.Job | undefined) {
  const query = { pipeline: job?.pipeline, key: job?.key ?? undefined, limit: 30 };
  return useAnswer<nouns.JobPage>("/v1/jobs", { query, enabled: job?.key !== null && job !== undefined, once: true });
}

/** Asks anew what HTTP knows when the stream tells of a new state, a step that was kept, or an event. */
export function useFreshness(id: string, store: FollowedJob): void {
  const known = useQueryClient();
  const { job, steps, lines, version, end } = store;
  const seen = useRef({ lines, at: 0, events: 0 });
  const events = useMemo(() => {
    const { current } = seen;
    if (current.lines !== lines) seen.current = { lines, at: 0, events: 0 };
    const to = seen.current;
    for (; to.at < lines.length; to.at++) if (lines[to.at]!.kind === "event") to.events += 1;
    return to.events;
  }, [lines, version]);
  const kept = steps.filter(({ state }) => state === "kept").length;
  const mark = job && [job.state, job.waitingFor, job.attempt, job.runAt, kept, events, end?.state].join(" ");
  const last = useRef<string | null>(null);
  useEffect(() => {
    if (mark === null) return;
    const before = last.current;
    last.current = mark;
    // The first word of the stream says what has been asked for a moment ago.
    if (before === null) return;
    const timer = setTimeout(() => {
      const own = ofJob(id);
      void known.invalidateQueries({
        predicate: ({ queryKey: [path] }) => typeof path === "string" && (path.startsWith(own) || path === "/v1/jobs"),
      });
    }, SETTLE_MS);
    return () => clearTimeout(timer);
  }, [mark, id, known]);
}

/** A store that has ended begins again when the job has been retried, by whomever. */
export function useRevival(asked: nouns.Job, askedAt: number, { connection, store }: FollowedJob): void {
  // Only a new answer may say so: one from before the end would open it for nothing, again and again.
  useEffect(() => {
    if (connection === "over" && !isOver(asked.state)) store.reopen();
  }, [askedAt]);
}

/** How the job stands: what HTTP answered, with the later word of the stream. */
export function standing(job: nouns.Job, { job: told, end }: FollowedJob): nouns.Job {
  if (!told) return job;
  const { state, waitingFor, attempt, maxAttempts, runAt, startedAt, endedAt, missing } = told;
  const failure = end?.failure && !job.failure?.stack ? (end.failure as nouns.Job["failure"]) : job.failure;
  return { ...job, state, waitingFor, attempt, maxAttempts, runAt, startedAt, endedAt, missing, failure };
}

/** All that the timeline is drawn from. A list that is half done and a wait are kept by the server, but the stream does not tell them as results. */
export function useTimeline({ job, store, attempts = [], steps = [] }: JobKnown): Omit<Given, "now"> {
  const heard = useRef(new Heard());
  const { steps: seen, lines, version, job: told } = store;
  return useMemo(() => {
    const names = new Map(steps.map((step) => [step.name, step]));
    const results = new Set<string>();
    for (const { name, state, savedAt, startedAt, tookMs, epoch } of seen) {
      if (state !== "kept" || savedAt === null || epoch === null) continue;
      results.add(name);
      // What HTTP has told of the same result is exact; a store may know it from its last line alone.
      if (names.get(name)?.epoch !== epoch) names.set(name, { name, epoch, startedAt, savedAt, tookMs });
    }
    const all = [...names.values()];
    const whole = told !== null && all.length < MAX_TOLD;
    const open = new Set(whole ? all.map(({ name }) => name).filter((name) => !results.has(name)) : []);
    return {
      job,
      attempts: withCurrent(attempts, job),
      kept: all,
      open,
      heard: heard.current.take(lines),
    };
  }, [job, attempts, steps, seen, lines, version, told]);
}

/** The attempt of a job that was just claimed is on its way while the list of attempts is asked for. */
function withCurrent(attempts: readonly nouns.Attempt[], { state }: nouns.Job): Given["attempts"] {
  return state === "running"
    ? attempts
    : attempts.filter(({ endedAt, outcome }) => endedAt !== null || outcome !== null);
}

export interface Reasons {
  pool?: nouns.Pool | undefined;
  /** How many serve its pool. */
  machines?: number | undefined;
  limit?: nouns.Limit | undefined;
  /** Who has its key. */
  holder?: nouns.Job | undefined;
}

/** Why a job that could start does not: what is known of its pool, its limits and who holds its key. */
export function useReasons(job: nouns.Job | undefined, siblings: readonly nouns.Job[]): Reasons {
  const { oversee } = useMay();
  const waits = job?.state === "queued";
  const reason = job?.waitingFor ?? "machine";
  const isDue = (reason === "time" || reason === "retry") && Date.parse(job?.runAt ?? "") <= Date.now();
  const forMachine = oversee && waits && (reason === "machine" || isDue);
  const forLimit = oversee && waits && reason === "limit";
  const pools = usePools(forMachine);
  const machines = useMachines(forMachine);
  const limits = useLimits(forLimit);
  const pipelines = useAnswer<{ pipelines: nouns.Pipeline[] }>("/v1/pipelines", { enabled: forLimit, once: true });
  if (!job || !waits) return {};
  const needs = pipelines.data?.pipelines.find(({ name }) => name === job.pipeline)?.limits ?? [];
  return {
    pool: forMachine ? pools.data?.pools.find(({ name }) => name === job.pool) : undefined,
    machines: forMachine ? machines.data?.machines.filter(({ pool }) => pool === job.pool).length : undefined,
    limit: forLimit ? limitOf(job, limits.data?.limits ?? [], needs) : undefined,
    holder: reason === "key" ? holderOf(job, siblings) : undefined,
  };
}

/** One that its pipeline needs; or, since code may take others as well, the one that is free again when the job goes on. */
function limitOf(
  { runAt }: nouns.Job,
  limits: readonly nouns.Limit[],
  needs: readonly string[],
): nouns.Limit | undefined {
  const spent = limits.filter(({ until }) => until !== null);
  const goesOn = Date.parse(runAt ?? "");
  return (
    spent.find(({ name }) => needs.includes(name)) ??
    spent.find(({ until }) => Math.abs(Date.parse(until!) - goesOn) < SAME_MS)
  );
}

function holderOf(job: nouns.Job, siblings: readonly nouns.Job[]): nouns.Job | undefined {
  return siblings.findLast(({ id, state, waitingFor }) => id !== job.id && !isOver(state) && waitingFor !== "key");
}
