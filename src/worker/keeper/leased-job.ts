// A claimed job from claim to settlement: the keeper's state of it, and the port its attempt calls. Runners are not
// trusted: every call is bound to this job and this lease.

import type { ArtifactStore } from "../../artifacts/store.ts";
import {
  type BreakerVerdict,
  checkBreaker,
  type Dependency,
  type LimitCall,
  type LimitGrant,
  registerDependency,
  reportBreakerResult,
  useLimit,
} from "../../db/calls/flow.ts";
import { registerPipeline } from "../../db/calls/jobs.ts";
import {
  findSignal,
  loadChildren,
  type PositionCall,
  type SpawnState,
  spawn,
  spawnState,
  takeSignal,
} from "../../db/calls/long-work.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import {
  adopt,
  type Lease,
  loadArtifacts,
  loadCheckpoints,
  type SavedStep,
  saveArtifact,
} from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { InvalidInput, LeaseLost, StillwakeError, UnknownPipeline } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { Stopped, type StopReason } from "../attempt/outcome.ts";
import type { ProducedArtifact } from "../attempt/produce-artifact.ts";
import type { EventOf, WorkerEvents } from "../observe/events.ts";
import type {
  Assignment,
  LoadedPipeline,
  LogLine,
  Port,
  Progress,
  Run,
  SpawnCall,
  StepReport,
} from "../runner/port.ts";
import { openScratch, type Scratch } from "./scratch.ts";
import { artifactExists, artifactNotFound, fetchArtifact, storeArtifact } from "./store-artifact.ts";
import type { Unsealer } from "./unseal.ts";
import type { WriteBuffer } from "./write-buffer.ts";

export interface LeasedJobHost {
  database: Database;
  writeBuffer: WriteBuffer;
  events: WorkerEvents;
  store: ArtifactStore | undefined;
  leaseMs: number;
  scratchRoot: string;
  /** The user that runners run as, if that is not the user of this process. */
  runAs: { uid: number; gid: number } | undefined;
  unsealer: Unsealer;
  /** Resolves after the next heartbeat that extends leases. */
  nextHeartbeat(): Promise<void>;
  onRefused(lease: Lease, verb: string): void;
  /** Limits and breakers that this process has registered. */
  registered: Set<string>;
}

export class LeasedJob implements Port, Lease {
  readonly assignment: Assignment;
  readonly pipeline: LoadedPipeline;
  readonly job: string;
  readonly epoch: string;
  readonly lease: string;
  readonly startedAt = performance.now();
  run: Run | undefined;
  /** Why a stop was requested. */
  stopping: StopReason | undefined;
  /** The code has ended or was abandoned; the settlement may still be in flight. */
  ended = false;
  /** When the runner last sent anything about this job. */
  activeAt = this.startedAt;
  /** When the lease was last known to be valid. */
  leaseProvenAt: number;
  /** Running steps with a timeout, by name. */
  stepDeadlines: Map<string, { at: number; timeoutMs: number }> | undefined;
  readonly #host: LeasedJobHost;
  #scratch: Promise<Scratch> | undefined;
  /** Aborted when the attempt has ended; created on first use. */
  #ended: AbortController | undefined;
  #savesInFlight = 0;
  #onAllSaved: (() => void) | undefined;
  readonly #onSaved = () => {
    this.#savesInFlight -= 1;
    if (this.#savesInFlight === 0) this.#onAllSaved?.();
  };

  constructor(assignment: Assignment, pipeline: LoadedPipeline, claimedAt: number, host: LeasedJobHost) {
    this.assignment = assignment;
    this.pipeline = pipeline;
    this.job = assignment.job;
    this.epoch = assignment.epoch;
    this.lease = assignment.lease;
    this.leaseProvenAt = claimedAt;
    this.#host = host;
  }

  get fence(): Lease {
    return { job: this.job, epoch: this.epoch, lease: this.lease };
  }

  confirmLease(): Promise<void> | undefined {
    if (performance.now() < this.leaseProvenAt + this.#host.leaseMs) return undefined;
    return this.#host.nextHeartbeat().then(() => {
      if (this.stopping) throw new Stopped(this.stopping);
    });
  }

  checkpoints(): Promise<SavedStep[]> {
    return this.#fenced("load_checkpoints", () => loadCheckpoints(this.#host.database, this));
  }

  saveCheckpoint(step: string, output: string, tookMs: number): Promise<"saved" | "kept"> {
    if (this.ended) return Promise.reject(new Stopped({ kind: "replaced" }));
    const { job, epoch, lease } = this;
    // A runner may send anything. Values that share a statement with those of other jobs must at least have the right type.
    if (typeof step !== "string" || typeof output !== "string")
      return Promise.reject(new InvalidInput("A checkpoint needs a step name and its output as text"));
    const checkpoint = { job, epoch, lease, step, output, tookMs: Number(tookMs) || 0 };
    const saving = this.#host.writeBuffer.saveCheckpoint(checkpoint);
    this.#savesInFlight += 1;
    saving.then(this.#onSaved, this.#onSaved);
    return saving;
  }

  /** Resolves when no checkpoint of the attempt is in flight; undefined when none is. The settlement must not overtake one. */
  pendingSaves(): Promise<void> | undefined {
    if (this.#savesInFlight === 0) return undefined;
    return new Promise((resolve) => {
      this.#onAllSaved = resolve;
    });
  }

  adopt(version: number, restart: boolean): Promise<void> {
    return this.#fenced("adopt", () => adopt(this.#host.database, this, version, restart));
  }

  log(lines: LogLine[], progress?: Progress): void {
    if (this.ended) return;
    this.activeAt = performance.now();
    this.#host.writeBuffer.log(this.fence, lines, progress);
  }

  async flush(): Promise<void> {
    await this.#host.writeBuffer.flush(this.job);
  }

  setStepTimeout(step: string, timeoutMs: number | null): void {
    this.stepDeadlines ??= new Map();
    if (timeoutMs === null) this.stepDeadlines.delete(step);
    else this.stepDeadlines.set(step, { at: performance.now() + timeoutMs, timeoutMs });
  }

  stepStarted(step: string): void {
    this.activeAt = performance.now();
    this.#host.events.emit({ kind: "step.started", job: this.job, pipeline: this.pipeline.name, step });
  }

  stepEnded({ step, tookMs, outcome, code }: StepReport): void {
    this.activeAt = performance.now();
    const event: EventOf<"step.ended"> = {
      kind: "step.ended",
      job: this.job,
      pipeline: this.pipeline.name,
      step,
      tookMs,
      outcome,
    };
    if (code !== undefined) event.code = code;
    this.#host.events.emit(event);
  }

  async scratch(): Promise<string> {
    this.#scratch ??= openScratch(this.#host.scratchRoot, this.job, this.epoch, this.#host.runAs);
    return (await this.#scratch).dir;
  }

  /** Called when the attempt has ended. */
  cleanUp(): void {
    this.#ended?.abort();
    // What cannot be removed now is removed by the sweep of the next worker that starts on this machine.
    void this.#scratch?.then((scratch) => scratch.remove()).catch(() => {});
  }

  artifacts(): Promise<ArtifactRow[]> {
    return this.#fenced("load_artifacts", () => loadArtifacts(this.#host.database, this));
  }

  artifactExists(artifact: { key: string; size: number; sha256: string }): Promise<boolean> {
    return artifactExists(this.#store(), artifact);
  }

  /** The object is stored first and its row last, so a row implies a complete object. */
  async storeArtifact({ name, path, size, sha256 }: ProducedArtifact & { name: string }): Promise<ArtifactRow> {
    const { job, epoch } = this;
    const scratch = await this.scratch();
    const stored = await storeArtifact({
      store: this.#store(),
      job,
      epoch,
      name,
      path,
      scratch,
      expected: { size, sha256 },
    });
    await this.#fenced("save_artifact", () => saveArtifact(this.#host.database, this, stored));
    return {
      name,
      size: String(stored.size),
      sha256: stored.sha256,
      content_type: stored.contentType,
      key: stored.key,
      epoch,
      saved_at: new Date(),
    };
  }

  /** By name and not by key: a runner can read the artifacts of its own job only. */
  async fetchArtifact(name: string): Promise<string> {
    const store = this.#store();
    const rows = await this.artifacts();
    const row = rows.find((candidate) => candidate.name === name);
    if (!row) throw artifactNotFound(String(name), rows);
    const scratch = await this.scratch();
    this.#ended ??= new AbortController();
    return fetchArtifact({ store, row, scratch, runAs: this.#host.runAs, signal: this.#ended.signal });
  }

  reportAlive(): void {
    this.activeAt = performance.now();
  }

  async useLimit(limit: Dependency, call: LimitCall): Promise<LimitGrant> {
    await this.#register(limit);
    return this.#fenced("use_limit", () => useLimit(this.#host.database, this, limit.name, call));
  }

  async checkBreaker(breaker: Dependency): Promise<BreakerVerdict | null> {
    await this.#register(breaker);
    return this.#fenced("check_breaker", () => checkBreaker(this.#host.database, this, breaker.name));
  }

  async reportBreakerResult(
    breaker: Dependency,
    succeeded: boolean,
    reason: string | null,
  ): Promise<BreakerVerdict | null> {
    await this.#register(breaker);
    return reportBreakerResult(this.#host.database, this, breaker.name, succeeded, reason);
  }

  async spawn(spawnCall: SpawnCall): Promise<number> {
    const { pipeline, inputs, keys, tenants, trace, ...call } = spawnCall;
    const { database, unsealer } = this.#host;
    const options: Record<string, unknown> = { ...call.options };
    if (keys.some((key) => key !== null)) options.keys = keys;
    if (tenants.some((tenant) => tenant !== null)) options.tenants = tenants;
    if (trace) options.traces = inputs.map(() => trace);
    const ids = inputs.map(() => newId());
    const sealed = unsealer.sealInputs(spawnCall, ids);
    const batch = { ...call, pipeline: pipeline.name, ids, inputs: `[${sealed.join(",")}]`, options };
    const stored = await this.#fenced("spawn", async () => {
      try {
        return await spawn(database, this, batch);
      } catch (error) {
        if (!(error instanceof UnknownPipeline)) throw error;
        // Only a pipeline that is not registered: a runner must not change the pipelines of others.
        for (const dependency of pipeline.dependencies) await this.#register(dependency);
        await registerPipeline(database, pipeline.name, pipeline.settings);
        return spawn(database, this, batch);
      }
    });
    if (stored < 0) throw new Stopped({ kind: "cancel", reason: null });
    return stored;
  }

  async spawnState(name: string): Promise<SpawnState | undefined> {
    const state = await this.#fenced("spawn_state", () => spawnState(this.#host.database, this, name));
    if (state?.cancelling) throw new Stopped({ kind: "cancel", reason: null });
    return state;
  }

  children(...[page]: Parameters<Port["children"]>): ReturnType<Port["children"]> {
    return this.#fenced("load_children", () => loadChildren(this.#host.database, this, page));
  }

  findSignal(...[request]: Parameters<Port["findSignal"]>): ReturnType<Port["findSignal"]> {
    return this.#fenced("find_signal", () => findSignal(this.#host.database, this, request));
  }

  takeSignal(...[request]: Parameters<Port["takeSignal"]>): ReturnType<Port["takeSignal"]> {
    return this.#fenced("take_signal", () => takeSignal(this.#host.database, this, request));
  }

  async savePosition(call: PositionCall): Promise<"saved" | "kept"> {
    if (this.ended) throw new Stopped({ kind: "replaced" });
    return this.#fenced("save_position", () => this.#host.writeBuffer.savePosition(this.fence, call));
  }

  /** Registers a limit or breaker the first time this process uses it. */
  async #register(dependency: Dependency): Promise<void> {
    const { database, registered } = this.#host;
    const key = `${dependency.kind} ${dependency.name}`;
    if (registered.has(key)) return;
    await registerDependency(database, dependency);
    registered.add(key);
  }

  #store(): ArtifactStore {
    if (this.#host.store) return this.#host.store;
    throw new StillwakeError("NO_STORE", "This worker has no artifact store", {
      remedy: 'Set the worker option store to "file:./artifacts" or "s3://…"',
    });
  }

  async #fenced<T>(verb: string, write: () => Promise<T>): Promise<T> {
    try {
      return await write();
    } catch (error) {
      if (!(error instanceof LeaseLost)) throw error;
      this.#host.onRefused(this, verb);
      throw new Stopped({ kind: "replaced" });
    }
  }
}
