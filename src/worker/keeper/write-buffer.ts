// Batches the fenced writes of all slots of a keeper: concurrent checkpoints share a commit, log lines and progress are
// sent a few times a second. saveCheckpoint() resolves only when the checkpoint is durable. A batch of log lines
// carries a number, so that a batch that is sent again is stored once.

import { createBatcher } from "../../db/batcher.ts";
import { appendLogs, type CheckpointCall, type Lease, type LogBatch, saveCheckpoints } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { formatPlural } from "../../text/format.ts";
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
  /** The statement in flight contains lines of this job. */
  inFlight: boolean;
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
const SEND_AT_BYTES = 64 * 1024;

export class WriteBuffer {
  readonly #options: WriteBufferOptions;
  readonly #save: (call: CheckpointCall) => Promise<SaveResult | Error>;
  readonly #jobs = new Map<string, PendingLines>();
  #dirty = new Set<PendingLines>();
  #sending: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: WriteBufferOptions) {
    this.#options = options;
    this.#save = createBatcher<CheckpointCall, SaveResult | Error>({
      groupOf: () => "",
      sizeOf: ({ output }) => output.length + 200,
      send: (calls) => saveEach(options.database, calls),
      maxCalls: 1000,
      maxSize: 8 * 1024 * 1024,
      lanes: 2,
    });
  }

  /** Resolves when the checkpoint and every earlier log line of the job are durable. */
  async saveCheckpoint(call: CheckpointCall): Promise<"saved" | "kept"> {
    const lines = this.flush(call.job);
    const result = await this.#save(call);
    if (lines) await lines;
    if (result instanceof Error) throw result;
    if (result === "lost") {
      this.#options.onRefused(call, "save_checkpoints");
      throw new Stopped({ kind: "replaced" });
    }
    return result;
  }

  log(lease: Lease, lines: LogLine[], progress?: Progress): void {
    let pending = this.#jobs.get(lease.job);
    if (!pending || pending.lease.lease !== lease.lease) {
      pending = { lease, lines: [], bytes: 0, tail: [], dropped: 0, taken: 0, done: 0, batch: 0, inFlight: false };
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
    if (pending.bytes >= SEND_AT_BYTES) void this.#send();
    else this.#timer ??= setTimeout(() => void this.#send(), this.#options.lingerMs ?? 100);
  }

  /** Resolves when every log line of the job so far is durable; undefined when all are. */
  flush(job: string): Promise<void> | undefined {
    const pending = this.#jobs.get(job);
    if (!pending) return undefined;
    return this.#dirty.has(pending) || pending.inFlight ? this.#flush(pending) : undefined;
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

  async #flush(pending: PendingLines): Promise<void> {
    if (pending.inFlight) await this.#send();
    // Later lines are not awaited: a job that logs continuously would wait forever.
    const last = pending.taken + pending.lines.length + pending.tail.length + Math.min(pending.dropped, 1);
    const due = () => pending.done < last || pending.progress !== undefined;
    while (due() && (this.#dirty.has(pending) || pending.inFlight)) await this.#send();
  }

  /** One statement at a time, so that the lines of a job keep their order. */
  #send(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
      const { lingerMs = 100 } = this.#options;
      const behind = [...this.#dirty].some(({ bytes }) => bytes >= SEND_AT_BYTES);
      if (this.#dirty.size > 0) this.#timer ??= setTimeout(() => void this.#send(), behind ? 0 : lingerMs);
    });
    return this.#sending;
  }

  async #sendAll(): Promise<void> {
    const batches: LogBatch[] = [];
    const taken: PendingLines[] = [];
    const share = Math.max(STATEMENT_BYTES / this.#dirty.size, MIN_BYTES);
    for (const pending of [...this.#dirty].slice(0, MAX_BYTES / MIN_BYTES)) {
      this.#dirty.delete(pending);
      batches.push(takeBatch(pending, share, this.#options.onDropped));
      if (pending.lines.length > 0) this.#dirty.add(pending);
      taken.push(pending);
      pending.inFlight = true;
    }
    await this.#append(batches);
    for (const pending of taken) {
      pending.inFlight = false;
      pending.done = pending.taken;
    }
  }

  /**
   * Postgres rejects a whole statement for one invalid line: each job's lines are then sent alone, and the rejected
   * ones are dropped and counted.
   */
  async #append(batches: LogBatch[]): Promise<void> {
    const { database, onRefused, onDropped } = this.#options;
    try {
      const refused = batches.length > 0 ? await appendLogs(database, batches) : [];
      for (const batch of batches) if (refused.includes(batch.job)) onRefused(batch, "append_logs");
    } catch {
      if (batches.length > 1) for (const batch of batches) await this.#append([batch]);
      else onDropped(batches[0]!.job, batches[0]!.lines.length);
    }
  }
}

/** A checkpoint that Postgres rejects must not fail the others: each is then sent alone. */
async function saveEach(database: Database, calls: CheckpointCall[]): Promise<(SaveResult | Error)[]> {
  try {
    return await saveCheckpoints(database, calls);
  } catch (error) {
    if (calls.length === 1) throw error;
    return (
      await Promise.all(calls.map((call) => saveEach(database, [call]).catch((rejection) => [rejection])))
    ).flat();
  }
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
