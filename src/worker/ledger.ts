// The fenced writes of all slots of a keeper, gathered: checkpoints of the same moment share one commit, log lines and progress are sent a few
// times a second. Each checkpoint still returns only when it is durable, and a batch of lines that has to be sent again carries its number.
import type { Database } from "../database.ts";
import { sharedCommit } from "../shared-commit.ts";
import { appendLogs, type CheckpointCall, type Lease, type LogBatch, saveCheckpoints } from "../worker-verbs.ts";
import { type Outcome, Stopped } from "./ends.ts";
import type { LogLine, Progress } from "./port.ts";

export interface LedgerOptions {
  database: Database;
  /** The fence refused a write: the attempt was replaced. */
  onRefused(job: string, verb: string): void;
  onDropped(job: string, lines: number): void;
  lingerMs?: number;
}

interface Pending {
  lease: Lease;
  lines: LogLine[];
  bytes: number;
  batch: number;
  progress?: Progress | undefined;
  dropped: number;
  /** Lines of it are in the statement that is in flight. */
  underWay: boolean;
}

/** A statement takes no more lines than these bytes; a job that is further ahead of the database loses lines, and the log says so. */
const MOST_BYTES = 4 * 1024 * 1024;
const SEND_AT_BYTES = 64 * 1024;

export class Ledger {
  readonly #options: LedgerOptions;
  readonly #share: (call: CheckpointCall) => Promise<"saved" | "kept" | "lost">;
  readonly #jobs = new Map<string, Pending>();
  #dirty = new Set<Pending>();
  #sending: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#share = sharedCommit<CheckpointCall, "saved" | "kept" | "lost">({
      groupOf: () => "",
      sizeOf: ({ output }) => output.length + 200,
      send: (calls) => saveCheckpoints(options.database, calls),
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
    if (result === "lost") {
      this.#options.onRefused(call.job, "save_checkpoints");
      throw new Stopped({ kind: "replaced" });
    }
    return result;
  }

  log(lease: Lease, lines: LogLine[], progress?: Progress): void {
    let pending = this.#jobs.get(lease.job);
    if (!pending || pending.lease.lease !== lease.lease) {
      pending = { lease, lines: [], bytes: 0, batch: 0, dropped: 0, underWay: false };
      this.#jobs.set(lease.job, pending);
    }
    for (const line of lines) {
      const size = line.message.length + 100;
      if (pending.bytes + size > MOST_BYTES) {
        pending.dropped += 1;
        continue;
      }
      pending.lines.push(line);
      pending.bytes += size;
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
    // The statement in flight may carry older lines than were asked about; and another's flush may have taken these along.
    while (this.#dirty.has(pending) || pending.underWay) await this.#send();
  }

  /** One statement at a time, so that the lines of a job stay in order. */
  #send(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
      if (this.#dirty.size > 0) this.#timer ??= setTimeout(() => void this.#send(), this.#options.lingerMs ?? 100);
    });
    return this.#sending;
  }

  async #sendAll(): Promise<void> {
    const batches: LogBatch[] = [];
    const taken: Pending[] = [];
    let bytes = 0;
    for (const pending of this.#dirty) {
      if (bytes > 0 && bytes + pending.bytes > MOST_BYTES) break;
      this.#dirty.delete(pending);
      bytes += pending.bytes;
      batches.push(takeBatch(pending));
      taken.push(pending);
      pending.underWay = true;
      if (pending.dropped > 0) this.#options.onDropped(pending.lease.job, pending.dropped);
      pending.dropped = 0;
    }
    if (batches.length === 0) return;
    try {
      const refused = await appendLogs(this.#options.database, batches);
      for (const job of refused) this.#options.onRefused(job, "append_logs");
    } catch {
      // Postgres refuses the whole batch for one line it cannot take. The work goes on; its words are lost, and that is counted.
      for (const { job, lines } of batches) this.#options.onDropped(job, lines.length);
    } finally {
      for (const pending of taken) pending.underWay = false;
    }
  }
}

function takeBatch(pending: Pending): LogBatch {
  const now = performance.now();
  const lines: LogBatch["lines"] = pending.lines.map(({ at, ...line }) => ({
    ...line,
    ago_ms: Math.max(0, Math.round(now - at)),
  }));
  if (pending.dropped > 0) {
    const message = `… ${pending.dropped} lines left out: they came faster than they could be stored`;
    lines.push({ level: "warning", message, ago_ms: 0 });
  }
  const batch: LogBatch = { ...pending.lease, batch: ++pending.batch, lines };
  if (pending.progress) batch.progress = pending.progress;
  pending.lines = [];
  pending.bytes = 0;
  pending.progress = undefined;
  return batch;
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
  if (outcome.kind === "released")
    return { level: "warning", message: "The worker is shutting down; the job goes back to the line", at };
  return undefined;
}
