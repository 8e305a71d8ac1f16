// Workers without isolation in the test's own process: user code is a closure of the test, so the test can inspect what
// it saw. Fast, with the same attempt, keeper and SQL as runner processes.
import pg from "pg";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { type Job, type Pipeline, type PipelineOptions, pipeline, type Stillwake } from "../../../src/index.ts";
import { type TestDatabase, waitFor } from "../../../src/testing/index.ts";
import type {
  AnyImplementation,
  ImplementOptions,
  JobContext,
  WorkerEvent,
  WorkerOptions,
} from "../../../src/worker/index.ts";
import { createWorker, implement, type Worker } from "../../../src/worker/index.ts";
import { openStillwake } from "../database/connections.ts";
import { freshDatabase } from "../database/database.ts";

interface LoggedLine {
  level: string;
  step: string | null;
  message: string;
  data: Record<string, unknown> | null;
  at: Date;
  epoch: string;
}

interface Started {
  worker: Worker;
  /** All its events so far. */
  events: WorkerEvent[];
}

interface RunOptions<Input> {
  input?: Input;
  pipeline?: PipelineOptions<Input, Input>;
  code?: ImplementOptions;
  worker?: Partial<WorkerOptions>;
  /** When to stop waiting. Default: when the job has ended. */
  until?: (job: Job) => boolean;
}

type RunCode<Input> = (job: JobContext, input: Input) => unknown;

interface Ran extends Started {
  id: string;
  job: Job;
  logs: LoggedLine[];
}

export interface InProcessFixture {
  database: TestDatabase;
  stillwake: Stillwake;
  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]>;
  /** Starts a worker that stops with the test. */
  start(pipelines: readonly AnyImplementation[], options?: Partial<WorkerOptions>): Promise<Started>;
  /**
   * Starts a worker of one pipeline that has nothing to do and learns of jobs by hints alone: it does not poll for ten
   * minutes. Returns its events.
   */
  startIdle(contract: Pipeline<unknown, unknown>, options?: Partial<WorkerOptions>): Promise<WorkerEvent[]>;
  /** Runs one job of a new pipeline and waits for it. */
  run<Input = undefined>(code: RunCode<Input>): Promise<Ran>;
  run<Input = undefined>(options: RunOptions<Input>, code: RunCode<Input>): Promise<Ran>;
  /** Waits until the job matches. Default: until it has ended. */
  until(id: string, wanted?: (job: Job) => boolean): Promise<Job>;
  logs(id: string): Promise<LoggedLine[]>;
  /** The kinds of its events, in order. */
  events(id: string): Promise<string[]>;
  checkpoints(id: string): Promise<{ step: string; output: unknown; epoch: string }[]>;
  attempts(id: string): Promise<{ attempt: number; epoch: string; outcome: string | null; failure: Job["failure"] }[]>;
  /** A name that no other test of the file uses. */
  name(): string;
}

/** Call it once, at the top of a test file. */
export async function inProcessFixture(): Promise<InProcessFixture> {
  const database = await freshDatabase();
  const stillwake = openStillwake(database.url);
  const pool = new pg.Pool({ connectionString: database.url, max: 2 });
  let names = 0;
  beforeAll(() => stillwake.register(pipeline("warm")));
  afterAll(() => pool.end());
  const made: InProcessFixture = {
    database,
    stillwake,
    name: () => `p${++names}`,
    query: async (text, values) => (await pool.query(text, values)).rows,
    async start(pipelines, options = {}) {
      const worker = createWorker({
        url: database.url,
        directUrl: false,
        poll: "200ms",
        grace: "200ms",
        slots: 4,
        pipelines,
        ...options,
      });
      const events: WorkerEvent[] = [];
      worker.events.subscribe((event) => void events.push(event));
      onTestFinished(() => worker.stop());
      await worker.start();
      return { worker, events };
    },
    async startIdle(contract, options = {}) {
      const silent = { directUrl: database.url, poll: "10m", pollWithHints: "10m" } as const;
      const { events } = await made.start([implement(contract, async () => "done")], { ...silent, ...options });
      const last = (kind: WorkerEvent["kind"]) => events.findLastIndex((event) => event.kind === kind);
      await waitFor(() => last("hints.ready") >= 0 && last("claim.empty") > last("hints.ready"));
      // After a claim without a job it asks when the next one is due.
      const busy =
        "select from pg_stat_activity where datname = current_database() and state = 'active' and pid <> pg_backend_pid()";
      await waitFor(async () => (await made.query(busy)).length === 0);
      return events;
    },
    async run<Input>(first: RunOptions<Input> | RunCode<Input>, second?: RunCode<Input>) {
      const [options, code] = typeof first === "function" ? [{}, first] : [first, second];
      const contract = pipeline(made.name(), { retry: { initial: "1ms", max: "1ms" }, ...options.pipeline });
      const { id } = await stillwake.enqueue(contract as never, (options.input ?? null) as never);
      const started = await made.start([implement(contract as never, code as never, options.code)], options.worker);
      const job = await made.until(id, options.until);
      return { ...started, id, job, logs: await made.logs(id) };
    },
    until: (id, wanted = ({ endedAt }) => endedAt !== null) =>
      waitFor(
        async () => {
          const job = await stillwake.get(id);
          if (wanted(job)) return job;
          throw new Error(`${job.state}, attempt ${job.attempt}: ${JSON.stringify(job.failure)?.slice(0, 500)}`);
        },
        { timeout: 20_000, what: `job ${id} to match` },
      ),
    logs: (id) =>
      made.query<LoggedLine & pg.QueryResultRow>(
        "select level, step, message, data, at, epoch from stillwake.logs where job_id = $1 order by seq",
        [id],
      ),
    events: async (id) =>
      (
        await made.query<{ kind: string }>("select kind from stillwake.events where job_id = $1 order by seq", [id])
      ).map(({ kind }) => kind),
    checkpoints: (id) =>
      made.query("select step, output, epoch from stillwake.checkpoints where job_id = $1 order by saved_at, step", [
        id,
      ]),
    attempts: (id) =>
      made.query("select attempt, epoch, outcome, failure from stillwake.attempts where job_id = $1 order by epoch", [
        id,
      ]),
  };
  return made;
}
