// Reads the feeds of all jobs that are followed in this process, into one JobBuffer per job. Hints name the jobs with changes; jobs that
// change at the same time are read in one statement. Hints can be lost, so every followed job is also polled. It starts with the first
// follower and stops shortly after the last: without followers there is no statement, no connection and no timer.
import { randomUUID } from "node:crypto";
import { type LiveRow, readFeeds, unwatch, watch } from "../db/calls/feed.ts";
import type { Database } from "../db/database.ts";
import { Listener } from "../db/listener.ts";
import { StillwakeError } from "../errors.ts";
import { type FeedLine, JobBuffer, toLine, wasCut } from "./job-buffer.ts";

export interface FeedReaderOptions {
  /** The URL for LISTEN, not a pooler's. Without one the reader only polls. */
  directUrl?: string;
  /** Poll interval with hints, and without. */
  pollWithHintsMs?: number;
  pollMs?: number;
  /** Minimum time between two reads, so that hints accumulate. */
  gatherMs?: number;
  /** How long a buffer is kept after its last follower left: an interrupted stream reconnects in a second or two. */
  lingerMs?: number;
}

export interface FeedPage {
  lines: FeedLine[];
  /** The page has every line up to this seq. */
  through: bigint;
  /** The job no longer exists. */
  gone: boolean;
}

const WATCH_SPAN = "2 minutes";
const RENEW_MS = 60_000;
/** Jobs per statement. Together with the bounds of read_feeds() a result stays below about 25 MB. */
const MAX_JOBS = 64;
const MAX_ROWS = 500;
/** Buffered bytes of lines per job, and in total unless there are thousands of jobs. */
const BUFFER_SIZE = 512 * 1024;
const TOTAL_BUFFER_SIZE = 64 * 1024 * 1024;
/** Followers that are far behind read separate pages. Small pages, because such a follower is often interrupted again. */
const MAX_CONCURRENT_PAGES = 4;
const PAGE_ROWS = 200;
/** A write that started before watch() and committed after the first read sends no hint: read once more after this time. */
const SECOND_READ_MS = 300;
/** Jobs per call of watch(), which accepts ten times as many. */
const MAX_WATCHED = 1000;

export class FeedReader {
  readonly database: Database;
  readonly #options: Required<Omit<FeedReaderOptions, "directUrl">> & { directUrl: string | undefined };
  readonly #watcher = randomUUID();
  readonly #jobs = new Map<string, JobBuffer>();
  readonly #dirty = new Set<JobBuffer>();
  readonly #pages = new Map<string, Promise<FeedPage>>();
  readonly #pageQueue: (() => void)[] = [];
  #openPages = 0;
  #listener: Listener | undefined;
  /** Serializes watch() and unwatch(): a job may be followed again right after its last follower left. */
  #watchQueue: Promise<unknown> = Promise.resolve();
  #closing: Promise<unknown> = Promise.resolve();
  #reading = false;
  #roundTimer: NodeJS.Timeout | undefined;
  #roundAt = Number.NEGATIVE_INFINITY;
  #pollTimer: NodeJS.Timeout | undefined;
  #lingerTimer: NodeJS.Timeout | undefined;
  /** How long the last read of most jobs took. */
  #costMs = 0;
  #closed = false;

  constructor(database: Database, options: FeedReaderOptions = {}) {
    this.database = database;
    const { directUrl, pollWithHintsMs = 2000, pollMs = 250, gatherMs = 25, lingerMs = 3000 } = options;
    this.#options = { directUrl, pollWithHintsMs, pollMs, gatherMs, lingerMs };
  }

  /** Followed jobs, followers, and whether hints are received. */
  get status(): { jobs: number; followers: number; hints: boolean } {
    const followers = [...this.#jobs.values()].reduce((sum, job) => sum + job.followers, 0);
    return { jobs: this.#jobs.size, followers, hints: this.#listener?.ready ?? false };
  }

  /** Every join() needs a leave(). Reads the job again: see JobBuffer.refreshed(). */
  join(id: string): JobBuffer {
    this.checkOpen();
    const key = id.toLowerCase();
    let job = this.#jobs.get(key);
    if (!job) {
      job = new JobBuffer(key);
      this.#jobs.set(key, job);
    }
    job.followers += 1;
    clearTimeout(this.#lingerTimer);
    this.#lingerTimer = undefined;
    this.#open();
    this.refresh(job);
    return job;
  }

  leave(job: JobBuffer): void {
    job.followers -= 1;
    if (job.followers > 0 || this.#closed) return;
    job.leftAt = performance.now();
    if (!job.loaded || job.gone) this.#remove([job]);
    this.#lingerTimer ??= setTimeout(() => this.#sweep(), this.#options.lingerMs);
  }

  /** Reads the job in the next round. */
  refresh(job: JobBuffer): void {
    this.#dirty.add(job);
    this.#schedule();
  }

  checkOpen(): void {
    if (this.#closed) throw closedError();
  }

  /** Reads lines that the buffer no longer has. Concurrent calls with the same arguments share the result. */
  page(id: string, after: bigint): Promise<FeedPage> {
    const key = `${id} ${after}`;
    const pending = this.#pages.get(key) ?? this.#readPage(id, after).finally(() => this.#pages.delete(key));
    this.#pages.set(key, pending);
    return pending;
  }

  /** Waiting followers throw. */
  async close(): Promise<void> {
    if (!this.#closed) this.#closeNow();
    await this.#closing;
  }

  #closeNow(): void {
    this.#closed = true;
    clearTimeout(this.#lingerTimer);
    this.#stop();
    for (const job of this.#jobs.values()) job.fail(closedError(), true);
    this.#jobs.clear();
  }

  #open(): void {
    this.#pollTimer ??= this.#poll();
    if (this.#listener || this.#options.directUrl === undefined) return;
    this.#listener = new Listener({
      url: this.#options.directUrl,
      applicationName: "stillwake feed",
      channel: `${this.database.schema}.feed`,
      pooler: "refuse",
      onHint: (payload) => this.#onHint(payload),
      // Hints sent while the listener was not connected are lost.
      onReady: () => this.#refreshAll(true),
      onLost: () => this.#refreshAll(true),
    });
    this.#listener.open();
  }

  /** Stops reading, and removes this reader's watches from the database. */
  #stop(): void {
    clearTimeout(this.#pollTimer);
    clearTimeout(this.#roundTimer);
    this.#pollTimer = this.#roundTimer = undefined;
    this.#dirty.clear();
    const listener = this.#listener;
    this.#listener = undefined;
    const watched = [...this.#jobs.values()].some((job) => job.watchedUntil > 0);
    for (const job of this.#jobs.values()) job.watchedUntil = 0;
    if (watched) this.#unwatch(null);
    this.#closing = Promise.all([this.#closing, this.#watchQueue.then(() => listener?.close())]);
  }

  /** A watch that is not removed expires. */
  #unwatch(jobs: string[] | null): void {
    void this.#enqueueWatch(() => unwatch(this.database, this.#watcher, jobs)).catch(() => {});
  }

  #enqueueWatch(call: () => Promise<void>): Promise<void> {
    const result = this.#watchQueue.then(call);
    this.#watchQueue = result.catch(() => {});
    return result;
  }

  #sweep(): void {
    this.#lingerTimer = undefined;
    const now = performance.now();
    const idle = [...this.#jobs.values()].filter((job) => job.followers === 0);
    const expired = idle.filter((job) => now - job.leftAt >= this.#options.lingerMs - 1);
    if (expired.length === this.#jobs.size) {
      this.#stop();
      this.#jobs.clear();
      return;
    }
    this.#remove(expired);
    const next = Math.min(...idle.filter((job) => !expired.includes(job)).map((job) => job.leftAt));
    if (Number.isFinite(next)) {
      this.#lingerTimer = setTimeout(() => this.#sweep(), Math.max(1, next + this.#options.lingerMs - now));
    }
  }

  #remove(jobs: JobBuffer[]): void {
    for (const job of jobs) {
      this.#jobs.delete(job.id);
      this.#dirty.delete(job);
    }
    const watched = jobs.filter((job) => job.watchedUntil > 0).map(({ id }) => id);
    if (watched.length > 0) this.#unwatch(watched);
  }

  #onHint(payload: string): void {
    if (payload === "*") this.#refreshAll(false);
    for (const id of payload.split(",")) {
      const job = this.#jobs.get(id);
      if (job && job.followers > 0) this.refresh(job);
    }
  }

  #refreshAll(watchAgain: boolean): void {
    for (const job of this.#jobs.values()) {
      if (watchAgain) job.watchedUntil = 0;
      if (job.followers > 0) this.#dirty.add(job);
    }
    if (this.#dirty.size > 0) this.#schedule();
  }

  /** Makes up for lost hints. Ended jobs are not polled; a follower at the end checks whether the job was retried. */
  #poll(): NodeJS.Timeout {
    const { pollMs, pollWithHintsMs } = this.#options;
    const intervalMs = this.#listener?.ready ? pollWithHintsMs : pollMs;
    // At most about a quarter of the time is spent on polling.
    const waitMs = Math.max(intervalMs, 4 * this.#costMs) * (0.9 + Math.random() / 5);
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

  /** Reads all changed jobs. */
  async #round(): Promise<void> {
    this.#roundTimer = undefined;
    this.#reading = true;
    const startedAt = performance.now();
    this.#roundAt = startedAt;
    const jobs = [...this.#dirty].filter((job) => job.followers > 0);
    this.#dirty.clear();
    for (const job of jobs) job.startedReads += 1;
    try {
      await this.#watch(jobs);
      for (let at = 0; at < jobs.length; at += MAX_JOBS) await this.#read(jobs.slice(at, at + MAX_JOBS));
      if (jobs.length * 2 > this.#jobs.size) this.#costMs = performance.now() - startedAt;
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

  async #read(jobs: JobBuffer[]): Promise<void> {
    const now = performance.now();
    const positions = jobs.map((job) => {
      const stepsInMs = job.stepsInMs(now);
      if (stepsInMs === 0) job.stepsAt = now;
      const stepsAfter = stepsInMs === 0 ? String(job.stepsCursor) : null;
      return { job: job.id, after: job.loaded ? String(job.through) : null, stepsAfter, stepsInMs };
    });
    const maxSize = Math.min(BUFFER_SIZE, Math.max(BUFFER_SIZE / 16, TOTAL_BUFFER_SIZE / this.#jobs.size));
    const rows = new Map<string, LiveRow[]>(jobs.map(({ id }) => [id, []]));
    for (const row of await readFeeds(this.database, positions, MAX_ROWS)) rows.get(row.job_id)?.push(row);
    for (const [index, job] of jobs.entries()) {
      const first = !job.loaded;
      const { stepsInMs } = positions[index]!;
      job.apply(rows.get(job.id)!, { maxRows: MAX_ROWS, maxSize, withSteps: stepsInMs === 0 });
      if (job.followers === 0) continue;
      if (!job.gone && !job.complete) this.#dirty.add(job);
      else if (first && !job.isOver) this.#refreshIn(SECOND_READ_MS, job);
      else if (stepsInMs > 0 && !job.isOver && !job.stepsPlanned) {
        job.stepsPlanned = true;
        this.#refreshIn(stepsInMs, job);
      }
    }
  }

  #refreshIn(waitMs: number, job: JobBuffer): void {
    setTimeout(() => {
      job.stepsPlanned = false;
      if (job.followers > 0) this.refresh(job);
    }, waitMs).unref();
  }

  /** Called before the jobs are read: writes after it send hints. Pointless without a connected listener. */
  async #watch(jobs: JobBuffer[]): Promise<void> {
    if (!this.#listener?.ready) return;
    const now = performance.now();
    const due = jobs.filter((job) => job.watchedUntil < now + RENEW_MS && !job.isOver);
    for (let at = 0; at < due.length; at += MAX_WATCHED) {
      const batch = due.slice(at, at + MAX_WATCHED);
      for (const job of batch) job.watchedUntil = now + 2 * RENEW_MS;
      try {
        const ids = batch.map(({ id }) => id);
        await this.#enqueueWatch(() => watch(this.database, this.#watcher, ids, WATCH_SPAN));
      } catch {
        // Polling finds the changes; the next round calls watch() again.
        for (const job of batch) job.watchedUntil = 0;
      }
    }
  }

  async #readPage(id: string, after: bigint): Promise<FeedPage> {
    if (this.#openPages >= MAX_CONCURRENT_PAGES) await new Promise<void>((start) => this.#pageQueue.push(start));
    else this.#openPages += 1;
    try {
      const rows = await readFeeds(
        this.database,
        [{ job: id, after: String(after), stepsAfter: null }],
        PAGE_ROWS,
        false,
      );
      const feed = rows.filter((row) => row.what === "feed");
      const head = rows.find((row) => row.what === "state");
      const last = head ? BigInt(head.seq) : after;
      const through = wasCut(feed, PAGE_ROWS) ? BigInt(feed.at(-1)!.seq) : last;
      return { lines: feed.map(toLine), through, gone: !head };
    } finally {
      const next = this.#pageQueue.shift();
      if (next) next();
      else this.#openPages -= 1;
    }
  }
}

function closedError(): StillwakeError {
  return new StillwakeError("CLOSED", "The client is closed", { remedy: "Follow with another client" });
}
