// The keeper of a worker: claims jobs, gives them to the runners, settles them. Everything that talks to Postgres is
// here or in the parts it owns; user code runs in the runners, in this process or in others.
//
//   claim    ClaimLoop settles finished attempts and claims jobs for the free slots, in one statement    -> #start
//   run      a LeasedJob is assigned to the runners; Heartbeat extends the leases of all running jobs    -> #finish
//   settle   WriteBuffer flushes the log lines of the attempt, then the ClaimLoop settles it             -> #release
//   idle     IdlePoll decides when to claim again; ScheduleTicker runs due schedules while all slots are taken
//
// There are two ways to stop. retire() stops claiming and lets jobs finish. #stop() ends one job: stop request, grace period, kill. A
// runner that does not acknowledge the stop request is blocked and is killed at once, unless the job continues elsewhere and may still
// complete a step. A claim in flight is never aborted, because its rows are already leased: jobs claimed during a drain are released.

import type { ArtifactStore } from "../../artifacts/store.ts";
import { AbsenceWatch } from "../../db/absence-watch.ts";
import type { JobState } from "../../db/calls/job.ts";
import type { ClaimedJob, Lease, Verdict } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import type { Tracing } from "../../tracing.ts";
import { toFailure } from "../attempt/failure.ts";
import { type Outcome, outcomeOfStop, type StopReason, toSettlement } from "../attempt/outcome.ts";
import type { EventOf, WorkerEvents } from "../observe/events.ts";
import { claimableBy, type LoadedPipeline, type Runners, toAssignment } from "../runner/port.ts";
import { ClaimLoop, type FinishedAttempt } from "./claim-loop.ts";
import { Heartbeat } from "./heartbeat.ts";
import { IdlePoll } from "./idle-poll.ts";
import { LeasedJob, type LeasedJobHost } from "./leased-job.ts";
import { ScheduleTicker } from "./schedule-ticker.ts";
import type { Unsealer } from "./unseal.ts";
import { outcomeLogLine, WriteBuffer } from "./write-buffer.ts";

export interface KeeperOptions {
  database: Database;
  events: WorkerEvents;
  runners: Runners;
  tracing: Tracing;
  pipelines: LoadedPipeline[];
  worker: string;
  /** The pools it claims from. */
  pools: readonly string[];
  slots: number;
  leaseMs: number;
  graceMs: number;
  /** The grace period of a cancelled job. */
  cancelGraceMs: number;
  pollMs: number;
  pollWithHintsMs: number;
  scratchRoot: string;
  runAs: { uid: number; gid: number } | undefined;
  unsealer: Unsealer;
  store: ArtifactStore | undefined;
  /** The number of jobs to claim in total; Infinity for no limit. */
  maxClaims: number;
  presence(): string | null;
  hintsArrive(): boolean;
  /** How long this worker has been connected to Postgres without interruption; 0 if it does not know. */
  connectedForMs(): number;
  /** No job runs and a claim found none. */
  onIdle(): void;
  /** A job was started. */
  onBusy(): void;
}

/** A runner with a working event loop acknowledges a stop request within milliseconds; after this long it is blocked. */
const STOP_ACK_MS = 250;

export class Keeper {
  readonly #options: KeeperOptions;
  readonly #pipelines: Map<string, LoadedPipeline>;
  /** From claim to settlement, by job id. */
  readonly #jobs = new Map<string, LeasedJob>();
  readonly #host: LeasedJobHost;
  readonly #claimLoop: ClaimLoop;
  readonly #heartbeat: Heartbeat;
  readonly #writeBuffer: WriteBuffer;
  readonly #idlePoll: IdlePoll;
  readonly #absenceWatch: AbsenceWatch;
  readonly #scheduleTicker: ScheduleTicker;
  #active = 0;
  #onNextHeartbeat: (() => void)[] = [];
  #onChange: (() => void)[] = [];

  constructor(options: KeeperOptions) {
    const { database, events, worker, pools, leaseMs, pipelines } = options;
    this.#options = options;
    this.#pipelines = new Map(pipelines.map((pipeline) => [pipeline.name, pipeline]));
    const onRefused = (lease: Lease, verb: string) => this.#onRefused(lease, verb);
    this.#writeBuffer = new WriteBuffer({
      database,
      onRefused,
      onDropped: (job, lines) => events.emit({ kind: "logs.dropped", job, lines }),
    });
    this.#host = {
      ...options,
      writeBuffer: this.#writeBuffer,
      nextHeartbeat: () => new Promise<void>((resolve) => this.#onNextHeartbeat.push(resolve)),
      onRefused,
      registered: new Set(),
    };
    const claimable = claimableBy(pools, pipelines);
    const ensureFresh = () => this.#heartbeat.ensureFresh();
    this.#claimLoop = new ClaimLoop({
      ...options,
      ensureFresh,
      request: { ...claimable, worker, lease: `${leaseMs} milliseconds` },
      active: () => this.#active,
      held: () => this.#heldLeases(),
      maySeeOutage: () => options.connectedForMs() < leaseMs,
      onClaimed: (job, pool, claimedAt) => this.#start(job, pool, claimedAt),
      onPresenceChanged: () => this.#heartbeat.sendNow(),
      onSettled: (finished, refused) => this.#onSettled(finished, refused),
      onExhausted: (claimed) => this.#idlePoll.schedule(claimed),
      onRound: (idle) => this.#onRound(idle),
    });
    this.#heartbeat = new Heartbeat({
      ...options,
      leases: () => [...this.#jobs.values()].filter(({ stopping }) => stopping?.kind !== "replaced"),
      onVerdict: (verdict, lease) => this.#onVerdict(verdict, lease),
      onExtended: (leases, sentAt) => this.#onExtended(leases, sentAt),
    });
    this.#idlePoll = new IdlePoll({
      ...options,
      claimable,
      ensureFresh,
      held: () => this.#claimLoop.held,
      onDue: () => this.#claimLoop.requestClaim(),
      onQueried: () => this.#absenceWatch.start(),
    });
    this.#absenceWatch = new AbsenceWatch({
      database,
      worker,
      leaseMs,
      onRecovered: (count) => {
        events.emit({ kind: "recovered", count, reason: "absent" });
        this.#claimLoop.requestClaim();
      },
    });
    this.#scheduleTicker = new ScheduleTicker({ database, pools, full: () => this.#claimLoop.full });
  }

  /** Called for every claim, with up to a thousand jobs. */
  #heldLeases(): Set<string> {
    const held = new Set<string>();
    for (const { lease, stopping } of this.#jobs.values()) if (stopping?.kind !== "replaced") held.add(lease);
    return held;
  }

  /** The number of jobs whose code runs. */
  get active(): number {
    return this.#active;
  }

  /** The number of jobs that run or are not settled yet. */
  get unsettled(): number {
    return this.#jobs.size;
  }

  /** The leases of this worker: those of its jobs, and those that claims in flight may have taken. */
  get held(): (string | null)[] {
    return this.#claimLoop.held;
  }

  /** The number of finished attempts that Postgres refuses to settle. */
  get rejected(): number {
    return this.#claimLoop.rejected;
  }

  get lastHeartbeatAt(): number {
    return this.#heartbeat.lastAt;
  }

  start(): void {
    this.#claimLoop.start();
  }

  /** There may be work in these pools. */
  poke(pools: readonly string[] = this.#options.pools): void {
    this.#claimLoop.requestClaim(pools, true);
  }

  /** The presence changed, or a cancel or pause of a job was requested. */
  heartbeat(): void {
    this.#heartbeat.sendNow();
  }

  /** Stops claiming. */
  retire(): void {
    this.#claimLoop.retire();
    this.#idlePoll.stop();
    this.#absenceWatch.stop();
    this.#scheduleTicker.stop();
  }

  /** Stops every job. */
  stopAll(reason: StopReason): void {
    for (const leased of this.#jobs.values()) this.#stop(leased, reason);
  }

  /** Resolves when no job runs and everything is settled. */
  async settled(): Promise<void> {
    while (this.#jobs.size > 0 || this.#claimLoop.inFlight > 0) {
      await new Promise<void>((resolve) => this.#onChange.push(resolve));
    }
  }

  close(): void {
    this.retire();
    this.#claimLoop.close();
    this.#heartbeat.stop();
    this.#writeBuffer.close();
  }

  /** Writes a warning into the log of every running job. */
  warnAll(message: string, data: unknown): void {
    const line = { level: "warning" as const, message, data, at: performance.now() };
    for (const leased of this.#jobs.values()) if (!leased.ended) this.#writeBuffer.log(leased.fence, [line]);
  }

  /** Enforces time limits that a blocked or stopped runner cannot enforce. `gapMs`: how long this process itself did not run. */
  enforceLimits(now: number, gapMs: number): void {
    for (const leased of this.#jobs.values()) {
      if (leased.ended || leased.stopping) continue;
      if (gapMs > 0) leased.activeAt += gapMs;
      const { timeoutMs, silenceMs } = leased.pipeline;
      const late =
        leased.stepDeadlines && [...leased.stepDeadlines].find(([, { at }]) => now > at + this.#options.graceMs + 1000);
      if (late) this.#stop(leased, { kind: "timeout", afterMs: late[1].timeoutMs, step: late[0] });
      else if (now - leased.startedAt > timeoutMs) this.#stop(leased, { kind: "timeout", afterMs: timeoutMs });
      else if (now - leased.activeAt > silenceMs) this.#stop(leased, { kind: "silence", afterMs: silenceMs });
    }
  }

  // Run

  #start(job: ClaimedJob, pool: string, claimedAt: number): void {
    const { events, runners, database, onBusy, unsealer } = this.#options;
    const assignment = toAssignment(job, pool, database.schema);
    const leased = new LeasedJob(assignment, this.#pipelines.get(job.pipeline)!, claimedAt, this.#host);
    this.#jobs.set(leased.job, leased);
    this.#active += 1;
    this.#heartbeat.start();
    onBusy();
    const { pipeline, attempt, epoch } = assignment;
    events.emit({ kind: "attempt.started", job: leased.job, pipeline, attempt, epoch });
    if (!this.#claimLoop.claiming) {
      this.#finish(leased, outcomeOfStop({ kind: "shutdown" }));
      return;
    }
    const sealed = leased.pipeline.settings.sealed as readonly string[] | undefined;
    leased.run = sealed?.length ? unsealer.run(runners, assignment, leased, sealed) : runners.run(assignment, leased);
    leased.run.outcome.then(
      (outcome) => this.#finish(leased, outcome),
      (error) => this.#finish(leased, { kind: "failed", failure: toFailure(error), fatal: false }),
    );
  }

  /** Called for each lease that a heartbeat extended. */
  #onExtended(leases: Lease[], sentAt: number): void {
    // A worker without a free slot does not poll.
    this.#absenceWatch.start();
    for (const { job, lease } of leases) {
      const leased = this.#jobs.get(job);
      if (leased?.lease === lease) leased.leaseProvenAt = sentAt;
    }
    for (const resolve of this.#onNextHeartbeat.splice(0)) resolve();
  }

  #onVerdict({ job_id, verdict, reason }: Verdict, lease: string | undefined): void {
    const leased = this.#jobs.get(job_id);
    if (!leased || leased.ended || leased.lease !== lease) return;
    if (verdict === "lost") this.#onRefused(leased, "heartbeat");
    else if (verdict === "cancel") this.#stop(leased, { kind: "cancel", reason });
  }

  /** The fence refused a write. A write of an earlier attempt does not affect a later attempt of the same job. */
  #onRefused({ job, lease }: Lease, verb: string): void {
    this.#options.events.emit({ kind: "write.refused", job, verb });
    const leased = this.#jobs.get(job);
    if (leased && leased.lease === lease) this.#stop(leased, { kind: "replaced" });
  }

  #stop(leased: LeasedJob, reason: StopReason): void {
    if (leased.stopping || leased.ended) return;
    leased.stopping = reason;
    const { run } = leased;
    if (!run) return;
    const { graceMs, cancelGraceMs } = this.#options;
    const timers: NodeJS.Timeout[] = [];
    const clearTimers = () => {
      for (const timer of timers) clearTimeout(timer);
    };
    const kill = () => {
      clearTimers();
      if (leased.ended) return;
      void run.kill().then((killed) => {
        // Code in this process cannot be killed: the attempt is abandoned, and none of its later writes are accepted.
        if (!killed) this.#finish(leased, outcomeOfStop(reason));
      });
    };
    let acknowledged = false;
    void run.stop(reason).then(() => (acknowledged = true));
    timers.push(setTimeout(kill, reason.kind === "cancel" ? cancelGraceMs : graceMs));
    // After an immediate: if this process itself was slow, the acknowledgement has arrived and only has to be read.
    const killBlocked = () => setImmediate(() => acknowledged || kill());
    if (reason.kind !== "shutdown" && reason.kind !== "crash") timers.push(setTimeout(killBlocked, STOP_ACK_MS));
    run.outcome.finally(clearTimers).catch(() => {});
  }

  // Settle

  /** The code has ended or was abandoned: its slot is free. Log lines are written before the settlement, which ends the lease. */
  #finish(leased: LeasedJob, outcome: Outcome): void {
    if (leased.ended) return;
    leased.ended = true;
    leased.cleanUp();
    this.#active -= 1;
    const settlement = toSettlement(leased, outcome);
    if (!settlement) {
      this.#release(leased, outcome);
      this.#claimLoop.requestClaim([leased.assignment.pool]);
      return;
    }
    const line = outcomeLogLine(outcome);
    if (line) this.#writeBuffer.log(leased.fence, [line]);
    const lines = this.#writeBuffer.flush(leased.job);
    const saves = leased.pendingSaves();
    const settle = () => this.#claimLoop.settle({ leased, outcome, settlement: JSON.stringify(settlement) });
    if (lines || saves) void Promise.all([lines, saves]).then(settle);
    else settle();
  }

  #onSettled({ leased, outcome }: FinishedAttempt, refused: boolean): void {
    if (refused) this.#options.events.emit({ kind: "write.refused", job: leased.job, verb: "settle" });
    this.#release(leased, refused ? { kind: "replaced" } : outcome);
  }

  #release(leased: LeasedJob, outcome: Outcome): void {
    const { job, epoch, assignment } = leased;
    if (this.#jobs.get(job) === leased) {
      this.#jobs.delete(job);
      this.#writeBuffer.forget(job);
    }
    if (this.#jobs.size === 0) this.#heartbeat.stop();
    const failure = outcome.kind === "failed" || outcome.kind === "lost" ? outcome.failure : undefined;
    const state = stateAfter(outcome, assignment.attempt >= assignment.maxAttempts);
    const event: EventOf<"attempt.ended"> = {
      kind: "attempt.ended",
      job,
      pipeline: assignment.pipeline,
      epoch,
      outcome: outcome.kind,
      state,
      tookMs: performance.now() - leased.startedAt,
      retry: failure !== undefined && state === "queued",
    };
    if (failure?.code !== undefined) event.code = failure.code;
    if (failure?.step !== undefined) event.step = failure.step;
    this.#options.events.emit(event);
    this.#notifyChange();
  }

  #onRound(idle: boolean): void {
    this.#scheduleTicker.startWhenFull();
    // A job whose code has ended may still be writing its last lines, and become claimable again when it is settled.
    if (idle && this.#jobs.size === 0 && this.#claimLoop.claiming) this.#options.onIdle();
    this.#notifyChange();
  }

  #notifyChange(): void {
    if (this.#onChange.length > 0) for (const resolve of this.#onChange.splice(0)) resolve();
  }
}

/** The job's state after the attempt, as far as the worker knows without a query. */
function stateAfter(outcome: Outcome, last: boolean): JobState {
  if (outcome.kind === "completed" || outcome.kind === "cancelled") return outcome.kind;
  if (outcome.kind === "failed") return outcome.fatal || last ? "failed" : "queued";
  if (outcome.kind === "paused") return "paused";
  return outcome.kind === "replaced" ? "running" : "queued";
}
