// All reads: jobs with their logs, attempts, steps and artifacts, pipelines, pools, machines, statistics. The client
// extends it; the server creates one per tenant, over a database that shows only that tenant's rows.
import type { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";
import { verifyContent } from "../artifacts/verify-content.ts";
import type { Job, JobId } from "../db/calls/job.ts";
import type { JobFilter } from "../db/calls/jobs.ts";
import * as pools from "../db/calls/pools.ts";
import * as reads from "../db/calls/reads.ts";
import type { Queries } from "../db/database.ts";
import { InvalidInput, jobNotFound, StillwakeError, UnknownPipeline } from "../errors.ts";
import { checkId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { findClosest } from "../text/suggest.ts";
import { type Duration, durationMs } from "../time.ts";
import { checkFilter, checkLimit, readCursor, writeCursor } from "./pagination.ts";
import { type Stats, type StatsOptions, summarize } from "./stats.ts";

export type { Attempt, LogRow as LogLine, PipelineInfo, Step } from "../db/calls/reads.ts";

/** A file that a job stored. */
export interface ArtifactInfo {
  name: string;
  size: number;
  sha256: string;
  contentType: string;
  savedAt: Date;
}

/** Where artifacts are read from: the result of openStore() of stillwake/worker. */
export interface ArtifactSource {
  get(key: string): Promise<ReadableStream<Uint8Array> | Readable>;
  link(key: string, options: { fileName: string; seconds: number }): Promise<string | undefined>;
}

export interface ListOptions extends JobFilter {
  /** 1 to 200. Default 50. */
  limit?: number;
  /** From the previous page. */
  cursor?: string;
  /** Leaves out inputs and outputs over 8 KB: they are null, and named in `omitted`. */
  brief?: boolean;
}

const MAX_STEPS = 10_000;

export class Reader {
  readonly #queries: Queries;
  readonly #store: ArtifactSource | undefined;

  constructor(queries: Queries, store: ArtifactSource | undefined) {
    this.#queries = queries;
    this.#store = store;
  }

  /** One job. The output has the contract's type if the id is that of enqueue(). */
  async get<Output = unknown>(id: JobId<Output>): Promise<Job<Output>> {
    const [job] = await reads.readJobs(this.#queries, [checkId(id)]);
    if (!job) throw jobNotFound(id);
    return job as Job<Output>;
  }

  /**
   * Newest first. A page may have fewer jobs than `limit` and still not be the last, because one request scans a
   * bounded number of jobs. The cursor is null at the end.
   */
  async list(options: ListOptions = {}): Promise<{ jobs: Job[]; cursor: string | null }> {
    const { limit = 50, cursor, brief = false, ...filter } = options;
    const page = { before: cursor === undefined ? null : readCursor(cursor), limit: checkLimit(limit, 200), brief };
    const { rows, next } = await reads.listJobs(this.#queries, checkFilter(filter), page);
    return { jobs: rows, cursor: next && writeCursor(next) };
  }

  /** The log lines of a job after `after`, in order; pass the last `seq` to read the next page. */
  async logs(id: string, options: { after?: string; limit?: number } = {}): Promise<reads.LogRow[]> {
    const { after = "0", limit = 1000 } = options;
    if (!/^\d{1,18}$/.test(after)) {
      throw new InvalidInput(`after ${JSON.stringify(after)} is not a seq`, {
        field: "after",
        remedy: "Pass the seq of the last line you have read",
      });
    }
    return reads.readLogs(this.#queries, checkId(id), after, checkLimit(limit, 10_000));
  }

  /** All attempts of a job, oldest first. */
  async attempts(id: string, options: { limit?: number } = {}): Promise<reads.Attempt[]> {
    return reads.readAttempts(this.#queries, checkId(id), checkLimit(options.limit ?? 1000, 1000));
  }

  /** The steps of a job that have a checkpoint, in the order they were saved, at most 10,000. */
  async steps(id: string, options: { outputs?: boolean } = {}): Promise<reads.Step[]> {
    const outputs = options.outputs ?? false;
    const steps = await reads.readSteps(this.#queries, checkId(id), { outputs, limit: MAX_STEPS });
    return steps.map(({ output, omitted, ...step }) => ({
      ...step,
      tookMs: step.startedAt && Math.round(step.savedAt.getTime() - step.startedAt.getTime()),
      ...(outputs && (omitted ? { omitted } : { output })),
    }));
  }

  /** The artifacts that a job has stored so far. */
  async artifacts(id: string): Promise<ArtifactInfo[]> {
    const rows = await reads.listArtifacts(this.#queries, checkId(id));
    return rows.map(({ name, size, sha256, content_type, saved_at }) => {
      return { name, size: Number(size), sha256, contentType: content_type, savedAt: saved_at };
    });
  }

  /** The content of an artifact. The stream is checked against its hash: if it ends without an error, it is complete. */
  async download(id: string, name: string): Promise<Readable> {
    const { store, row } = await this.#artifact(id, name);
    return verifyContent(await store.get(row.key), name, row);
  }

  /** A link to an artifact that expires after some minutes; undefined if the store has no links. */
  async link(id: string, name: string, options: { seconds?: number } = {}): Promise<string | undefined> {
    const { store, row } = await this.#artifact(id, name);
    return store.link(row.key, { fileName: name, seconds: options.seconds ?? 300 });
  }

  /** All registered pipelines. */
  async pipelines(): Promise<reads.PipelineInfo[]> {
    return reads.readPipelines(this.#queries, null);
  }

  async pipeline(name: string): Promise<reads.PipelineInfo> {
    const [pipeline] = await reads.readPipelines(this.#queries, checkLabel(name, "pipeline"));
    if (pipeline) return pipeline;
    const names = (await this.pipelines()).map((known) => known.name);
    const closest = findClosest(name, names);
    const known = closest
      ? `Did you mean ${closest}? `
      : names.length > 0
        ? `Known pipelines: ${shorten(names)}. `
        : "";
    throw new UnknownPipeline(`There is no pipeline "${name}"`, {
      field: "pipeline",
      remedy: `${known}Start a worker that has it, or register it: stillwake register, or sw.register(pipeline) in code`,
    });
  }

  /** All pools with their demand. */
  async pools(): Promise<pools.PoolInfo[]> {
    return pools.readPools(this.#queries);
  }

  /** Machines, and active workers without a machine; with `ended`, also up to that many that have ended. */
  async machines(options: { ended?: number } = {}): Promise<pools.Machine[]> {
    const { ended = 0 } = options;
    return pools.readMachines(this.#queries, ended === 0 ? 0 : checkLimit(ended, 1000));
  }

  /** Machines requested and ended in the last `span`, by pool; `abnormal`: those that did not end as intended. */
  async machineCounts(
    options: { span?: Duration } = {},
  ): Promise<{ pool: string; started: number; ended: number; abnormal: number }[]> {
    return pools.countMachines(this.#queries, `${durationMs(options.span ?? "5m", "span")} milliseconds`);
  }

  /** Counts of waiting jobs by reason, running jobs, and recently ended jobs by outcome. */
  async stats(options: StatsOptions = {}): Promise<Stats> {
    return summarize(this.#queries, options);
  }

  async #artifact(id: string, name: string): Promise<{ store: ArtifactSource; row: reads.ArtifactRow }> {
    if (!this.#store) {
      throw new StillwakeError("NO_STORE", "This client has no artifact store", {
        field: "store",
        remedy: "Pass one: createStillwake({ url, store: openStore(url) }), with openStore from stillwake/worker",
      });
    }
    const row = (await reads.listArtifacts(this.#queries, checkId(id))).find((artifact) => artifact.name === name);
    if (row) return { store: this.#store, row };
    throw new StillwakeError("ARTIFACT_MISSING", `Job ${id} has no artifact ${JSON.stringify(name)}`, {
      field: "name",
      remedy: "List its artifacts with artifacts(id)",
    });
  }
}

/** The first of many names. */
function shorten(names: readonly string[], max = 20): string {
  return names.length > max ? `${names.slice(0, max).join(", ")} and ${names.length - max} more` : names.join(", ");
}
