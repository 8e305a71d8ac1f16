// Jobs that write: claimed by SQL, so that a test decides when which line is appended through the same verb that workers use.
import type pg from "pg";
import type { FollowEvent } from "../../src/followed-job.ts";
import { waitFor } from "../../src/testing/index.ts";

export interface Lease {
  job: string;
  epoch: string;
  lease: string;
}

/** So many jobs of a pipeline of their own, running. */
export async function claimJobs(sql: pg.Client, count: number, pipeline = "report"): Promise<Lease[]> {
  await sql.query("select stillwake.register_pipeline($1)", [pipeline]);
  await sql.query("select stillwake.enqueue_many($1, (select jsonb_agg(n) from generate_series(1, $2::int) n))", [
    pipeline,
    count,
  ]);
  const { rows } = await sql.query(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim('writer', 'default', array[$1], $2::int, '1 hour')",
    [pipeline, count],
  );
  return rows;
}

export async function append(sql: pg.Client, leases: Lease[], lines: object[]): Promise<void> {
  await sql.query("select stillwake.append_logs($1)", [JSON.stringify(leases.map((lease) => ({ ...lease, lines })))]);
}

export async function complete(sql: pg.Client, { job, epoch, lease }: Lease, output: unknown = null): Promise<void> {
  await sql.query("select stillwake.complete($1, $2, $3, $4)", [job, epoch, lease, JSON.stringify(output)]);
}

/** What a follower has told so far. */
export interface Heard {
  events: FollowEvent[];
  /** Resolves when it has ended, by itself or with an error. */
  over: Promise<void>;
  /** The texts of its lines. */
  lines(): string[];
  has(what: string, test: (event: FollowEvent) => boolean): Promise<FollowEvent>;
}

export function hear(feed: AsyncIterable<FollowEvent>): Heard {
  const events: FollowEvent[] = [];
  const over = (async () => {
    for await (const event of feed) events.push(event);
  })();
  over.catch(() => {});
  return {
    events,
    over,
    lines: () => events.flatMap((event) => (event.kind === "log" ? event.message : [])),
    has: (what, test) => waitFor(() => events.find(test), { what, interval: 5 }),
  };
}
