// Helpers for tests below the client: connections, jobs, workers and every write a worker can make, as plain SQL.
import pg from "pg";
import { afterAll } from "vitest";
import type { Settlement } from "../../src/db/calls/worker.ts";
import { stopClock, travel } from "../../src/testing/index.ts";

export interface HeldJob {
  job: string;
  epoch: string;
  lease: string;
}

/** A connection for the whole test file. */
export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  afterAll(() => client.end());
  return client;
}

export async function enqueue(client: pg.ClientBase, pipeline: string, options: object = {}): Promise<string> {
  const { rows } = await client.query("select stillwake.enqueue($1, '{}', $2) as id", [pipeline, options]);
  return rows[0].id;
}

export async function claim(
  client: pg.ClientBase,
  worker: string,
  pipelines: string[],
  { limit = 1, lease = "10 seconds", pool = "default" } = {},
): Promise<HeldJob[]> {
  const { rows } = await client.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, $2, $3, $4, $5)",
    [worker, pool, pipelines, limit, lease],
  );
  return rows;
}

export type Outcome = Settlement extends infer Each
  ? Each extends Settlement
    ? Omit<Each, keyof HeldJob>
    : never
  : never;

/** The state the job went to, or "lost". */
export async function settle(client: pg.ClientBase, held: HeldJob, outcome: Outcome): Promise<string> {
  const { rows } = await client.query("select state from stillwake.settle($1)", [
    JSON.stringify([{ ...held, ...outcome }]),
  ]);
  return rows[0].state;
}

/** For files whose tests use one job each, with a stopped clock; deletes what earlier tests left. */
export async function prepareJobs(client: pg.ClientBase) {
  await stopClock(client);
  await client.query("select stillwake.register_pipeline('sturdy', '{\"max_attempts\": 9, \"crash_limit\": 3}')");
  await client.query("select stillwake.register_pipeline('frail', '{\"crash_limit\": 1}')");

  const take = async (worker: string, pipeline = "sturdy"): Promise<HeldJob> => {
    const [held] = await claim(client, worker, [pipeline]);
    return held!;
  };
  const startJob = async (pipeline = "sturdy", options: object = {}): Promise<HeldJob> => {
    await client.query(
      "delete from stillwake.leases; delete from stillwake.live_jobs; delete from stillwake.ended_jobs",
    );
    await enqueue(client, pipeline, options);
    return take("w1", pipeline);
  };
  const letLeaseRunOut = () => travel(client, "10001ms");
  return { startJob, take, letLeaseRunOut };
}

export async function readJob(client: pg.ClientBase, id: string) {
  const { rows } = await client.query("select * from stillwake.jobs where id = $1", [id]);
  return rows[0];
}

const failure = { code: "E_TEST", message: "as the test wants it" };

export const outcomes = {
  completed: { outcome: "completed", output: "stale" },
  failed: { outcome: "failed", failure },
  "failed for good": { outcome: "failed", failure, fatal: true },
  cancelled: { outcome: "cancelled" },
  slept: { outcome: "slept", for: "1 minute" },
  paused: { outcome: "paused", reason: "breaker" },
  released: { outcome: "released" },
  lost: { outcome: "lost", failure },
} satisfies Record<string, Outcome>;

/** Every write of a worker except settlements, with its result when the fence refuses it. */
export const writes: Record<
  string,
  { send(client: pg.ClientBase, held: HeldJob): Promise<unknown>; refused: unknown }
> = {
  heartbeat: {
    send: (client, { job, epoch, lease }) =>
      first(client, "select verdict from stillwake.heartbeat($1, $2, $3)", [[job], [epoch], [lease]]),
    refused: "lost",
  },
  checkpoint: {
    send: (client, held) =>
      first(client, "select result from stillwake.save_checkpoints($1)", [json({ ...held, step: "stale", output: 1 })]),
    refused: "lost",
  },
  "append logs": {
    send: (client, held) =>
      first(client, "select last_seq from stillwake.append_logs($1)", [
        json({ ...held, lines: [{ message: "stale" }] }),
      ]),
    refused: null,
  },
  progress: {
    send: (client, { job, epoch, lease }) =>
      first(client, "select stillwake.progress($1, $2, $3, $4)", [job, epoch, lease, { sentence: "stale" }]),
    refused: "SW005",
  },
  "load checkpoints": {
    send: (client, { job, epoch, lease }) =>
      first(client, "select * from stillwake.load_checkpoints($1, $2, $3)", [job, epoch, lease]),
    refused: "SW005",
  },
  "checkpoint in a transaction of the user's": {
    send: (client, { job, epoch, lease }) =>
      first(client, "select stillwake.save_checkpoint($1, $2, $3, 'stale', '1')", [job, epoch, lease]),
    refused: "SW005",
  },
  adopt: {
    send: (client, { job, epoch, lease }) =>
      first(client, "select stillwake.adopt($1, $2, $3, 7, true)", [job, epoch, lease]),
    refused: "SW005",
  },
  "save artifact": {
    send: (client, { job, epoch, lease }) =>
      first(client, "select stillwake.save_artifact($1, $2, $3, 'stale', 1, $4, 'text/plain', 'stale')", [
        job,
        epoch,
        lease,
        "0".repeat(64),
      ]),
    refused: "SW005",
  },
  "load artifacts": {
    send: (client, { job, epoch, lease }) =>
      first(client, "select * from stillwake.load_artifacts($1, $2, $3)", [job, epoch, lease]),
    refused: "SW005",
  },
};

/** The first column of the first row, or the SQLSTATE of a refusal. */
export async function first(client: pg.ClientBase, text: string, values: unknown[]): Promise<unknown> {
  try {
    const { rows } = await client.query({ text, values, rowMode: "array" });
    return rows[0]?.[0];
  } catch (error) {
    const { code = "" } = error as { code?: string };
    if (/^SW\d/.test(code)) return code;
    throw error;
  }
}

function json(element: object): string {
  return JSON.stringify([element]);
}

const tables = [
  "live_jobs",
  "leases",
  "ended_jobs",
  "ended_attempts",
  "checkpoints",
  "artifacts",
  "feed",
  "idempotency_keys",
];
const dumpText = `select ${tables
  .map((table) => `(select json_agg(t order by t::text) from stillwake.${table} t) as ${table}`)
  .join(", ")}`;

/** Everything stored about jobs. Two equal dumps mean that nothing was written in between. */
export async function dump(client: pg.ClientBase): Promise<Record<string, unknown>> {
  const { rows } = await client.query({ name: "dump", text: dumpText });
  return rows[0];
}
