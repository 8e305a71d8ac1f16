// One claimed job under way, as the keeper sees it: the port its attempt speaks through, and everything the keeper knows about it. A runner is
// not trusted: whatever comes through here can only concern this job and this lease.

import type { ArtifactStore } from "../../artifacts/open-store.ts";
import {
  askBreaker,
  type BreakerVerdict,
  type LimitAnswer,
  type LimitCall,
  type Need,
  registerNeed,
  tellBreaker,
  useLimit,
} from "../../db/calls/flow.ts";
import { registerPipeline } from "../../db/calls/jobs.ts";
import {
  loadChildren,
  lookForSignal,
  type PlaceCall,
  type SpawnState,
  savePlace,
  spawn,
  spawnState,
  takeSignal,
} from "../../db/calls/long-work.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import {
  adopt,
  type KeptStep,
  type Lease,
  loadArtifacts,
  loadCheckpoints,
  saveArtifact,
} from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { InvalidInput, LeaseLost, StillwakeError, UnknownPipeline } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { Stopped, type StopReason } from "../attempt/outcome.ts";
import type { ProducedArtifact } from "../attempt/produce-artifact.ts";
import type { Announcer, EventOf } from "../observe/events.ts";
import type { Assignment, LogLine, PipelineFacts, Port, Progress, Run, SpawnCall, StepReport } from "../runner/port.ts";
import { openScratch, type Scratch } from "./scratch.ts";
import { artifactIsThere, fetchArtifact, noSuchArtifact, storeArtifact } from "./store-artifact.ts";
import type { Opener } from "./unseal.ts";
import type { Ledger } from "./write-buffer.ts";

export interface RunningHost {
  database: Database;
  ledger: Ledger;
  announcer: Announcer;
  store: ArtifactStore | undefined;
  spanMs: number;
  scratchRoot: string;
  /** The user that runners run as, if it is another. */
  runAs: { uid: number; gid: number } | undefined;
  opener: Opener;
  /** Resolves at the next heartbeat that proves leases. */
  proof(): Promise<void>;
  onRefused(lease: Lease, verb: string): void;
  /** Limits and breakers that this process has made known. */
  known: Set<string>;
}

export class Running implements Port, Lease {
  readonly assignment: Assignment;
  readonly facts: PipelineFacts;
  readonly job: string;
  readonly epoch: string;
  readonly lease: string;
  readonly startedAt = performance.now();
  run: Run | undefined;
  /** Why it was told to stop. */
  stopping: StopReason | undefined;
  /** Its code has ended; its settlement may still be on the way. */
  ended = false;
  heardAt = this.startedAt;
  /** When the lease was last known to hold. */
  provenAt: number;
  /** Steps under way with the moment at which the keeper steps in. */
  deadlines: Map<string, { at: number; timeoutMs: number }> | undefined;
  readonly #host: RunningHost;
  #scratch: Promise<Scratch> | undefined;
  /** Aborts when the attempt is over; made for the first that needs it. */
  #over: AbortController | undefined;
  #saves = 0;
  #onSaved: (() => void) | undefined;
  readonly #saved = () => {
    this.#saves -= 1;
    if (this.#saves === 0) this.#onSaved?.();
  };

  constructor(assignment: Assignment, facts: PipelineFacts, provenAt: number, host: RunningHost) {
    this.assignment = assignment;
    this.facts = facts;
    this.job = assignment.job;
    this.epoch = assignment.epoch;
    this.lease = assignment.lease;
    this.provenAt = provenAt;
    this.#host = host;
  }

  get fence(): Lease {
    return { job: this.job, epoch: this.epoch, lease: this.lease };
  }

  leased(): Promise<void> | undefined {
    if (performance.now() < this.provenAt + this.#host.spanMs) return undefined;
    return this.#host.proof().then(() => {
      if (this.stopping) throw new Stopped(this.stopping);
    });
  }

  checkpoints(): Promise<KeptStep[]> {
    return this.#fenced("load_checkpoints", () => loadCheckpoints(this.#host.database, this));
  }

  saveCheckpoint(step: string, output: string, tookMs: number): Promise<"saved" | "kept"> {
    if (this.ended) return Promise.reject(new Stopped({ kind: "replaced" }));
    const { job, epoch, lease } = this;
    // A runner may send anything; what shares its statement with others must at least be of the right kind.
    if (typeof step !== "string" || typeof output !== "string")
      return Promise.reject(new InvalidInput("No step's result"));
    const took = Number(tookMs) || 0;
    const saving = this.#host.ledger.saveCheckpoint({ job, epoch, lease, step, output, tookMs: took });
    this.#saves += 1;
    saving.then(this.#saved, this.#saved);
    return saving;
  }

  /** Resolves when no result of the attempt is on its way any more; undefined when none is. The settlement must not overtake it. */
  saved(): Promise<void> | undefined {
    if (this.#saves === 0) return undefined;
    return new Promise((resolve) => {
      this.#onSaved = resolve;
    });
  }

  adopt(version: number, restart: boolean): Promise<void> {
    return this.#fenced("adopt", () => adopt(this.#host.database, this, version, restart));
  }

  log(lines: LogLine[], progress?: Progress): void {
    if (this.ended) return;
    this.heardAt = performance.now();
    this.#host.ledger.log(this.fence, lines, progress);
  }

  async flush(): Promise<void> {
    await this.#host.ledger.flush(this.job);
  }

  limit(step: string, timeoutMs: number | null): void {
    this.deadlines ??= new Map();
    if (timeoutMs === null) this.deadlines.delete(step);
    else this.deadlines.set(step, { at: performance.now() + timeoutMs, timeoutMs });
  }

  stepStarted(step: string): void {
    this.heardAt = performance.now();
    this.#host.announcer.announce({ kind: "step.started", job: this.job, pipeline: this.facts.name, step });
  }

  stepEnded({ step, tookMs, outcome, code }: StepReport): void {
    this.heardAt = performance.now();
    const event: EventOf<"step.ended"> = {
      kind: "step.ended",
      job: this.job,
      pipeline: this.facts.name,
      step,
      tookMs,
      outcome,
    };
    if (code !== undefined) event.code = code;
    this.#host.announcer.announce(event);
  }

  async scratch(): Promise<string> {
    this.#scratch ??= openScratch(this.#host.scratchRoot, this.job, this.epoch, this.#host.runAs);
    return (await this.#scratch).dir;
  }

  /** The attempt is over. */
  cleanUp(): void {
    this.#over?.abort();
    // What cannot be removed now is found by the sweep of the next worker that starts here.
    void this.#scratch?.then((scratch) => scratch.remove()).catch(() => {});
  }

  artifacts(): Promise<ArtifactRow[]> {
    return this.#fenced("load_artifacts", () => loadArtifacts(this.#host.database, this));
  }

  artifactIsThere(artifact: { key: string; size: number; sha256: string }): Promise<boolean> {
    return artifactIsThere(this.#store(), artifact);
  }

  /** Stored first, its row last: a row means that the object is whole. */
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

  /** By its name and not by its key: a runner reads what its own job has, and nothing else of the store. */
  async fetchArtifact(name: string): Promise<string> {
    const store = this.#store();
    const rows = await this.artifacts();
    const row = rows.find((one) => one.name === name);
    if (!row) throw noSuchArtifact(String(name), rows);
    const scratch = await this.scratch();
    this.#over ??= new AbortController();
    return fetchArtifact({ store, row, scratch, runAs: this.#host.runAs, signal: this.#over.signal });
  }

  alive(): void {
    this.heardAt = performance.now();
  }

  async useLimit(limit: Need, call: LimitCall): Promise<LimitAnswer> {
    await this.#meet(limit);
    return this.#fenced("use_limit", () => useLimit(this.#host.database, this, limit.name, call));
  }

  async askBreaker(breaker: Need): Promise<BreakerVerdict | null> {
    await this.#meet(breaker);
    return this.#fenced("ask_breaker", () => askBreaker(this.#host.database, this, breaker.name));
  }

  async tellBreaker(breaker: Need, succeeded: boolean, reason: string | null): Promise<BreakerVerdict | null> {
    await this.#meet(breaker);
    return tellBreaker(this.#host.database, this, breaker.name, succeeded, reason);
  }

  async spawn(asked: SpawnCall): Promise<number> {
    const { pipeline, inputs, keys, tenants, trace, ...call } = asked;
    const { database, opener } = this.#host;
    const options: Record<string, unknown> = { ...call.options };
    if (keys.some((key) => key !== null)) options.keys = keys;
    if (tenants.some((tenant) => tenant !== null)) options.tenants = tenants;
    if (trace) options.traces = inputs.map(() => trace);
    const ids = inputs.map(() => newId());
    const batch = { ...call, pipeline: pipeline.name, ids, inputs: `[${opener.seal(asked, ids).join(",")}]`, options };
    const stored = await this.#fenced("spawn", async () => {
      try {
        return await spawn(database, this, batch);
      } catch (error) {
        if (!(error instanceof UnknownPipeline)) throw error;
        // Only one that nobody knows: what a runner says must not change the pipelines of others.
        for (const need of pipeline.needs) await this.#meet(need);
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

  lookForSignal(...[question]: Parameters<Port["lookForSignal"]>): ReturnType<Port["lookForSignal"]> {
    return this.#fenced("look_for_signal", () => lookForSignal(this.#host.database, this, question));
  }

  takeSignal(...[taking]: Parameters<Port["takeSignal"]>): ReturnType<Port["takeSignal"]> {
    return this.#fenced("take_signal", () => takeSignal(this.#host.database, this, taking));
  }

  async savePlace(call: PlaceCall): Promise<"saved" | "kept"> {
    if (this.ended) throw new Stopped({ kind: "replaced" });
    const lines = this.#host.ledger.flush(this.job);
    const result = await this.#fenced("save_place", () => savePlace(this.#host.database, this, call));
    await lines;
    return result;
  }

  /** Makes a limit or breaker known the first time this process meets it. */
  async #meet(need: Need): Promise<void> {
    const { database, known } = this.#host;
    const mark = `${need.kind} ${need.name}`;
    if (known.has(mark)) return;
    await registerNeed(database, need);
    known.add(mark);
  }

  #store(): ArtifactStore {
    if (this.#host.store) return this.#host.store;
    throw new StillwakeError("NO_STORE", "This worker has no artifact store", {
      remedy: 'Give it one: store: "file:./artifacts", or s3://…',
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
