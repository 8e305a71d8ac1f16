// Moves jobs in batches: maps them to pipelines, checks them, stores them in Stillwake, removes them from the source.
import type { ImportSource, SourceJob, SourceQueue, SourceSchedule } from "../../db/import/source.ts";
import type { ImportedJob, ImportedSchedule, ImportPipeline } from "../../db/import/target.ts";
import { InvalidInput, UnknownPipeline } from "../../errors.ts";
import { checkLabel, toJson } from "../../payload.ts";
import { type InputSchema, readInputSchema } from "../../server/http/request-input.ts";
import { formatPlural } from "../../text/format.ts";

const MAX_PRIORITY = 1000;
const MAX_ATTEMPTS = 1000;
/** Problems that are printed; all are counted. */
const SHOWN_PROBLEMS = 10;

export interface Problem {
  queue: string;
  id: string;
  message: string;
}

/** A row of the report. */
export interface MovedQueue extends SourceQueue {
  pipelines: string[];
  moved: number;
  invalid: number;
}

export interface MovedSchedule {
  queue: string;
  key: string;
  schedule: string;
  cron: string | null;
  /** Why it stays in the source; null when it was moved. */
  problem: string | null;
}

export interface MoverOptions {
  source: ImportSource;
  pipelines: readonly ImportPipeline[];
  /** The pipeline of a queue, or of `queue/name`. */
  map: ReadonlyMap<string, string>;
  skipInvalid: boolean;
  keys: boolean;
  /** Jobs get an idempotency key made from their id in the source. */
  idempotent: boolean;
}

export class Mover {
  readonly #options: MoverOptions;
  readonly #schemas: Map<string, InputSchema | undefined>;
  readonly queues = new Map<string, MovedQueue>();
  readonly schedules: MovedSchedule[] = [];
  readonly problems: Problem[] = [];
  /** Jobs that an earlier run had stored already. */
  existing = 0;
  /** Priorities outside of -1000 to 1000. */
  limited = 0;
  invalid = 0;
  #skipped: string[] = [];

  constructor(options: MoverOptions, queues: readonly SourceQueue[]) {
    this.#options = options;
    this.#schemas = new Map(options.pipelines.map(({ name, inputSchema }) => [name, readInputSchema(inputSchema)]));
    for (const queue of queues) this.queues.set(queue.name, { ...queue, pipelines: [], moved: 0, invalid: 0 });
  }

  get moved(): number {
    return [...this.queues.values()].reduce((sum, { moved }) => sum + moved, 0);
  }

  /** Throws UnknownPipeline, naming every queue whose pipeline is not registered. */
  requirePipelines(schedules: readonly SourceSchedule[]): void {
    const { map } = this.#options;
    const bySubname = (queue: string) => [...map.keys()].some((name) => name.startsWith(`${queue}/`));
    const wanted = new Set([
      ...[...this.queues.values()].filter(({ ready, delayed }) => ready + delayed > 0).map(({ name }) => name),
      ...schedules.map(({ queue }) => queue),
    ]);
    const unknown = [...wanted].filter((queue) => !bySubname(queue) && !this.#schemas.has(this.#pipelineOf({ queue })));
    if (unknown.length > 0) throw this.#unknownPipelines(unknown);
  }

  /** Splits a batch into jobs to store and jobs that stay; throws on a job that cannot be stored, unless they are skipped. */
  prepare(jobs: readonly SourceJob[]): { job: SourceJob; stored: ImportedJob }[] {
    const before = this.invalid;
    const prepared = jobs.flatMap((job) => {
      const pipeline = this.#pipelineOf(job);
      if (!this.#schemas.has(pipeline))
        throw this.#unknownPipelines([job.name ? `${job.queue}/${job.name}` : job.queue]);
      const queue = this.queues.get(job.queue);
      if (queue && !queue.pipelines.includes(pipeline)) queue.pipelines.push(pipeline);
      const message = this.#findProblem(pipeline, job);
      if (message === undefined) return [{ job, stored: this.#toImported(pipeline, job) }];
      this.invalid += 1;
      this.#skipped.push(job.id);
      if (queue) queue.invalid += 1;
      if (this.problems.length < SHOWN_PROBLEMS) this.problems.push({ queue: job.queue, id: job.id, message });
      return [];
    });
    if (this.invalid > before && !this.#options.skipInvalid) {
      const invalid = `${formatPlural(this.invalid, "job")} cannot be stored: ${this.describeProblems()}`;
      throw new InvalidInput(`${invalid}; ${this.#describeMoved()}`, {
        field: "input",
        remedy: "Change or remove them in the source, or leave them there with --skip-invalid",
      });
    }
    return prepared;
  }

  /** The ids of invalid jobs since the last call. */
  takeSkipped(): string[] {
    const skipped = this.#skipped;
    this.#skipped = [];
    return skipped;
  }

  describeProblems(): string {
    return this.problems.map(({ queue, id, message }) => `${queue} ${id}: ${message}`).join("; ");
  }

  count(jobs: readonly SourceJob[], existing: number): void {
    this.existing += existing;
    for (const { queue } of jobs) {
      const row = this.queues.get(queue) ?? {
        name: queue,
        ready: 0,
        delayed: 0,
        running: 0,
        kept: 0,
        pipelines: [],
        moved: 0,
        invalid: 0,
      };
      row.moved += 1;
      this.queues.set(queue, row);
    }
  }

  /** A schedule is named after its pipeline, and its key if the source has several. Undefined when it cannot be one. */
  toSchedule({
    queue,
    key,
    cron,
    zone,
    input,
    priority,
    attempts,
    problem,
  }: SourceSchedule): ImportedSchedule | undefined {
    const pipeline = this.#pipelineOf({ queue });
    const suffix = key.toLowerCase().replaceAll(/[^a-z0-9_.:-]+/g, "-");
    const name = suffix === "" || suffix === pipeline ? pipeline : `${pipeline}:${suffix}`;
    this.schedules.push({ queue, key, schedule: name, cron: cron ?? null, problem: problem ?? null });
    if (problem !== undefined || cron === undefined) return undefined;
    const options = {
      ...(priority !== undefined && priority !== null && { priority: this.#limitPriority(priority) }),
      ...(attempts !== undefined && attempts !== null && { max_attempts: limitAttempts(attempts) }),
    };
    return { name, pipeline, cron, zone, input, options };
  }

  #pipelineOf({ queue, name }: Pick<SourceJob, "queue" | "name">): string {
    const { map } = this.#options;
    return (name === undefined ? undefined : map.get(`${queue}/${name}`)) ?? map.get(queue) ?? queue;
  }

  #toImported(pipeline: string, job: SourceJob): ImportedJob {
    const { source, keys, idempotent } = this.#options;
    return {
      pipeline,
      input: job.input!,
      runAt: job.runAt,
      priority: this.#limitPriority(job.priority),
      attempts: limitAttempts(job.attempts),
      key: keys ? job.key : null,
      idempotencyKey: idempotent ? `${source.name}:${job.queue}:${job.id}` : null,
    };
  }

  #limitPriority(priority: number): number {
    const limited = Math.max(-MAX_PRIORITY, Math.min(MAX_PRIORITY, priority));
    if (limited !== priority) this.limited += 1;
    // -0 is not JSON.
    return limited + 0;
  }

  #findProblem(pipeline: string, { input, key }: SourceJob): string | undefined {
    try {
      const value = input === null ? undefined : JSON.parse(input);
      if (input === null) return "The input is larger than the limit of 262144 bytes";
      toJson(value, "input");
      if (key !== null && this.#options.keys) checkLabel(key, "key");
      const result = this.#schemas.get(pipeline)?.safeParse(value);
      if (!result || result.success) return undefined;
      const [issue] = result.error.issues;
      return `${["input", ...issue!.path.map(String)].join(".")}: ${issue!.message}`;
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** For an error: one transaction is rolled back as a whole, earlier batches of two stores are not. */
  #describeMoved(): string {
    return this.#options.idempotent && this.moved > 0
      ? `${formatPlural(this.moved, "job was", "jobs were")} moved before`
      : "nothing was moved";
  }

  #unknownPipelines(queues: readonly string[]): UnknownPipeline {
    const names = queues.map((queue) => {
      const [base = queue, sub] = this.queues.has(queue) ? [queue] : queue.split("/");
      const pipeline = this.#pipelineOf({ queue: base, ...(sub !== undefined && { name: sub }) });
      return pipeline === queue ? `"${pipeline}"` : `"${pipeline}" (for ${queue})`;
    });
    return new UnknownPipeline(
      `${names.length === 1 ? "Pipeline" : "Pipelines"} ${names.join(", ")} ${names.length === 1 ? "is" : "are"} not registered; ${this.#describeMoved()}`,
      {
        field: "map",
        remedy: `Register with stillwake register, or name a registered one: --map ${queues[0]}=<pipeline>; stillwake pipelines lists them`,
      },
    );
  }
}

function limitAttempts(attempts: number): number {
  return Math.max(1, Math.min(MAX_ATTEMPTS, attempts));
}
