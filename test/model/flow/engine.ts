// The engine of the game of limits and breakers: the calls as SQL, and their whole state read in one statement.
import pg from "pg";
import { stopClock } from "../../../src/testing/index.ts";
import { breakerSettings, type Handle, type LimitSettings, type Use } from "./limit-and-breaker.ts";

export const pipelines = ["plain", "guarded", "metered"] as const;
export type Pipeline = (typeof pipelines)[number];

const ms = (value: number) => `${value} milliseconds`;

export class FlowEngine {
  readonly #client: pg.Client;
  /** The start of every game, in milliseconds of the wall clock. */
  origin = 0;

  constructor(url: string) {
    this.#client = new pg.Client({ connectionString: url });
  }

  async open(): Promise<void> {
    await this.#client.connect();
    await this.#client.query("set synchronous_commit = off");
    await stopClock(this.#client);
    // A day ahead, so that the grace after the start of the server is over.
    await this.#client.query(
      "update stillwake.test_clock set stopped_at = date_trunc('minute', now()) + interval '1 day'",
    );
    this.origin = Number(await this.#value("select extract(epoch from stillwake.now()) * 1000"));
    await this.#client.query(`create function since_start(timestamptz) returns float8 language sql immutable as
      $f$ select case when $1 = 'infinity' then 'Infinity' else extract(epoch from $1) * 1000 - ${this.origin} end $f$`);
  }

  async close(): Promise<void> {
    await this.#client.end();
  }

  /** Three waiting jobs per pipeline, a closed breaker, a fresh limit; the clock reset. Returns the jobs. */
  async reset(settings: LimitSettings): Promise<Map<string, Pipeline>> {
    const { pause, max, ...rest } = breakerSettings;
    const limit = { ...settings, ...(settings.period && { period: ms(settings.period) }) };
    await this.#client.query(`delete from stillwake.live_jobs; delete from stillwake.leases; delete from stillwake.ended_attempts;
      delete from stillwake.feed; delete from stillwake.limits; delete from stillwake.breakers; update stillwake.test_clock set shift = '0'`);
    await this.#client.query("select stillwake.register_limit('quota', $1), stillwake.register_breaker('guard', $2)", [
      limit,
      { ...rest, pause: ms(pause), max: ms(max) },
    ]);
    const jobs = new Map<string, Pipeline>();
    for (const name of pipelines) {
      const needs = { plain: {}, guarded: { breakers: ["guard"] }, metered: { limits: ["quota"] } }[name];
      await this.#client.query("select stillwake.register_pipeline($1, $2)", [
        name,
        { pool: name, max_attempts: 1000, crash_limit: 1000, ...needs },
      ]);
      const ids = await this.#value<string[]>("select stillwake.enqueue_many($1, '[1, 2, 3]')", [name]);
      for (const id of ids) jobs.set(id, name);
    }
    return jobs;
  }

  async travel(by: number): Promise<void> {
    await this.#client.query("update stillwake.test_clock set shift = shift + $1", [ms(by)]);
  }

  async claim(pipeline: Pipeline, limit: number): Promise<Handle[]> {
    const { rows } = await this.#client.query(
      "select job_id as job, epoch, lease_id as lease from stillwake.claim('w', $1, array[$1], $2, '60s')",
      [pipeline, limit],
    );
    return rows;
  }

  async settle(handle: Handle, outcome: object): Promise<string> {
    return this.#value("select state from stillwake.settle($1)", [JSON.stringify([{ ...handle, ...outcome }])]);
  }

  async recover(): Promise<number> {
    return this.#value("select stillwake.recover()");
  }

  /** Also the bin as text, because a Date has no microseconds. */
  async use({ job, epoch, lease }: Handle, use: Use, bin: string | null) {
    return this.#asked<{ granted: number; waitUntil: number | null; bin: number | null; text: string | null }>(
      `select granted, since_start(wait_until) as "waitUntil", since_start(bin) as bin, bin::text as text
      from stillwake.use_limit('quota', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
      [job, epoch, lease, use.take, use.least, use.done, use.unused, use.told, ms(use.slack), bin],
    );
  }

  async forget(): Promise<void> {
    await this.#client.query("select stillwake.reset_limit('quota')");
  }

  async ask({ job, epoch, lease }: Handle) {
    return this.#asked<{ resumeAt: number | null }>(
      `select since_start(resume_at) as "resumeAt" from stillwake.check_breaker('guard', $1, $2, $3)`,
      [job, epoch, lease],
    );
  }

  async tell({ job, lease }: Handle, succeeded: boolean) {
    return this.#asked<{ resumeAt: number | null }>(
      `select since_start(resume_at) as "resumeAt" from stillwake.report_breaker_result('guard', $1, $2, $3, 'as asked')`,
      [job, lease, succeeded],
    );
  }

  async openBreaker(forMs: number | null): Promise<void> {
    await this.#client.query("select stillwake.open_breaker('guard', $1)", [forMs && ms(forMs)]);
  }

  async closeBreaker(): Promise<void> {
    await this.#client.query("select stillwake.close_breaker('guard')");
  }

  /** In the shape of `describeFlow`. */
  async snapshot() {
    const { rows } = await this.#client.query({ name: "flow", text: snapshotText });
    return rows[0].state as Record<string, unknown>;
  }

  async #asked<Row extends pg.QueryResultRow>(text: string, values: unknown[]): Promise<Row | string> {
    try {
      return (await this.#client.query<Row>({ name: text.slice(0, 60), text, values })).rows[0]!;
    } catch (error) {
      const code = (error as { code?: string }).code ?? "";
      if (/^SW\d/.test(code)) return code;
      throw error;
    }
  }

  async #value<Value>(text: string, values: unknown[] = []): Promise<Value> {
    const { rows } = await this.#client.query({ text, values, rowMode: "array" });
    return rows[0]![0];
  }
}

const snapshotText = `
select json_build_object(
  'bins', (select coalesce(json_agg(json_build_array(since_start(m.bin_end), m.count) order by m.bin_end), '[]') from unnest(l.bin_ends, l.counts) m (bin_end, count)
    where m.count > 0 and m.bin_end > stillwake.now() - l.period - stillwake.grant_lifetime(l.period)),
  'remaining', l.remaining, 'resetAt', since_start(l.reset_at), 'turnAt', since_start(l.turn_at), 'blockedUntil', since_start(l.blocked_until), 'toldMax', l.reported_max,
  'free', (select b.free from stillwake.limit_quota(l) b),
  'holds', (select coalesce(json_agg(h.job_id || '/' || h.lease_id || '=' || h.count order by h.job_id, h.lease_id), '[]') from stillwake.limit_holds h
    where exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id)),
  'failures', b.failures, 'resumeAt', case when b.resume_at = 'infinity' then 'for ever' else since_start(b.resume_at)::text end, 'probes', b.probes,
  'probe', b.probe_job || '/' || b.probe_lease,
  'jobs', (select json_agg(j.id || ' ' || j.state order by j.id) from stillwake.live_jobs j)
) as state from stillwake.limits l, stillwake.breakers b`;
