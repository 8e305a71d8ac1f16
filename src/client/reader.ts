// Everything that can be read: jobs and what hangs on them, pipelines, pools, machines, and what the whole installation does. The client is one
// of these that can also act; the server makes one for each tenant, over a database that shows that tenant's rows alone.
import type { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { verified } from "../artifacts/verify-stream.ts";
import type { Failure, JobFilter } from "../db/calls/jobs.ts";
import * as reads from "../db/calls/reads.ts";
import type { Queries } from "../db/database.ts";
import { InvalidInput, JobNotFound, StillwakeError, UnknownPipeline } from "../errors.ts";
import { checkId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, durationMs } from "../time.ts";
import { type Job, toJob } from "./job.ts";
import { type Machine, type PoolInfo, toMachine, toPool } from "./machine.ts";
import { checkFilter, checkLimit, readCursor, writeCursor } from "./pagination.ts";
import { type Stats, type StatsOptions, summarise } from "./stats.ts";

export type LogLine = reads.LogRow;

/** A file a job has made. */
export interface ArtifactInfo {
  name: string;
  size: number;
  sha256: string;
  contentType: string;
  savedAt: Date;
}

/** Where artifacts are read from: what openStore() of stillwake/worker returns. */
export interface ArtifactSource {
  get(key: string): Promise<ReadableStream<Uint8Array> | Readable>;
  link(key: string, options: { fileName: string; seconds: number }): Promise<string | undefined>;
}

export interface ListOptions extends JobFilter {
  /** 1 to 200. Default 50. */
  limit?: number;
  /** From the page before. */
  cursor?: string;
  /** Inputs and outputs of more than some kilobytes are left out: null, and named in `omitted`. */
  brief?: boolean;
}

/** One try at a job under one lease. */
export interface Attempt {
  epoch: string;
  /** Which try it was charged as. One that was given back has the number of the next. */
  attempt: number;
  worker: string | null;
  claimedAt: Date;
  /** Null while it runs. */
  endedAt: Date | null;
  outcome: "completed" | "failed" | "cancelled" | "slept" | "paused" | "released" | "lost" | null;
  failure: Failure | null;
}

/** A step whose result is kept. */
export interface Step {
  name: string;
  /** Of the attempt that saved it. */
  epoch: string;
  startedAt: Date | null;
  savedAt: Date;
  tookMs: number | null;
  /** Where it was asked for. */
  output?: unknown;
  /** The results of those before are 2 MB already: this one was left out. */
  omitted?: true;
}

export interface PipelineInfo {
  name: string;
  pool: string;
  priority: number;
  maxAttempts: number;
  crashLimit: number;
  keyLimit: number;
  onConflict: string;
  concurrency: number | null;
  limits: string[];
  breakers: string[];
  /** Paths of the input whose values are stored sealed. */
  sealed: string[];
  /** What its jobs are given, as JSON Schema; null where the contract has none, or one that cannot say. */
  inputSchema: unknown;
  updatedAt: Date;
}

const MAX_STEPS = 10_000;

export class Reader {
  readonly #queries: Queries;
  readonly #store: ArtifactSource | undefined;

  constructor(queries: Queries, store: ArtifactSource | undefined) {
    this.#queries = queries;
    this.#store = store;
  }

  async get(id: string): Promise<Job> {
    const [row] = await reads.readJobs(this.#queries, [checkId(id)]);
    if (!row)
      throw new JobNotFound(`Job ${id} does not exist`, {
        field: "id",
        remedy: "It was never enqueued here, or its retention is over and it was pruned",
      });
    return toJob(row);
  }

  /**
   * Newest first. A page may be shorter than asked for and yet not the last: one request looks through a bounded number of jobs. The cursor is
   * null at the end.
   */
  async list(options: ListOptions = {}): Promise<{ jobs: Job[]; cursor: string | null }> {
    const { limit = 50, cursor, brief = false, ...filter } = options;
    const page = { before: cursor === undefined ? null : readCursor(cursor), limit: checkLimit(limit, 200), brief };
    const { rows, next } = await reads.listJobs(this.#queries, checkFilter(filter), page);
    return { jobs: rows.map(toJob), cursor: next && writeCursor(next) };
  }

  /** The lines of a job in order, those after `after`; ask again with the last `seq` to read on. */
  async logs(id: string, options: { after?: string; limit?: number } = {}): Promise<LogLine[]> {
    const { after = "0", limit = 1000 } = options;
    if (!/^\d{1,18}$/.test(after)) {
      throw new InvalidInput(`${JSON.stringify(after)} is not a place in a log`, {
        field: "after",
        remedy: "Pass the seq of the last line you have",
      });
    }
    return reads.readLogs(this.#queries, checkId(id), after, checkLimit(limit, 10_000));
  }

  /** Every try at a job, the first first. */
  async attempts(id: string, options: { limit?: number } = {}): Promise<Attempt[]> {
    const rows = await reads.readAttempts(this.#queries, checkId(id), checkLimit(options.limit ?? 1000, 1000));
    return rows.map(({ claimed_at, ended_at, outcome, ...row }) => ({
      ...row,
      claimedAt: claimed_at,
      endedAt: ended_at,
      outcome: outcome as Attempt["outcome"],
    }));
  }

  /** The steps of a job whose results are kept, in the order they were saved, 10,000 at most. */
  async steps(id: string, options: { outputs?: boolean } = {}): Promise<Step[]> {
    const outputs = options.outputs ?? false;
    const rows = await reads.readSteps(this.#queries, checkId(id), { outputs, limit: MAX_STEPS });
    return rows.map(({ step, epoch, started_at, saved_at, output, omitted }) => ({
      name: step,
      epoch,
      startedAt: started_at,
      savedAt: saved_at,
      tookMs: started_at && Math.round(saved_at.getTime() - started_at.getTime()),
      ...(outputs && (omitted ? { omitted } : { output })),
    }));
  }

  /** The files a job has made so far. */
  async artifacts(id: string): Promise<ArtifactInfo[]> {
    const rows = await reads.listArtifacts(this.#queries, checkId(id));
    return rows.map(({ name, size, sha256, content_type, saved_at }) => {
      return { name, size: Number(size), sha256, contentType: content_type, savedAt: saved_at };
    });
  }

  /** The content of one of them. It is compared with its hash on the way: a stream that ends without an error was whole. */
  async download(id: string, name: string): Promise<Readable> {
    const { store, row } = await this.#artifact(id, name);
    return verified(await store.get(row.key), name, row);
  }

  /** A link to it that is good for some minutes, where the store has such links. */
  async link(id: string, name: string, options: { seconds?: number } = {}): Promise<string | undefined> {
    const { store, row } = await this.#artifact(id, name);
    return store.link(row.key, { fileName: name, seconds: options.seconds ?? 300 });
  }

  /** Those that were made known to the database. */
  async pipelines(): Promise<PipelineInfo[]> {
    return (await reads.readPipelines(this.#queries, null)).map(toPipeline);
  }

  async pipeline(name: string): Promise<PipelineInfo> {
    const [row] = await reads.readPipelines(this.#queries, checkLabel(name, "pipeline"));
    if (row) return toPipeline(row);
    throw new UnknownPipeline(`There is no pipeline "${name}"`, {
      field: "pipeline",
      remedy: "Start a worker that has it, or register it: sw.register(pipeline)",
    });
  }

  /** The pools and the work in them. */
  async pools(): Promise<PoolInfo[]> {
    const rows = await reads.readPools(this.#queries);
    return rows.map(toPool);
  }

  /** Machines, and workers that are awake on none; with `ended`, so many of those that have ended, too. */
  async machines(options: { ended?: number } = {}): Promise<Machine[]> {
    const { ended = 0 } = options;
    return (await reads.readMachines(this.#queries, ended === 0 ? 0 : checkLimit(ended, 1000))).map(toMachine);
  }

  /** By pool, machines that were asked for and that ended lately; `ill`: of those that ended, how many not as they should. */
  async machineCounts(
    options: { span?: Duration } = {},
  ): Promise<{ pool: string; started: number; ended: number; ill: number }[]> {
    const rows = await reads.countMachines(this.#queries, `${durationMs(options.span ?? "5m", "span")} milliseconds`);
    return rows.map(({ pool, started, ended, ill }) => ({
      pool,
      started: Number(started),
      ended: Number(ended),
      ill: Number(ill),
    }));
  }

  /** What waits and why, what runs, what ended lately and how. */
  async stats(options: StatsOptions = {}): Promise<Stats> {
    return summarise(this.#queries, options);
  }

  async #artifact(id: string, name: string): Promise<{ store: ArtifactSource; row: reads.ArtifactRow }> {
    if (!this.#store) {
      throw new InvalidInput("This client has no artifact store", {
        field: "store",
        remedy: "Create it with one: createStillwake({ url, store: openStore(url) }), openStore from stillwake/worker",
      });
    }
    const row = (await reads.listArtifacts(this.#queries, checkId(id))).find((one) => one.name === name);
    if (row) return { store: this.#store, row };
    throw new StillwakeError("ARTIFACT_MISSING", `Job ${id} has no artifact ${JSON.stringify(name)}`, {
      field: "name",
      remedy: "See artifacts(id) for those it has",
    });
  }
}

function toPipeline(row: reads.PipelineRow): PipelineInfo {
  const { max_attempts, crash_limit, key_limit, on_conflict, input_schema, updated_at, ...same } = row;
  return {
    ...same,
    maxAttempts: max_attempts,
    crashLimit: crash_limit,
    keyLimit: key_limit,
    onConflict: on_conflict,
    inputSchema: input_schema,
    updatedAt: updated_at,
  };
}
