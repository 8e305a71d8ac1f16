// The keeper: has claimed jobs run and sees to their end. Everything that talks to Postgres is here or in what it owns (turns, heartbeats, ledger,
// wake); what runs user code is the crew, in this process or in runners.
//
//   turns: settle what is finished + claim for the free slots, one statement     -> begin each claimed job
//   begin: assignment to the crew                                                -> outcome
//   end:   flush its lines, then its settlement                                  -> next turn
//
// Two stop signals are kept apart. "Claim no more" (retire) lets jobs finish; "give up now" (stop) is a ladder per job: told, a grace, killed.
// Who does not even answer that it was told is blocked, and is not waited for unless what it does may still be saved.
// A claim in flight is never aborted: its rows are leased already, so what it brings while draining goes straight back.

import type { ArtifactStore } from "../../artifacts/open-store.ts";
import type { JobState } from "../../db/calls/jobs.ts";
import type { ClaimedJob, Lease, Verdict } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import type { Tracing } from "../../tracing.ts";
import { failureOf } from "../attempt/failure.ts";
import { type Outcome, outcomeOfStop, type StopReason, settlementOf } from "../attempt/outcome.ts";
import type { Announcer, EventOf } from "../observe/events.ts";
import { assignmentOf, type Crew, type PipelineFacts } from "../runner/port.ts";
import { type Ended, Turns } from "./claim-loop.ts";
import { Heartbeat } from "./heartbeat.ts";
import { Wake } from "./idle-poll.ts";
import { Running, type RunningHost } from "./leased-job.ts";
import { Tender } from "./schedule-ticker.ts";
import type { Opener } from "./unseal.ts";
import { Ledger, lastWords } from "./write-buffer.ts";

export interface KeeperOptions {
  database: Database;
  announcer: Announcer;
  crew: Crew;
  tracing: Tracing;
  pipelines: PipelineFacts[];
  worker: string;
  pool: string;
  slots: number;
  spanMs: number;
  graceMs: number;
  /** The grace of a job that was cancelled. */
  cancelGraceMs: number;
  pollMs: number;
  pushedPollMs: number;
  scratchRoot: string;
  runAs: { uid: number; gid: number } | undefined;
  opener: Opener;
  store: ArtifactStore | undefined;
  /** Jobs to take in all; Infinity for a worker that goes on. */
  most: number;
  presence(): string | null;
  pushed(): boolean;
  /** No job runs and a claim found none. */
  onIdle(): void;
  /** A job was begun, so it is not idle. */
  onBusy(): void;
}

/** A runner that turns its event loop answers within milliseconds that it has heard; one that has not after this long is blocked. */
const HEARD_MS = 250;

export class Keeper {
  readonly #options: KeeperOptions;
  readonly #facts: Map<string, PipelineFacts>;
  /** From claim to settlement. */
  readonly #jobs = new Map<string, Running>();
  readonly #host: RunningHost;
  readonly #turns: Turns;
  readonly #heartbeats: Heartbeat;
  readonly #ledger: Ledger;
  readonly #wake: Wake;
  readonly #tender: Tender;
  #active = 0;
  #proofs: (() => void)[] = [];
  #quiet: (() => void)[] = [];

  constructor(options: KeeperOptions) {
    const { database, announcer, worker, pool, spanMs, pipelines, store, scratchRoot, runAs, opener } = options;
    this.#options = options;
    this.#facts = new Map(pipelines.map((facts) => [facts.name, facts]));
    const onRefused = (lease: Lease, verb: string) => this.#refused(lease, verb);
    const onDropped = (job: string, lines: number) => announcer.announce({ kind: "logs.dropped", job, lines });
    this.#ledger = new Ledger({ database, onRefused, onDropped });
    const known = new Set<string>();
    const proof = () => new Promise<void>((resolve) => this.#proofs.push(resolve));
    this.#host = {
      database,
      ledger: this.#ledger,
      announcer,
      store,
      spanMs,
      scratchRoot,
      runAs,
      opener,
      proof,
      onRefused,
      known,
    };
    const question = {
      pool,
      pipelines: pipelines.map(({ name }) => name),
      versions: pipelines.map(({ version }) => version),
      oldest: pipelines.map(({ version, onOlder }) => (onOlder === "wait" ? version : 1)),
    };
    const prove = () => this.#heartbeats.fresh();
    this.#turns = new Turns({
      ...options,
      prove,
      request: { ...question, worker, lease: `${spanMs} milliseconds` },
      active: () => this.#active,
      begin: (job, claimedAt) => this.#begin(job, claimedAt),
      misnamed: () => this.#heartbeats.now(),
      settled: (ended, refused) => this.#settled(ended, refused),
      rest: (found) => this.#wake.rest(found),
      turned: (idle) => this.#turned(idle),
    });
    this.#heartbeats = new Heartbeat({
      database,
      announcer,
      spanMs,
      leases: () => [...this.#jobs.values()].filter(({ stopping }) => stopping?.kind !== "replaced"),
      presence: options.presence,
      onVerdict: (verdict, lease) => this.#judge(verdict, lease),
      onProof: (leases, sentAt) => this.#proved(leases, sentAt),
    });
    this.#wake = new Wake({ ...options, question, prove, onDue: () => this.#turns.look() });
    this.#tender = new Tender({ database, pool, full: () => this.#turns.full });
  }

  get active(): number {
    return this.#active;
  }

  /** Jobs that run or are not settled yet. */
  get held(): number {
    return this.#jobs.size;
  }

  get lastHeartbeatAt(): number {
    return this.#heartbeats.lastAt;
  }

  start(): void {
    this.#turns.start();
  }

  /** A hint: there may be work. */
  poke(): void {
    this.#turns.look(true);
  }

  /** The session behind presence broke or came back, or somebody changed his mind about a job. */
  heartbeat(): void {
    this.#heartbeats.now();
  }

  /** Claims no more. */
  retire(): void {
    this.#turns.retire();
    this.#wake.stop();
    this.#tender.stop();
  }

  /** Tells every job to stop, and sees to it. */
  stopAll(reason: StopReason): void {
    for (const running of this.#jobs.values()) this.#stop(running, reason);
  }

  /** Resolves when no job runs and everything is settled. */
  async quiet(): Promise<void> {
    while (this.#jobs.size > 0 || this.#turns.lanes > 0) {
      await new Promise<void>((resolve) => this.#quiet.push(resolve));
    }
  }

  close(): void {
    this.retire();
    this.#turns.close();
    this.#heartbeats.stop();
    this.#ledger.close();
  }

  /** A line for everybody who waits for one of these jobs. */
  warnAll(message: string, data: unknown): void {
    const line = { level: "warning" as const, message, data, at: performance.now() };
    for (const running of this.#jobs.values()) if (!running.ended) this.#ledger.log(running.fence, [line]);
  }

  /** Looks after limits that a blocked or stopped runner cannot keep itself. `gapMs`: how long nobody could look. */
  watch(now: number, gapMs: number): void {
    for (const running of this.#jobs.values()) {
      if (running.ended || running.stopping) continue;
      if (gapMs > 0) running.heardAt += gapMs;
      const { timeoutMs, silenceMs } = running.facts;
      const late =
        running.deadlines && [...running.deadlines].find(([, { at }]) => now > at + this.#options.graceMs + 1000);
      if (late) this.#stop(running, { kind: "timeout", afterMs: late[1].timeoutMs, step: late[0] });
      else if (now - running.startedAt > timeoutMs) this.#stop(running, { kind: "timeout", afterMs: timeoutMs });
      else if (now - running.heardAt > silenceMs) this.#stop(running, { kind: "silence", afterMs: silenceMs });
    }
  }

  #begin(job: ClaimedJob, claimedAt: number): void {
    const { announcer, crew, database, onBusy, opener } = this.#options;
    const assignment = assignmentOf(job, database.schema);
    const running = new Running(assignment, this.#facts.get(job.pipeline)!, claimedAt, this.#host);
    this.#jobs.set(running.job, running);
    this.#active += 1;
    this.#heartbeats.start();
    onBusy();
    const { pipeline, attempt, epoch } = assignment;
    announcer.announce({ kind: "attempt.started", job: running.job, pipeline, attempt, epoch });
    if (!this.#turns.claiming) {
      this.#end(running, outcomeOfStop({ kind: "shutdown" }));
      return;
    }
    const sealed = running.facts.settings.sealed as readonly string[] | undefined;
    running.run = sealed?.length ? opener.run(crew, assignment, running, sealed) : crew.run(assignment, running);
    running.run.outcome.then(
      (outcome) => this.#end(running, outcome),
      (error) => this.#end(running, { kind: "failed", failure: failureOf(error), fatal: false }),
    );
  }

  /** The code has ended, or was given up: its slot is free. Its lines come before its settlement, which ends its right to write any. */
  #end(running: Running, outcome: Outcome): void {
    if (running.ended) return;
    running.ended = true;
    running.cleanUp();
    this.#active -= 1;
    const settlement = settlementOf(running, outcome);
    if (!settlement) {
      this.#gone(running, outcome);
      this.#turns.look();
      return;
    }
    const words = lastWords(outcome);
    if (words) this.#ledger.log(running.fence, [words]);
    const lines = this.#ledger.flush(running.job);
    const saves = running.saved();
    const settle = () => this.#turns.end({ running, outcome, settlement });
    if (lines || saves) void Promise.all([lines, saves]).then(settle);
    else settle();
  }

  #settled({ running, outcome }: Ended, refused: boolean): void {
    if (refused) this.#options.announcer.announce({ kind: "write.refused", job: running.job, verb: "settle" });
    this.#gone(running, refused ? { kind: "replaced" } : outcome);
  }

  #gone(running: Running, outcome: Outcome): void {
    const { job, epoch, assignment } = running;
    if (this.#jobs.get(job) === running) {
      this.#jobs.delete(job);
      this.#ledger.forget(job);
    }
    if (this.#jobs.size === 0) this.#heartbeats.stop();
    const failure = outcome.kind === "failed" || outcome.kind === "lost" ? outcome.failure : undefined;
    const state = stateAfter(outcome, assignment.attempt >= assignment.maxAttempts);
    const event: EventOf<"attempt.ended"> = {
      kind: "attempt.ended",
      job,
      pipeline: assignment.pipeline,
      epoch,
      outcome: outcome.kind,
      state,
      tookMs: performance.now() - running.startedAt,
      retry: failure !== undefined && state === "queued",
    };
    if (failure?.code !== undefined) event.code = failure.code;
    if (failure?.step !== undefined) event.step = failure.step;
    this.#options.announcer.announce(event);
    this.#tellQuiet();
  }

  #turned(idle: boolean): void {
    this.#tender.watch();
    if (idle && this.#turns.claiming) this.#options.onIdle();
    this.#tellQuiet();
  }

  #tellQuiet(): void {
    if (this.#quiet.length > 0) for (const resolve of this.#quiet.splice(0)) resolve();
  }

  #stop(running: Running, reason: StopReason): void {
    if (running.stopping || running.ended) return;
    running.stopping = reason;
    const { run } = running;
    if (!run) return;
    const { graceMs, cancelGraceMs } = this.#options;
    const timers: NodeJS.Timeout[] = [];
    const quiet = () => {
      for (const timer of timers) clearTimeout(timer);
    };
    const kill = () => {
      quiet();
      if (running.ended) return;
      void run.kill().then((killed) => {
        // Code in this very process cannot be killed: it is given up, and nothing it still writes is accepted.
        if (!killed) this.#end(running, outcomeOfStop(reason));
      });
    };
    let heard = false;
    void run.stop(reason).then(() => (heard = true));
    timers.push(setTimeout(kill, reason.kind === "cancel" ? cancelGraceMs : graceMs));
    // Should this process have been slow itself, the answer is there and only has to be read. A job that is to go on elsewhere may still
    // come to the end of a step.
    const late = () => setImmediate(() => heard || kill());
    if (reason.kind !== "shutdown" && reason.kind !== "crash") timers.push(setTimeout(late, HEARD_MS));
    run.outcome.finally(quiet).catch(() => {});
  }

  #judge({ job_id, verdict, reason }: Verdict, lease: string | undefined): void {
    const running = this.#jobs.get(job_id);
    if (!running || running.ended || running.lease !== lease) return;
    if (verdict === "lost") this.#refused(running, "heartbeat");
    else if (verdict === "cancel") this.#stop(running, { kind: "cancel", reason });
  }

  /** What an earlier attempt still tried to write says nothing about a later one of the same job. */
  #refused({ job, lease }: Lease, verb: string): void {
    this.#options.announcer.announce({ kind: "write.refused", job, verb });
    const running = this.#jobs.get(job);
    if (running && running.lease === lease) this.#stop(running, { kind: "replaced" });
  }

  #proved(leases: { job: string; lease: string }[], sentAt: number): void {
    for (const { job, lease } of leases) {
      const running = this.#jobs.get(job);
      if (running?.lease === lease) running.provenAt = sentAt;
    }
    for (const resolve of this.#proofs.splice(0)) resolve();
  }
}

/** What the job went to, as far as a worker can tell without asking. */
function stateAfter(outcome: Outcome, last: boolean): JobState {
  if (outcome.kind === "completed" || outcome.kind === "cancelled") return outcome.kind;
  if (outcome.kind === "failed") return outcome.fatal || last ? "failed" : "queued";
  if (outcome.kind === "paused") return "paused";
  return outcome.kind === "replaced" ? "running" : "queued";
}
