// The model of fan-out, events and positions: plain values, no database. The counts of a spawn are computed from its
// children, so that the model cannot miscount; which parent must wake is checked after every end.

export interface Handle {
  job: string;
  epoch: number;
  lease: string;
}

export type OnError = "fail" | "collect" | "ignore";
export type Outcome = { outcome: string; fatal?: boolean; waitingFor?: string; awaits?: string; until?: number };

export const FOREVER = -1;
export const PART = 128;
export const RETRY_IN = 2000;
export const limits = { attempts: 4, crashes: 2 };

export interface Job {
  id: string;
  parent: { job: string; spawn: string; no: number } | null;
  state: "queued" | "running" | "paused" | "completed" | "failed" | "cancelled";
  waitingFor: string | null;
  awaits: string | null;
  runAt: number;
  orderAt: number | null;
  attempt: number;
  crashes: number;
  epoch: number;
  /** For an ended job: the lease it ended under. */
  lease: string | null;
  cancel: boolean;
  pause: boolean;
  /** The outcome of its last attempt. */
  outcome: string | null;
  /** Attempts of a requeued job, "epoch/lease" to their outcome. */
  attempts: Map<string, string>;
  spawns: Map<string, { total: number; spawned: number; onError: OnError }>;
  signals: { id: string; name: string; takenBy: string | null }[];
  steps: Map<string, Step>;
}

type Step =
  | { kind: "wait"; until: number | null }
  | { kind: "timeout" }
  | { kind: "taken"; output: string }
  | { kind: "position"; done: Set<number>; lasts: Record<string, object>; over: boolean; value: object | null };

export interface PlaceCall {
  from: number;
  to: number;
  last: object | null;
  over: boolean;
  value: object | null;
}

export function newJob(id: string, now: number, parent: Job["parent"]): Job {
  return {
    ...{ id, parent, state: "queued", waitingFor: null, awaits: null, runAt: now, orderAt: null },
    ...{ attempt: 0, crashes: 0, epoch: 0, lease: null, cancel: false, pause: false, outcome: null },
    ...{ attempts: new Map(), spawns: new Map(), signals: [], steps: new Map() },
  };
}

export class SpawnWorld {
  now = 0;
  ids = 0;
  claims = 0;
  readonly jobs = new Map<string, Job>();
  readonly leases = new Map<string, { until: number; jobs: Set<string> }>();
  readonly handles: Handle[] = [];
  /** Its first spawns have more than one part. */
  readonly isWide: boolean;

  constructor(isWide: boolean) {
    this.isWide = isWide;
  }

  isLive({ state }: Job): boolean {
    return state === "queued" || state === "running" || state === "paused";
  }

  holds({ job: id, epoch, lease }: Handle): Job | undefined {
    const job = this.jobs.get(id);
    return job && this.isLive(job) && job.lease === lease && job.epoch === epoch ? job : undefined;
  }

  childrenOf(id: string, spawn?: string): Job[] {
    return [...this.jobs.values()]
      .filter(({ parent }) => parent?.job === id && (spawn === undefined || parent.spawn === spawn))
      .sort((a, b) => a.parent!.no - b.parent!.no);
  }

  isOver(job: Job, name: string): boolean {
    const { total, spawned, onError } = job.spawns.get(name)!;
    const children = this.childrenOf(job.id, name);
    if (onError === "fail" && children.some(({ state }) => state === "failed" || state === "cancelled")) return true;
    return spawned === total && !children.some((child) => this.isLive(child));
  }

  // Settling.

  claim(handles: Handle[], span: number): void {
    if (handles.length === 0) return;
    this.leases.set(handles[0]!.lease, { until: this.now + span, jobs: new Set(handles.map(({ job }) => job)) });
    for (const { job: id, epoch, lease } of handles) {
      const job = this.jobs.get(id)!;
      Object.assign(job, { state: "running", lease, epoch, attempt: job.attempt + 1, orderAt: null, waitingFor: null });
    }
    this.handles.push(...handles);
  }

  due(limit: number): Job[] {
    return [...this.jobs.values()]
      .filter((job) => job.state === "queued" && job.runAt !== FOREVER && job.runAt <= this.now)
      .sort((a, b) => a.runAt - b.runAt || (a.id < b.id ? -1 : 1))
      .slice(0, limit);
  }

  /** Jobs that waited until a time which has come are back at their position. */
  returnDue(): void {
    for (const job of this.jobs.values()) {
      if (!this.isLive(job) || job.orderAt === null || job.runAt === FOREVER || job.runAt > this.now) continue;
      Object.assign(job, { runAt: Math.min(job.runAt, job.orderAt), orderAt: null });
    }
  }

  /** Completed ones end together and first, the others one by one in order of their ids. */
  settle(settlements: (Handle & Outcome)[]): Map<string, string> {
    const said = new Map<string, string>();
    const completed = settlements.filter(({ outcome }) => outcome === "completed");
    const gone = completed.filter((each) => this.holds(each)).map((each) => this.holds(each)!);
    for (const job of gone) this.#leave(job);
    for (const job of gone) this.#end(job, "completed", "completed");
    for (const each of completed) {
      said.set(each.job, gone.some(({ id }) => id === each.job) ? "completed" : this.#before(each));
    }
    const others = settlements.filter(({ outcome }) => outcome !== "completed");
    for (const each of others.sort((a, b) => (a.job < b.job ? -1 : 1))) {
      const job = this.holds(each);
      if (!job) {
        said.set(each.job, this.#before(each));
        continue;
      }
      this.#leave(job);
      said.set(each.job, this.#settleOne(job, each));
    }
    return said;
  }

  /** A repeated settlement returns the same state. */
  #before({ job: id, epoch, lease, outcome }: Handle & Outcome): string {
    const job = this.jobs.get(id)!;
    const ended = !this.isLive(job);
    if (ended && job.epoch === epoch && job.lease === lease && job.outcome === outcome) return job.state;
    if (job.attempts.get(`${epoch}/${lease}`) !== outcome) return "lost";
    return ended ? "queued" : job.state;
  }

  #settleOne(job: Job, { outcome, fatal, waitingFor, awaits, until }: Outcome): string {
    if (outcome === "failed") {
      if (fatal) return this.#end(job, "failed", outcome);
      if (job.cancel) return this.#end(job, "cancelled", outcome);
      if (job.attempt >= limits.attempts) return this.#end(job, "failed", outcome);
      return this.#requeue(job, outcome, this.now + RETRY_IN, false, "retry");
    }
    if (outcome === "lost") return this.#lose(job);
    if (outcome === "cancelled" || job.cancel) return this.#end(job, "cancelled", outcome);
    if (outcome === "released") return this.#requeue(job, outcome, job.runAt, true);
    const mustWait =
      waitingFor === "event"
        ? !job.signals.some(({ name, takenBy }) => name === awaits && takenBy === null)
        : job.spawns.has(awaits!) && !this.isOver(job, awaits!);
    if (!mustWait) return this.#requeue(job, outcome, job.runAt, true);
    return this.#requeue(job, outcome, until ?? FOREVER, true, waitingFor!, awaits);
  }

  #lose(job: Job): string {
    job.crashes += 1;
    if (job.crashes >= limits.crashes) return this.#end(job, "failed", "lost");
    if (job.cancel) return this.#end(job, "cancelled", "lost");
    if (job.attempt >= limits.attempts) return this.#end(job, "failed", "lost");
    return this.#requeue(job, "lost", job.runAt, false);
  }

  recover(): number {
    let count = 0;
    const old = [...this.leases].filter(([, { until }]) => until < this.now).sort(([, a], [, b]) => a.until - b.until);
    for (const [id, { jobs }] of old) {
      for (const job of [...jobs].sort()) {
        this.#lose(this.jobs.get(job)!);
        count += 1;
      }
      this.leases.delete(id);
    }
    return count;
  }

  #leave({ id, lease }: Job): void {
    const { jobs } = this.leases.get(lease!)!;
    jobs.delete(id);
    if (jobs.size === 0) this.leases.delete(lease!);
  }

  #requeue(job: Job, outcome: string, runAt: number, back: boolean, waitingFor: string | null = null, awaits?: string) {
    job.attempts.set(`${job.epoch}/${job.lease}`, outcome);
    const orderAt = awaits === undefined && waitingFor !== "retry" ? null : job.runAt;
    Object.assign(job, { state: "queued", lease: null, attempt: job.attempt - (back ? 1 : 0) });
    Object.assign(job, { orderAt, runAt, waitingFor, awaits: awaits ?? null });
    return job.pause ? this.#setAside(job) : "queued";
  }

  #end(job: Job, state: "completed" | "failed" | "cancelled", outcome: string | null): string {
    // Keeps its lease if it had one, for earlier_settlement().
    Object.assign(job, {
      state,
      outcome: outcome ?? state,
      waitingFor: null,
      awaits: null,
      orderAt: null,
      pause: false,
    });
    if (state !== "completed") this.#cancelChildren(job);
    const parent = job.parent && this.jobs.get(job.parent.job);
    if (parent && this.isOver(parent, job.parent!.spawn) && parent.awaits === job.parent!.spawn) {
      this.#wake(parent, "children");
    }
    return state;
  }

  #wake(job: Job, from: string): void {
    if (job.state !== "queued" || job.waitingFor !== from) return;
    const then = job.orderAt ?? this.now;
    Object.assign(job, { runAt: job.runAt === FOREVER ? then : Math.min(job.runAt, then), orderAt: null });
    Object.assign(job, { waitingFor: null, awaits: null });
  }

  // Operators.

  cancel(job: Job): string {
    if (!this.isLive(job)) return job.state;
    job.cancel = true;
    if (job.lease === null) return this.#end(job, "cancelled", null);
    this.#cancelChildren(job);
    return "running";
  }

  #cancelChildren(job: Job): void {
    for (const child of this.childrenOf(job.id)) if (this.isLive(child)) this.cancel(child);
  }

  retry(job: Job, fromStart = false): string {
    if (this.isLive(job) || job.state === "completed") return "SW006";
    if (!fromStart && this.#waitsForCancel(job)) return "SW006";
    this.#revive(job, fromStart);
    return "queued";
  }

  /** A child is still being cancelled, or a child of those that would be retried with the job. */
  #waitsForCancel(job: Job): boolean {
    return this.childrenOf(job.id).some((child) =>
      this.isLive(child) ? child.cancel : child.state !== "completed" && this.#waitsForCancel(child),
    );
  }

  #revive(job: Job, fromStart: boolean): void {
    if (this.isLive(job) || job.state === "completed") return;
    if (job.lease) job.attempts.set(`${job.epoch}/${job.lease}`, job.outcome!);
    Object.assign(job, { state: "queued", runAt: this.now, attempt: 0, crashes: 0, lease: null, cancel: false });
    if (fromStart) {
      job.steps.clear();
      this.#cancelChildren(job);
      for (const child of this.childrenOf(job.id)) child.parent = null;
      job.spawns.clear();
      for (const signal of job.signals) if (signal.takenBy) signal.takenBy = null;
    }
    for (const child of this.childrenOf(job.id)) this.#revive(child, false);
  }

  pause(job: Job): string {
    if (!this.isLive(job)) return "SW006";
    job.pause = true;
    return job.lease === null ? this.#setAside(job) : "running";
  }

  #setAside(job: Job): string {
    Object.assign(job, { state: "paused", orderAt: job.orderAt ?? job.runAt, runAt: FOREVER });
    return "paused";
  }

  resume(job: Job): string {
    if (!this.isLive(job)) return "SW006";
    if (!job.pause) return job.state;
    job.pause = false;
    if (job.state === "paused") Object.assign(job, { state: "queued", runAt: job.orderAt ?? job.runAt, orderAt: null });
    return job.state;
  }

  // Signals.

  signal(job: Job, name: string, id: string): string {
    if (!this.isLive(job)) return "SW006";
    const { state } = job;
    if (job.signals.some((signal) => signal.id === id)) return state;
    job.signals.push({ id, name, takenBy: null });
    if (job.awaits === name) this.#wake(job, "event");
    return state;
  }

  look(job: Job, name: string, step: string, timeout: number | null): (string | number | null)[] {
    if (!job.steps.has(step))
      job.steps.set(step, { kind: "wait", until: timeout === null ? null : this.now + timeout });
    const kept = job.steps.get(step)!;
    if (kept.kind !== "wait") return ["kept", null, null];
    const said = job.signals.find((signal) => signal.name === name && signal.takenBy === null);
    if (said) return ["there", said.id, null];
    if (kept.until === null || kept.until > this.now) return ["waiting", null, kept.until];
    job.steps.set(step, { kind: "timeout" });
    return ["timeout", null, kept.until];
  }

  take(job: Job, step: string, id: string, accepted: boolean): string {
    if (job.steps.get(step)?.kind !== "wait") return "kept";
    const signal = job.signals.find((each) => each.id === id && each.takenBy === null);
    if (signal) signal.takenBy = accepted ? step : "";
    if (!accepted) return "refused";
    if (!signal) return "gone";
    job.steps.set(step, { kind: "taken", output: id });
    return "taken";
  }

  savePlace(job: Job, step: string, call: PlaceCall): string {
    const { from, to, last, over, value } = call;
    if (!job.steps.has(step))
      job.steps.set(step, { kind: "position", done: new Set(), lasts: {}, over: false, value: null });
    const position = job.steps.get(step)!;
    if (position.kind !== "position") return "SW001";
    const items = Array.from({ length: to - from }, (_, n) => from + n);
    if (position.over || items.some((item) => position.done.has(item))) return "kept";
    for (const item of items) position.done.add(item);
    if (last) position.lasts[to] = last;
    // Only the last item of a range can become the last one before the first gap.
    const isEnd = (item: number) => position.done.has(item - 1) && !position.done.has(item);
    for (const key of Object.keys(position.lasts)) if (!isEnd(Number(key))) delete position.lasts[key];
    position.over = over;
    position.value = value ?? position.value;
    return "saved";
  }
}
