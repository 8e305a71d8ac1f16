// Writes to the feed of running jobs by SQL, so that a test controls when each line is appended.
import type pg from "pg";
import { afterAll, onTestFinished } from "vitest";
import { Database } from "../../../src/db/database.ts";
import { FeedReader, type FeedReaderOptions } from "../../../src/live/feed-reader.ts";
import { type FollowOptions, follow } from "../../../src/live/follower.ts";
import type { FollowEvent } from "../../../src/live/job-buffer.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { connect } from "./connections.ts";
import { freshDatabase } from "./database.ts";

export interface Lease {
  job: string;
  epoch: string;
  lease: string;
}

/** For a test file: a database with a SQL connection and a client, and feed readers that close with their test. */
export async function feedFixture(always: (url: string) => FeedReaderOptions = () => ({})) {
  const database = await freshDatabase();
  const sql = await connect(database.url);
  const client = new Database({ url: database.url });
  afterAll(() => client.close());
  const openReader = (options: FeedReaderOptions = {}): FeedReader => {
    const reader = new FeedReader(client, { ...always(database.url), ...options });
    onTestFinished(() => reader.close());
    return reader;
  };
  return { database, sql, client, openReader };
}

/** Lines whose text is their number. */
export const numbers = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, n) => ({ message: `${from + n}` }));
export const texts = (from: number, to: number) => numbers(from, to).map(({ message }) => message);

export const followed = (reader: FeedReader, { job }: Lease, options?: FollowOptions) =>
  collect(follow(reader, job, options));

/** Creates and claims this number of jobs. */
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

/** The events of a follower so far. */
export interface Collected {
  events: FollowEvent[];
  /** Resolves when it has ended, with or without an error. */
  over: Promise<void>;
  /** The messages of its log lines. */
  lines(): string[];
  has(what: string, test: (event: FollowEvent) => boolean): Promise<FollowEvent>;
}

export function collect(feed: AsyncIterable<FollowEvent>): Collected {
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
