// The one reader of a process for all the jobs that somebody in it follows. Hints say which jobs have news; those of one moment are read together, in
// one statement, and shared by all who follow. Hints get lost, so every followed job is also looked at now and then. It begins with the first
// follower and is over a moment after the last: with nobody following there is no statement, no connection and no timer.
import { randomUUID } from "node:crypto";
import { type LiveRow, readFeeds, unwatch, watch } from "../db/calls/feed.ts";
import type { Database } from "../db/database.ts";
import { FeedLine } from "../db/feed-listener.ts";
import { StillwakeError } from "../errors.ts";
import { FollowedJob, type Line, toLine, wasCut } from "./job-buffer.ts";

export interface FeedReaderOptions {
  /** The URL over which hints come: not that of a pooler. Without one the reader polls. */
  directUrl?: string;
  /** The floors under hints, and without them. */
  pollWithHintsMs?: number;
  pollMs?: number;
  /** Between two reads, so that hints gather. */
  gatherMs?: number;
  /** How long it stays ready after the last follower has left, most often to come back: a stream that was cut is resumed in a second or two. */
  lingerMs?: number;
}

export interface FeedPage {
  lines: Line[];
  /** The page has every line up to this one. */
  through: bigint;
  /** There is no such job any more. */
  gone: boolean;
}

const WATCH_SPAN = "2 minutes";
const RENEW_MS = 60_000;
/** Jobs per statement. With the bounds of read_feeds() an answer stays below some 25 MB, whatever they wrote. */
const MAX_JOBS = 64;
const MAX_ROWS = 500;
/** What is held of the lines of one job, and of all together unless there are thousands of jobs. */
const RING_SIZE = 512 * 1024;
const ALL_RINGS_SIZE = 64 * 1024 * 1024;
/** Followers that lie far behind read pages of their own, so many at a time. Small ones: who was cut once is often cut again. */
const PAGES_AT_ONCE = 4;
const PAGE_ROWS = 200;
/** A write that began before its job was watched, and was committed after the first look, sends no hint. */
const SECOND_LOOK_MS = 300;
/** Jobs that are said to be watched in one statement; watch() refuses more than ten times as many. */
const WATCHED_AT_ONCE = 1000;

export class FeedReader {
  readonly database: Database;
  readonly #options: Required<Omit<FeedReaderOptions, "directUrl">> & { directUrl: string | undefined };
  readonly #watcher = randomUUID();
  readonly #jobs = new Map<string, FollowedJob>();
  readonly #dirty = new Set<FollowedJob>();
  readonly #pages = new Map<string, Promise<FeedPage>>();
  readonly #pageTurns: (() => void)[] = [];
  #pagesOpen = 0;
  #line: FeedLine | undefined;
  /** Watching and its end go out one after the other: a job that is left may be followed again a moment later. */
  #saying: Promise<unknown> = Promise.resolve();
  #closing: Promise<unknown> = Promise.resolve();
  #reading = false;
  #roundTimer: NodeJS.Timeout | undefined;
  #roundAt = Number.NEGATIVE_INFINITY;
  #pollTimer: NodeJS.Timeout | undefined;
  #lingerTimer: NodeJS.Timeout | undefined;
  /** How long the last look at everything took. */
  #costMs = 0;
  #closed = false;

  constructor(database: Database, options: FeedReaderOptions = {}) {
    this.database = database;
    const { directUrl, pollWithHintsMs = 2000, pollMs = 250, gatherMs = 25, lingerMs = 3000 } = options;
    this.#options = { directUrl, pollWithHintsMs, pollMs, gatherMs, lingerMs };
  }

  /** How many jobs are followed, and whether hints come in. */
  get status(): { jobs: number; followers: number; hints: boolean } {
    const followers = [...this.#jobs.values()].reduce((sum, job) => sum + job.followers, 0);
    return { jobs: this.#jobs.size, followers, hints: this.#line?.ready ?? false };
  }

  /** Every join() is followed by a leave(). The job is looked at once more: see FollowedJob.settled(). */
  join(id: string): FollowedJob {
    this.checkOpen();
    const key = id.toLowerCase();
    let job = this.#jobs.get(key);
    if (!job) {
      job = new FollowedJob(key);
      this.#jobs.set(key, job);
    }
    job.followers += 1;
    clearTimeout(this.#lingerTimer);
    this.#lingerTimer = undefined;
    this.#open();
    this.look(job);
    return job;
  }

  leave(job: FollowedJob): void {
    job.followers -= 1;
    if (job.followers > 0 || this.#closed) return;
    job.leftAt = performance.now();
    if (!job.loaded || job.gone) this.#forget([job]);
    this.#lingerTimer ??= setTimeout(() => this.#sweep(), this.#options.lingerMs);
  }

  /** There may be news about this job. */
  look(job: FollowedJob): void {
    this.#dirty.add(job);
    this.#schedule();
  }

  checkOpen(): void {
    if (this.#closed) throw closedError();
  }

  /** What follows a place in the feed that the ring no longer holds. Those who ask for the same at one moment share the answer. */
  page(id: string, after: bigint): Promise<FeedPage> {
    const key = `${id} ${after}`;
    const pending = this.#pages.get(key) ?? this.#readPage(id, after).finally(() => this.#pages.delete(key));
    this.#pages.set(key, pending);
    return pending;
  }

  /** Followers that wait are told, and throw. */
  async close(): Promise<void> {
    if (!this.#closed) this.#end();
    await this.#closing;
  }

  #end(): void {
    this.#closed = true;
    clearTimeout(this.#lingerTimer);
    this.#shut();
    for (const job of this.#jobs.values()) job.fail(closedError(), true);
    this.#jobs.clear();
  }

  #open(): void {
    this.#pollTimer ??= this.#poll();
    if (this.#line || this.#options.directUrl === undefined) return;
    this.#line = new FeedLine({
      url: this.#options.directUrl,
      schema: this.database.schema,
      onHint: (payload) => this.#hear(payload),
      // What was said before nobody has heard.
      onReady: () => this.#lookAtAll(true),
      onLost: () => this.#lookAtAll(true),
    });
  }

  /** Nobody follows: nothing of this reader is left in the database. */
  #shut(): void {
    clearTimeout(this.#pollTimer);
    clearTimeout(this.#roundTimer);
    this.#pollTimer = this.#roundTimer = undefined;
    this.#dirty.clear();
    const line = this.#line;
    this.#line = undefined;
    const watched = [...this.#jobs.values()].some((job) => job.watchedUntil > 0);
    for (const job of this.#jobs.values()) job.watchedUntil = 0;
    if (watched) this.#unwatch(null);
    this.#closing = Promise.all([this.#closing, this.#saying.then(() => line?.close())]);
  }

  /** Whatever is not taken back runs out by itself. */
  #unwatch(jobs: string[] | null): void {
    void this.#say(() => unwatch(this.database, this.#watcher, jobs)).catch(() => {});
  }

  #say(what: () => Promise<void>): Promise<void> {
    const said = this.#saying.then(what);
    this.#saying = said.catch(() => {});
    return said;
  }

  #sweep(): void {
    this.#lingerTimer = undefined;
    const now = performance.now();
    const idle = [...this.#jobs.values()].filter((job) => job.followers === 0);
    const over = idle.filter((job) => now - job.leftAt >= this.#options.lingerMs - 1);
    if (over.length === this.#jobs.size) {
      this.#shut();
      this.#jobs.clear();
      return;
    }
    this.#forget(over);
    const next = Math.min(...idle.filter((job) => !over.includes(job)).map((job) => job.leftAt));
    if (Number.isFinite(next)) {
      this.#lingerTimer = setTimeout(() => this.#sweep(), Math.max(1, next + this.#options.lingerMs - now));
    }
  }

  #forget(jobs: FollowedJob[]): void {
    for (const job of jobs) {
      this.#jobs.delete(job.id);
      this.#dirty.delete(job);
    }
    const watched = jobs.filter((job) => job.watchedUntil > 0).map(({ id }) => id);
    if (watched.length > 0) this.#unwatch(watched);
  }

  #hear(payload: string): void {
    if (payload === "*") this.#lookAtAll(false);
    for (const id of payload.split(",")) {
      const job = this.#jobs.get(id);
      if (job && job.followers > 0) this.look(job);
    }
  }

  #lookAtAll(watchAgain: boolean): void {
    for (const job of this.#jobs.values()) {
      if (watchAgain) job.watchedUntil = 0;
      if (job.followers > 0) this.#dirty.add(job);
    }
    if (this.#dirty.size > 0) this.#schedule();
  }

  /** Hints are lost with connections; this floor is the truth. What has ended has no news, unless somebody retries it. */
  #poll(): NodeJS.Timeout {
    const { pollMs, pollWithHintsMs } = this.#options;
    const floorMs = this.#line?.ready ? pollWithHintsMs : pollMs;
    // No more than a quarter of the time goes into looking.
    const waitMs = Math.max(floorMs, 4 * this.#costMs) * (0.9 + Math.random() / 5);
    return setTimeout(() => {
      for (const job of this.#jobs.values()) if (job.followers > 0 && !job.isOver) this.#dirty.add(job);
      if (this.#dirty.size > 0) this.#schedule();
      this.#pollTimer = this.#poll();
    }, waitMs);
  }

  #schedule(): void {
    if (this.#reading || this.#roundTimer || this.#closed) return;
    const waitMs = Math.max(0, this.#roundAt + this.#options.gatherMs - performance.now());
    this.#roundTimer = setTimeout(() => void this.#round(), waitMs);
  }

  /** Everything that has news, read together. */
  async #round(): Promise<void> {
    this.#roundTimer = undefined;
    this.#reading = true;
    const began = performance.now();
    this.#roundAt = began;
    const jobs = [...this.#dirty].filter((job) => job.followers > 0);
    this.#dirty.clear();
    for (const job of jobs) job.begun += 1;
    try {
      await this.#watch(jobs);
      for (let at = 0; at < jobs.length; at += MAX_JOBS) await this.#read(jobs.slice(at, at + MAX_JOBS));
      if (jobs.length * 2 > this.#jobs.size) this.#costMs = performance.now() - began;
    } catch (error) {
      for (const job of jobs) {
        job.fail(error);
        if (job.followers > 0) this.#dirty.add(job);
      }
      this.#roundAt = performance.now() + 1000;
    } finally {
      this.#reading = false;
      if (this.#dirty.size > 0) this.#schedule();
    }
  }

  async #read(jobs: FollowedJob[]): Promise<void> {
    const now = performance.now();
    const asked = jobs.map((job) => {
      const stepsInMs = job.stepsInMs(now);
      if (stepsInMs === 0) job.stepsAt = now;
      const mark = stepsInMs === 0 ? String(job.mark) : null;
      return { job: job.id, after: job.loaded ? String(job.through) : null, mark, stepsInMs };
    });
    const room = Math.min(RING_SIZE, Math.max(RING_SIZE / 16, ALL_RINGS_SIZE / this.#jobs.size));
    const rows = new Map<string, LiveRow[]>(jobs.map(({ id }) => [id, []]));
    for (const row of await readFeeds(this.database, asked, MAX_ROWS)) rows.get(row.job_id)?.push(row);
    for (const [at, job] of jobs.entries()) {
      const first = !job.loaded;
      const { stepsInMs } = asked[at]!;
      job.apply(rows.get(job.id)!, { most: MAX_ROWS, room, withSteps: stepsInMs === 0 });
      if (job.followers === 0) continue;
      if (!job.gone && !job.complete) this.#dirty.add(job);
      else if (first && !job.isOver) this.#lookIn(SECOND_LOOK_MS, job);
      else if (stepsInMs > 0 && !job.isOver && !job.stepsPlanned) {
        job.stepsPlanned = true;
        this.#lookIn(stepsInMs, job);
      }
    }
  }

  #lookIn(waitMs: number, job: FollowedJob): void {
    setTimeout(() => {
      job.stepsPlanned = false;
      if (job.followers > 0) this.look(job);
    }, waitMs).unref();
  }

  /** Before they are read: what is written from then on is told. Without a line nobody would hear of it. */
  async #watch(jobs: FollowedJob[]): Promise<void> {
    if (!this.#line?.ready) return;
    const now = performance.now();
    const due = jobs.filter((job) => job.watchedUntil < now + RENEW_MS && !job.isOver);
    for (let at = 0; at < due.length; at += WATCHED_AT_ONCE) {
      const some = due.slice(at, at + WATCHED_AT_ONCE);
      for (const job of some) job.watchedUntil = now + 2 * RENEW_MS;
      try {
        const ids = some.map(({ id }) => id);
        await this.#say(() => watch(this.database, this.#watcher, ids, WATCH_SPAN));
      } catch {
        // Without hints the floor finds what is new; the next round tries again.
        for (const job of some) job.watchedUntil = 0;
      }
    }
  }

  async #readPage(id: string, after: bigint): Promise<FeedPage> {
    if (this.#pagesOpen >= PAGES_AT_ONCE) await new Promise<void>((turn) => this.#pageTurns.push(turn));
    else this.#pagesOpen += 1;
    try {
      const rows = await readFeeds(this.database, [{ job: id, after: String(after), mark: null }], PAGE_ROWS, false);
      const feed = rows.filter((row) => row.what === "feed");
      const head = rows.find((row) => row.what === "state");
      const last = head ? BigInt(head.seq) : after;
      const through = wasCut(feed, PAGE_ROWS) ? BigInt(feed.at(-1)!.seq) : last;
      return { lines: feed.map(toLine), through, gone: !head };
    } finally {
      // The turn goes to the next who waits, or is free.
      const next = this.#pageTurns.shift();
      if (next) next();
      else this.#pagesOpen -= 1;
    }
  }
}

function closedError(): StillwakeError {
  return new StillwakeError("CLOSED", "This Stillwake is closed", { remedy: "Follow again, with another" });
}
