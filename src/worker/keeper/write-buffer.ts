// Batches the fenced writes of all slots of a keeper: concurrent checkpoints share a commit, log lines and progress are
// sent a few times a second. saveCheckpoint() resolves only when the checkpoint is durable. Lines that were written
// before a checkpoint are stored with it or before it: a step with a checkpoint is not run again, and would not write
// them again. A batch of log lines carries a number, so that a batch that is sent again is stored once; a later one
// would hide an earlier one, so only one batch of a job is in flight.

import { createBatcher } from "../../db/batcher.ts";
import { type PositionCall, savePosition } from "../../db/calls/long-work.ts";
import { appendLogs, type CheckpointCall, type Lease, type LogBatch, saveCheckpoints } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { isLocked, LeaseLost } from "../../errors.ts";
import { formatPlural } from "../../text/format.ts";
import { withTimeout } from "../../timeout.ts";
import { type Outcome, Stopped } from "../attempt/outcome.ts";
import type { LogLine, Progress } from "../runner/port.ts";

export interface WriteBufferOptions {
  database: Database;
  /** The fence refused a write: the attempt was replaced. */
  onRefused(lease: Lease, verb: string): void;
  onDropped(job: string, lines: number): void;
  lingerMs?: number;
}

type SaveResult = "saved" | "kept" | "lost";
/** `later`: the job is locked by a transaction that stays open, and is waited for apart from the others. */
type BatchResult = SaveResult | Error | { later: Promise<SaveResult> };

type Sized = LogLine & { size: number };

interface PendingLines {
  lease: Lease;
  lines: Sized[];
  bytes: number;
  /** The most recent lines since the buffer was full, and the number of lines dropped before them. */
  tail: Sized[];
  dropped: number;
  /** The number of lines put into statements, and of those whose statement has finished. */
  taken: number;
  done: number;
  batch: number;
  progress?: Progress | undefined;
  /** While a statement with lines of this job is in flight: resolves when it has finished. */
  inFlight: Promise<void> | undefined;
}

/** A job with more unsent bytes than this loses lines, except the most recent ones; its log records how many. */
const MAX_BYTES = 4 * 1024 * 1024;
/** More than the tail that a log writer keeps, so that its last lines are not dropped here. */
const TAIL_LINES = 250;
/**
 * The size of one statement over all jobs, and the minimum per job. Log lines of other jobs, and steps under the same
 * lease, wait while the statement runs.
 */
const STATEMENT_BYTES = 256 * 1024;
const MIN_BYTES = 16 * 1024;
/** Lines are sent at once when a job has this many bytes of them; the statement of a checkpoint takes no more. */
const SEND_AT_BYTES = 64 * 1024;
/** Lines that are in flight for longer probably wait for a locked job. */
const MAX_FLIGHT_MS = 100;

export class WriteBuffer {
  readonly #options: WriteBufferOptions;
  readonly #save: (call: CheckpointCall) => Promise<BatchResult>;
  readonly #jobs = new Map<string, PendingLines>();
  #dirty = new Set<PendingLines>();
  #sending: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: WriteBufferOptions) {
    this.#options = options;
    this.#save = createBatcher<CheckpointCall, BatchResult>({
      groupOf: () => "",
      sizeOf: ({ output }) => output.length + 200,
      send: (calls) => this.#saveAll(calls),
      maxCalls: 1000,
      maxSize: 8 * 1024 * 1024,
      lanes: 2,
    });
  }

  /** Resolves when the checkpoint and every earlier log line of the job are durable. */
  async saveCheckpoint(call: CheckpointCall): Promise<"saved" | "kept"> {
    const pending = this.#unstored(call.job);
    if (pending) await this.#storeUpTo(pending, SEND_AT_BYTES);
    const saved = await this.#save(call);
    if (saved instanceof Error) throw saved;
    const result = typeof saved === "object" ? await saved.later : saved;
    if (result === "lost") {
      this.#options.onRefused(call, "save_checkpoints");
      throw new Stopped({ kind: "replaced" });
    }
    return result;
  }

  async savePosition(lease: Lease, call: PositionCall): Promise<"saved" | "kept"> {
    const pending = this.#unstored(lease.job);
    if (pending) await this.#storeUpTo(pending, SEND_AT_BYTES);
    return this.#withLines([lease.job], (lines) => savePosition(this.#options.database, lease, call, lines[0]));
  }

  log(lease: Lease, lines: LogLine[], progress?: Progress): void {
    let pending = this.#jobs.get(lease.job);
    if (!pending || pending.lease.lease !== lease.lease) {
      pending = { lease, lines: [], bytes: 0, tail: [], dropped: 0, taken: 0, done: 0, batch: 0, inFlight: undefined };
      this.#jobs.set(lease.job, pending);
    }
    for (const line of lines) {
      const size = line.message.length + 100 + (line.data === undefined ? 0 : (JSON.stringify(line.data)?.length ?? 0));
      const sized = Object.assign(line, { size });
      if (pending.tail.length === 0 && pending.bytes + size <= MAX_BYTES) {
        pending.lines.push(sized);
        pending.bytes += size;
      } else if (pending.tail.push(sized) > TAIL_LINES) {
        pending.tail.shift();
        pending.dropped += 1;
      }
    }
    if (progress) pending.progress = progress;
    this.#dirty.add(pending);
    if (pending.inFlight) return;
    if (pending.bytes >= SEND_AT_BYTES) void this.#send();
    else this.#timer ??= setTimeout(() => void this.#send(), this.#options.lingerMs ?? 100);
  }

  /** Resolves when every log line of the job so far is durable; undefined when all are. */
  flush(job: string): Promise<void> | undefined {
    const pending = this.#unstored(job);
    return pending && this.#storeUpTo(pending, 0);
  }

  /** The attempt is settled: nothing more of it will be written. */
  forget(job: string): void {
    const pending = this.#jobs.get(job);
    if (!pending) return;
    this.#jobs.delete(job);
    this.#dirty.delete(pending);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #unstored(job: string): PendingLines | undefined {
    const pending = this.#jobs.get(job);
    return pending && (this.#dirty.has(pending) || pending.inFlight) ? pending : undefined;
  }

  /** Stores the lines so far; the last ones are left, none of them in flight, if they have fewer than `rest` bytes. */
  async #storeUpTo(pending: PendingLines, rest: number): Promise<void> {
    if (pending.inFlight) await pending.inFlight;
    // Later lines are not awaited: a job that logs continuously would wait forever.
    const last = pending.taken + pending.lines.length + pending.tail.length + Math.min(pending.dropped, 1);
    const isStored = () => pending.done >= last && pending.progress === undefined;
    while (!isStored() && (this.#dirty.has(pending) || pending.inFlight)) {
      if (!pending.inFlight && pending.tail.length === 0 && pending.bytes < rest) return;
      await (pending.inFlight ?? this.#send());
    }
  }

  /** A checkpoint that Postgres rejects must not fail the others: each is then sent alone. */
  async #saveAll(calls: CheckpointCall[]): Promise<BatchResult[]> {
    const { database } = this.#options;
    const jobs = [...new Set(calls.map(({ job }) => job))];
    const saveLater = async (call: CheckpointCall) =>
      (await this.#withLines([call.job], (lines) => saveCheckpoints(database, [call], lines)))[0]!;
    const held = await this.#stillInFlight(jobs);
    if (held.size > 0) {
      const others = calls.filter(({ job }) => !held.has(job));
      const results = others.length > 0 ? await this.#saveAll(others) : [];
      return calls.map((call) => (held.has(call.job) ? { later: saveLater(call) } : results.shift()!));
    }
    try {
      return await this.#withLines(jobs, (lines) => saveCheckpoints(database, calls, lines), "apart");
    } catch (error) {
      // Not awaited here: other batches need this one's turn.
      if (isLocked(error)) return calls.map((call) => ({ later: saveLater(call) }));
      if (calls.length === 1) throw error;
      const alone = calls.map((call) => saveCheckpoints(database, [call]).catch((rejection) => [rejection]));
      return (await Promise.all(alone)).flat();
    }
  }

  async #stillInFlight(jobs: string[]): Promise<Set<string>> {
    const flights = jobs.flatMap((job) => this.#jobs.get(job)?.inFlight ?? []);
    if (flights.length === 0) return new Set();
    await withTimeout(Promise.all(flights), MAX_FLIGHT_MS, undefined);
    return new Set(jobs.filter((job) => this.#jobs.get(job)?.inFlight));
  }

  /**
   * Makes a write that must not exist without the lines that these jobs have written before. It receives those that are
   * not stored yet, for its own transaction. A job may be locked by a transaction that stays open: that is waited for, or
   * with "apart" the lines of each job are sent apart, and the error is thrown.
   */
  async #withLines<Result>(
    jobs: string[],
    write: (lines: LogBatch[]) => Promise<Result>,
    whenLocked: "wait" | "apart" = "wait",
  ): Promise<Result> {
    const pending = new Set(jobs.flatMap((job) => this.#unstored(job) ?? []));
    if (pending.size === 0) return write([]);
    // Another statement may take lines of one job while this one waits for those of another.
    for (let busy = findInFlight(pending); busy; busy = findInFlight(pending)) await busy.inFlight;
    const ready = [...pending].filter((one) => this.#dirty.has(one));
    const finish = ready.map(markInFlight);
    const lines = ready.map((one) => this.#take(one, SEND_AT_BYTES));
    try {
      return await write(lines);
    } catch (error) {
      if (error instanceof LeaseLost || lines.length === 0) throw error;
      if (isLocked(error) && whenLocked === "apart") {
        for (const [index, done] of finish.splice(0).entries()) void this.#appendLater(lines[index]!, done);
        throw error;
      }
      // Postgres has rejected the lines or the rest of the statement, or the job is locked.
      await this.#append(lines, true);
      return await write([]);
    } finally {
      for (const done of finish) done();
      this.#schedule();
    }
  }

  #take(pending: PendingLines, share: number): LogBatch {
    this.#dirty.delete(pending);
    const batch = takeBatch(pending, share, this.#options.onDropped);
    if (pending.lines.length > 0) this.#dirty.add(pending);
    return batch;
  }

  /** One statement at a time, so that the lines of a job keep their order. */
  #send(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
      this.#schedule();
    });
    return this.#sending;
  }

  /** Lines of a job whose statement is in flight are scheduled when it has finished. */
  #schedule(): void {
    if (this.#timer || this.#sending || this.#dirty.size === 0) return;
    const ready = [...this.#dirty].filter(({ inFlight }) => !inFlight);
    if (ready.length === 0) return;
    const behind = ready.some(({ bytes }) => bytes >= SEND_AT_BYTES);
    this.#timer = setTimeout(() => void this.#send(), behind ? 0 : (this.#options.lingerMs ?? 100));
  }

  async #sendAll(): Promise<void> {
    const ready = [...this.#dirty].filter(({ inFlight }) => !inFlight).slice(0, MAX_BYTES / MIN_BYTES);
    const share = Math.max(STATEMENT_BYTES / ready.length, MIN_BYTES);
    const finish = ready.map(markInFlight);
    const batches = ready.map((pending) => this.#take(pending, share));
    const isAnyLocked = await this.#append(batches);
    for (const [index, done] of finish.entries()) {
      if (isAnyLocked) void this.#appendLater(batches[index]!, done);
      else done();
    }
  }

  /** Waits for one job apart from the others. */
  async #appendLater(batch: LogBatch, done: () => void): Promise<void> {
    await this.#append([batch], true);
    done();
    this.#schedule();
  }

  /**
   * Postgres rejects a whole statement for one invalid line: each job's lines are then sent alone, and the rejected
   * ones are dropped and counted. True when nothing was written because a job is locked.
   */
  async #append(batches: LogBatch[], untilDone = false): Promise<boolean> {
    const { database, onRefused, onDropped } = this.#options;
    try {
      const refused = batches.length > 0 ? await appendLogs(database, batches, untilDone) : [];
      for (const batch of batches) if (refused.includes(batch.job)) onRefused(batch, "append_logs");
    } catch (error) {
      if (isLocked(error) && !untilDone) return true;
      if (batches.length > 1) for (const batch of batches) await this.#append([batch], true);
      else onDropped(batches[0]!.job, batches[0]!.lines.length);
    }
    return false;
  }
}

function findInFlight(jobs: Iterable<PendingLines>): PendingLines | undefined {
  for (const pending of jobs) if (pending.inFlight) return pending;
  return undefined;
}

/** Returns the function to call when the statement has finished. */
function markInFlight(pending: PendingLines): () => void {
  let resolve = () => {};
  pending.inFlight = new Promise((finished) => {
    resolve = finished;
  });
  return () => {
    pending.inFlight = undefined;
    pending.done = pending.taken;
    resolve();
  };
}

function takeBatch(pending: PendingLines, share: number, onDropped: WriteBufferOptions["onDropped"]): LogBatch {
  const now = performance.now();
  let bytes = 0;
  let count = 0;
  while (count < pending.lines.length && bytes < share) bytes += pending.lines[count++]!.size;
  const lines: LogBatch["lines"] = pending.lines.splice(0, count).map(({ at, size, ...line }) => ({
    ...line,
    ago_ms: Math.max(0, Math.round(now - at)),
  }));
  pending.bytes -= bytes;
  pending.taken += count;
  if (pending.tail.length > 0 && pending.bytes <= MAX_BYTES / 2) appendTail(pending, onDropped);
  const batch: LogBatch = { ...pending.lease, batch: ++pending.batch, lines };
  if (pending.progress) batch.progress = pending.progress;
  pending.progress = undefined;
  return batch;
}

/** The buffer has room again: adds a line with the number of dropped lines, then the most recent lines. */
function appendTail(pending: PendingLines, onDropped: WriteBufferOptions["onDropped"]): void {
  const { tail, dropped, lease } = pending;
  if (dropped > 0) {
    const message = `… ${formatPlural(dropped, "line")} omitted: written faster than they could be stored`;
    pending.lines.push({ level: "warning", message, at: tail[0]!.at, size: 0 });
    onDropped(lease.job, dropped);
  }
  pending.lines.push(...tail);
  for (const { size } of tail) pending.bytes += size;
  pending.tail = [];
  pending.dropped = 0;
}

/** The last log line of an attempt that could not write it itself. */
export function outcomeLogLine(outcome: Outcome): LogLine | undefined {
  const at = performance.now();
  if (outcome.kind === "lost")
    return {
      level: "error",
      message: outcome.failure.message ?? "The runner died",
      data: { code: outcome.failure.code },
      at,
    };
  if (outcome.kind === "released" && outcome.reason === "released:time")
    return {
      level: "info",
      message: "This attempt has reached its time limit; the job continues with the next attempt",
      at,
    };
  if (outcome.kind === "released")
    return { level: "warning", message: "The worker is shutting down; the job is queued again", at };
  return undefined;
}
