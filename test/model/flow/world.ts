// The state of the game of limits and breakers: jobs, leases, grants, and invariants that do not depend on the model.
import assert from "node:assert/strict";
import type { Pipeline } from "./engine.ts";
import { Breaker, FOREVER, type Handle, Limit, type LimitSettings, type Told } from "./limit-and-breaker.ts";

interface Job {
  pipeline: Pipeline;
  lease: string | null;
  epoch: string | null;
  state: "queued" | "running" | "paused";
  dueAt: number;
}

/** Uses of one grant without a response, not returned. */
export interface OpenGrant {
  by: Handle;
  left: number;
  bin: number | null;
  text: string | null;
  /** When each of them arrives at the other side: at once, or as late as allowed. */
  made: number[];
}

/** What moves have hit; a case with zero hits is not tested. */
export const hits = {
  ...{ granted: 0, full: 0, scouts: 0, learned: 0, blocked: 0, busy: 0, unused: 0, lostHolds: 0, windows: 0 },
  ...{ opened: 0, held: 0, probes: 0, probeFailed: 0, closed: 0, setAside: 0, stale: 0 },
};

/** The other side of a learned limit: a fixed number of calls per window of fixed length. */
class Server {
  readonly limit = 4;
  readonly window = 7000;
  #ends = 0;
  #used = 0;

  /** It reports the end of the window in whole seconds, and never too early. */
  call(now: number): Told {
    if (now >= this.#ends) {
      this.#ends = now + this.window;
      this.#used = 0;
      hits.windows += 1;
    }
    this.#used += 1;
    assert.ok(this.#used <= this.limit, "the other side got more calls than it allows in a window");
    const left = Math.ceil((this.#ends - now) / 1000) * 1000;
    return { limit: this.limit, remaining: this.limit - this.#used, reset_ms: left };
  }
}

export class FlowWorld {
  now = 0;
  origin: number;
  limit: Limit;
  breaker = new Breaker();
  jobs = new Map<string, Job>();
  leases = new Map<string, { until: number; pipeline: Pipeline }>();
  handles: Handle[] = [];
  grants: OpenGrant[] = [];
  /** Uses that were made or will be, by their time of arrival. */
  made: number[] = [];
  /** Attempts that probe a half-open breaker and have not reported their result. */
  probing: Handle[] = [];
  waitUntil: number | null = null;
  /** Undefined where responses report random values. */
  server: Server | undefined;

  constructor(settings: LimitSettings, honest: boolean, origin: number, jobs: Map<string, Pipeline>) {
    this.limit = new Limit(settings);
    this.origin = origin;
    if (honest && settings.learn) this.server = new Server();
    for (const [id, pipeline] of jobs)
      this.jobs.set(id, { pipeline, lease: null, epoch: null, state: "queued", dueAt: 0 });
  }

  holds({ job, lease, epoch }: Handle): boolean {
    const found = this.jobs.get(job)!;
    return found.lease === lease && found.epoch === epoch;
  }

  readonly isLive = (key: string): boolean => {
    const [job, lease] = key.split("/");
    return this.jobs.get(job!)?.lease === lease;
  };

  isProbing(): boolean {
    const { probe } = this.breaker;
    return probe !== null && this.jobs.get(probe.job)!.lease === probe.lease;
  }

  outstanding(): number {
    return [...this.limit.holds].reduce((sum, [key, count]) => sum + (this.isLive(key) ? count : 0), 0);
  }

  /** What happens to a job that leaves its lease. */
  leave(id: string, state: Job["state"], dueAt: number): void {
    const job = this.jobs.get(id)!;
    if ((this.limit.holds.get(`${id}/${job.lease}`) ?? 0) > 0) hits.lostHolds += 1;
    const lease = job.lease!;
    Object.assign(job, { lease: null, state, dueAt });
    if (![...this.jobs.values()].some((other) => other.lease === lease)) this.leases.delete(lease);
  }

  recover(pipeline: Pipeline | null): number {
    const gone = [...this.leases].filter(
      ([, lease]) => lease.until < this.now && (pipeline === null || lease.pipeline === pipeline),
    );
    let count = 0;
    for (const [lease] of gone) {
      for (const [id, job] of this.jobs) {
        if (job.lease !== lease) continue;
        this.leave(id, "queued", job.dueAt);
        count += 1;
      }
    }
    return count;
  }

  /** It may continue although the breaker is open: one at a time. */
  letThrough(by: Handle): void {
    if (this.breaker.resumeAt === null || this.probing.some((each) => each.job === by.job && each.lease === by.lease))
      return;
    const others = this.probing.filter((each) => this.holds(each));
    assert.deepEqual(others, [], "two attempts probe at the same time");
    this.probing = [by];
    hits.probes += 1;
  }

  closeBreaker(): void {
    if (this.breaker.resumeAt !== null) hits.closed += 1;
    this.probing = [];
    for (const job of this.jobs.values()) {
      if (job.state !== "paused") continue;
      job.state = "queued";
      job.dueAt = 0;
    }
  }
}

export function round(time: number | null): number | null {
  return time === null ? null : Math.round(time * 1000) / 1000;
}

/** The world as the engine reads it from the database. */
export function describeFlow(world: FlowWorld) {
  const { limit, breaker, now } = world;
  const { free } = limit.quota(now, world.outstanding());
  const bound = (value: number) => (value === FOREVER ? 2_147_483_647 : value);
  return {
    bins: limit.settings.max === undefined ? [] : limit.counted(now).map(([bin, count]) => [round(bin), count]),
    remaining: limit.remaining === null ? null : bound(limit.remaining),
    resetAt: limit.resetAt,
    turnAt: limit.turnAt,
    blockedUntil: limit.blockedUntil,
    toldMax: limit.toldMax,
    free:
      free === FOREVER
        ? limit.remaining === FOREVER && limit.settings.learn
          ? 2_147_483_647 - world.outstanding()
          : 2_147_483_647
        : free,
    holds: [...limit.holds]
      .filter(([key]) => world.isLive(key))
      .map(([key, count]) => `${key}=${count}`)
      .sort(),
    failures: breaker.failures,
    resumeAt: breaker.resumeAt === FOREVER ? "for ever" : (breaker.resumeAt?.toString() ?? null),
    probes: breaker.probes,
    probe: breaker.probe && `${breaker.probe.job}/${breaker.probe.lease}`,
    jobs: [...world.jobs].map(([id, job]) => `${id} ${job.state}`).sort(),
  };
}

/** Invariants of what the database granted. */
export function checkFlow(world: FlowWorld): void {
  const { max, period, concurrency } = world.limit.settings;
  if (concurrency !== undefined) {
    const under = world.grants.filter(({ by }) => world.holds(by)).reduce((sum, { left }) => sum + left, 0);
    assert.ok(under <= concurrency, `${under} calls are in flight, ${concurrency} are allowed`);
  }
  if (max === undefined) return;
  const times = world.made.toSorted((one, other) => one - other);
  for (const [index, time] of times.entries()) {
    const crowd = times.slice(index).filter((each) => each < time + period!).length;
    assert.ok(crowd <= max, `${crowd} uses within ${period} ms from ${time}, ${max} are allowed`);
  }
}
