// The fenced writes of all slots of a keeper, gathered: checkpoints of the same moment share one commit, log lines and progress are sent a few
// times a second. Each checkpoint still returns only when it is durable, and a batch of lines that has to be sent again carries its number.

import { sharedCommit } from "../../db/batcher.ts";
import { appendLogs, type CheckpointCall, type Lease, type LogBatch, saveCheckpoints } from "../../db/calls/worker.ts";
import type { Database } from "../../db/database.ts";
import { type Outcome, Stopped } from "../attempt/outcome.ts";
import type { LogLine, Progress } from "../runner/port.ts";

export interface LedgerOptions {
  database: Database;
  /** The fence refused a write: the attempt was replaced. */
  onRefused(lease: Lease, verb: string): void;
  onDropped(job: string, lines: number): void;
  lingerMs?: number;
}

type Kept = "saved" | "kept" | "lost";

type Sized = LogLine & { size: number };

interface Pending {
  lease: Lease;
  lines: Sized[];
  bytes: number;
  /** The last of what came when the lines had no room left, and how many came before them. */
  tail: Sized[];
  dropped: number;
  /** Lines that were taken into statements, and how many of them are done with. */
  taken: number;
  done: number;
  batch: number;
  progress?: Progress | undefined;
  /** Lines of it are in the statement that is in flight. */
  underWay: boolean;
}

/** A job that is further ahead of the database than this loses lines, but for the last ones, and the log says so. */
const MAX_BYTES = 4 * 1024 * 1024;
/** More than a journal keeps of its own, so that its last words come through whole. */
const TAIL_LINES = 250;
/** What one statement takes of all jobs, and of one at least: its length is what the lines, and under one lease the steps, of others wait. */
const STATEMENT_BYTES = 256 * 1024;
const MIN_BYTES = 16 * 1024;
const SEND_AT_BYTES = 64 * 1024;

export class Ledger {
  readonly #options: LedgerOptions;
  readonly #share: (call: CheckpointCall) => Promise<Kept | Error>;
  readonly #jobs = new Map<string, Pending>();
  #dirty = new Set<Pending>();
  #sending: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#share = sharedCommit<CheckpointCall, Kept | Error>({
      groupOf: () => "",
      sizeOf: ({ output }) => output.length + 200,
      send: (calls) => saveEach(options.database, calls),
      most: 1000,
      mostSize: 8 * 1024 * 1024,
      lanes: 2,
    });
  }

  /** Resolves when the checkpoint, and every line the job has written before it, is durable. */
  async saveCheckpoint(call: CheckpointCall): Promise<"saved" | "kept"> {
    const lines = this.flush(call.job);
    const result = await this.#share(call);
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
      pending = { lease, lines: [], bytes: 0, tail: [], dropped: 0, taken: 0, done: 0, batch: 0, underWay: false };
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

  /** Resolves when every line of the job so far is durable; undefined when all are. */
  flush(job: string): Promise<void> | undefined {
    const pending = this.#jobs.get(job);
    if (!pending) return undefined;
    return this.#dirty.has(pending) || pending.underWay ? this.#flush(pending) : undefined;
  }

  /** The attempt is settled: nothing of it will be written any more. */
  forget(job: string): void {
    const pending = this.#jobs.get(job);
    if (!pending) return;
    this.#jobs.delete(job);
    this.#dirty.delete(pending);
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  async #flush(pending: Pending): Promise<void> {
    if (pending.underWay) await this.#send();
    // What is said from now on is not waited for: a job that talks all the time would wait for ever.
    const last = pending.taken + pending.lines.length + pending.tail.length + Math.min(pending.dropped, 1);
    const due = () => pending.done < last || pending.progress !== undefined;
    while (due() && (this.#dirty.has(pending) || pending.underWay)) await this.#send();
  }

  /** One statement at a time, so that the lines of a job stay in order. */
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
    const taken: Pending[] = [];
    const share = Math.max(STATEMENT_BYTES / this.#dirty.size, MIN_BYTES);
    for (const pending of [...this.#dirty].slice(0, MAX_BYTES / MIN_BYTES)) {
      this.#dirty.delete(pending);
      batches.push(takeBatch(pending, share, this.#options.onDropped));
      if (pending.lines.length > 0) this.#dirty.add(pending);
      taken.push(pending);
      pending.underWay = true;
    }
    await this.#append(batches);
    for (const pending of taken) {
      pending.underWay = false;
      pending.done = pending.taken;
    }
  }

  /** Postgres refuses all for one line it cannot take: then each job's are sent alone. That one's words are lost, and that is counted. */
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

/** One result that cannot be stored must not hold up the others: then each is sent alone. */
async function saveEach(database: Database, calls: CheckpointCall[]): Promise<(Kept | Error)[]> {
  try {
    return await saveCheckpoints(database, calls);
  } catch (error) {
    if (calls.length === 1) throw error;
    return (await Promise.all(calls.map((call) => saveEach(database, [call]).catch((one) => [one])))).flat();
  }
}

function takeBatch(pending: Pending, share: number, onDropped: LedgerOptions["onDropped"]): LogBatch {
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
  if (pending.tail.length > 0 && pending.bytes <= MAX_BYTES / 2) catchUp(pending, onDropped);
  const batch: LogBatch = { ...pending.lease, batch: ++pending.batch, lines };
  if (pending.progress) batch.progress = pending.progress;
  pending.progress = undefined;
  return batch;
}

/** There is room again: behind what was kept comes how much was not, and then the last lines. */
function catchUp(pending: Pending, onDropped: LedgerOptions["onDropped"]): void {
  const { tail, dropped, lease } = pending;
  if (dropped > 0) {
    const message = `… ${dropped} lines left out: they came faster than they could be stored`;
    pending.lines.push({ level: "warning", message, at: tail[0]!.at, size: 0 });
    onDropped(lease.job, dropped);
  }
  pending.lines.push(...tail);
  for (const { size } of tail) pending.bytes += size;
  pending.tail = [];
  pending.dropped = 0;
}

/** What the log says last about an attempt that did not get to say it itself. */
export function lastWords(outcome: Outcome): LogLine | undefined {
  const at = performance.now();
  if (outcome.kind === "lost")
    return {
      level: "error",
      message: outcome.failure.message ?? "The runner died",
      data: { code: outcome.failure.code },
      at,
    };
  if (outcome.kind === "released" && outcome.reason === "handed_on")
    return { level: "info", message: "The time of this attempt is over; the job goes on with the next", at };
  if (outcome.kind === "released")
    return { level: "warning", message: "The worker is shutting down; the job goes back to the line", at };
  return undefined;
}
