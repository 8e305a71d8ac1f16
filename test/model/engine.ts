// The engine under test: one connection, the calls as SQL, and the whole state read in one statement.
import pg from "pg";
import { stopClock } from "../../src/testing/index.ts";
import type { ClaimOptions } from "./calls.ts";
import type { EnqueueOptions, Entry } from "./enqueue.ts";
import { violationsText } from "./invariants.ts";
import type { Outcome } from "./transitions.ts";
import { type Handle, INFINITY, pipelines } from "./world.ts";

export type Settlement = Handle & Outcome;

export class Engine {
  readonly #client: pg.Client;
  /** For a transaction that stays open over several moves. */
  readonly #other: pg.Client;
  /** For one that is open during one move. */
  readonly #application: pg.Client;
  #lanesGiven = false;
  #resets = 0;
  /** Statements sent, without resets and comparisons. */
  calls = 0;
  /** Whether its pools have lanes, as pools with tenants do. */
  readonly laned: boolean;

  constructor(url: string, { laned = false } = {}) {
    this.#client = new pg.Client({ connectionString: url });
    this.#other = new pg.Client({ connectionString: url });
    this.#application = new pg.Client({ connectionString: url });
    this.laned = laned;
  }

  async open(): Promise<void> {
    await this.#client.connect();
    await this.#other.connect();
    await this.#application.connect();
    // Durability is not under test, and there are many commits.
    await this.#client.query("set synchronous_commit = off");
    for (const [name, settings] of Object.entries(pipelines)) {
      await this.#client.query("select stillwake.register_pipeline($1, $2)", [
        name,
        {
          pool: settings.pool,
          priority: settings.priority,
          max_attempts: settings.maxAttempts,
          crash_limit: settings.crashLimit,
          backoff_initial: milliseconds(settings.backoffFirst),
          backoff_max: milliseconds(settings.backoffMost),
          key_limit: settings.keyLimit,
          on_conflict: settings.onConflict,
          key: "key",
        },
      ]);
    }
    // From the start: in a pool that gets lanes later, earlier jobs may be claimed out of order.
    if (this.laned) await this.#client.query("select stillwake.lane_pool(name) from stillwake.pools");
    await stopClock(this.#client);
    await this.#client.query(`do $$ begin execute format('create function since_start(timestamptz) returns float8 language sql immutable as
      $f$ select case when $1 = ''infinity'' then ${INFINITY} else extract(epoch from $1 - %L::timestamptz) * 1000 end $f$', stillwake.now()); end $$`);
  }

  async close(): Promise<void> {
    await this.#client.end();
    await this.#other.end();
    await this.#application.end();
  }

  /** Empties the database and resets the clock. Deleting few rows is faster than truncating many partitions. */
  async reset(): Promise<void> {
    const names = "live_jobs leases ended_jobs ended_attempts checkpoints feed idempotency_keys".split(" ");
    const tables = names.map((name) => `stillwake.${name}`);
    // The same ids are used in each game, and their dead rows slow down every query.
    await this.#other.query("rollback");
    if (this.#lanesGiven) await this.#removeLanes();
    if (this.#resets++ % 10 === 9) await this.#client.query(`vacuum ${tables.join(", ")}`);
    await this.#client.query(`${tables.map((table) => `delete from ${table}`).join("; ")};
      update stillwake.pools set paused_at = null; delete from stillwake.outages where ended_at <> started_at;
      update stillwake.outages set timeline = left(pg_walfile_name(pg_current_wal_lsn()), 8); update stillwake.test_clock set shift = '0'; select setseed(0.5)`);
  }

  /** Gives a pool lanes, as the first gated pipeline does: in the pool "gpu" it is that of the jobs, in "default" another. */
  async giveLanes(pool: string): Promise<void> {
    const pipeline = pool === "gpu" ? "gamma" : "gated";
    this.#lanesGiven = true;
    await this.#client.query("select stillwake.register_pipeline($1, $2)", [pipeline, { pool, concurrency: 1000 }]);
  }

  async #removeLanes(): Promise<void> {
    this.#lanesGiven = false;
    await this.#client.query(`delete from stillwake.pipelines where name = 'gated';
      update stillwake.pipelines set concurrency = null where name = 'gamma';
      update stillwake.pools set laned = false, relane_until = null, relane_after = null`);
  }

  /** Enqueues a job in a transaction that stays open. */
  async enqueueOpen(pipeline: string, id: string): Promise<void> {
    await this.#other.query("begin");
    await this.#other.query("select stillwake.enqueue_many($1, '[{}]', '{}', array[$2]::uuid[])", [pipeline, id]);
  }

  async commitOpen(): Promise<void> {
    await this.#other.query("commit");
  }

  /** One call: its rows, or the SQLSTATE of its refusal. Any other error is thrown. */
  async call<Row extends pg.QueryResultRow>(text: string, values: unknown[]): Promise<Row[] | string> {
    this.calls += 1;
    try {
      return (await this.#client.query<Row>({ name: text.slice(0, 60), text, values })).rows;
    } catch (error) {
      const code = (error as { code?: string }).code ?? "";
      if (/^SW\d/.test(code)) return code;
      throw error;
    }
  }

  /** Makes the calls while a transaction of the application is open, which has sent this statement and rolls it back. */
  async besideTransaction<Result>(text: string, values: unknown[], calls: () => Promise<Result>): Promise<Result> {
    await this.#application.query("begin");
    try {
      await this.#application.query(text, values);
      return await calls();
    } finally {
      await this.#application.query("rollback");
    }
  }

  /** A call that returns one value. */
  async ask<Value>(text: string, values: unknown[]): Promise<Value | string> {
    const answer = await this.call<{ value: Value }>(`select ${text} as value`, values);
    return typeof answer === "string" ? answer : answer[0]!.value;
  }

  /** Keys are passed as an option or, for every second id, in the inputs, where the pipeline's path finds them. */
  enqueue(pipeline: string, entries: Entry[], options: EnqueueOptions) {
    const inInput = entries.length > 0 && Number.parseInt(entries[0]!.id.at(-1)!, 16) % 2 === 0;
    const sent = {
      delay: options.delay === null ? undefined : milliseconds(options.delay),
      expires_in: options.expiresIn === null ? undefined : milliseconds(options.expiresIn),
      priority: options.priority ?? undefined,
      max_attempts: options.maxAttempts ?? undefined,
      on_conflict: options.onConflict ?? undefined,
      keys: inInput ? undefined : withoutNulls(entries.map(({ key }) => key)),
      tenants: withoutNulls(entries.map(({ tenant }) => tenant)),
      idempotency_keys: withoutNulls(entries.map(({ idempotencyKey }) => idempotencyKey)),
    };
    return this.ask<string[]>("stillwake.enqueue_many($1, $2, $3, $4)", [
      pipeline,
      JSON.stringify(entries.map(({ key }) => (inInput ? { key } : {}))),
      sent,
      entries.map(({ id }) => id),
    ]);
  }

  claim(options: ClaimOptions) {
    return this.call<ClaimedRow>(
      "select * from stillwake.claim($1, $2, $3, $4, $5, p_held => $6)",
      claimValues(options),
    );
  }

  /** Claimed jobs; before them, if settlements were refused, a row without a job that lists those. */
  settleAndClaim(settlements: Settlement[], options: ClaimOptions) {
    return this.call<ClaimedRow & { refused: string[] | null }>(
      "select * from stillwake.settle_and_claim($1, $2, $3, $4, $5, $6, p_held => $7)",
      [JSON.stringify(settlements.map(settlementValue)), ...claimValues(options)],
    );
  }

  settle(settlements: Settlement[]) {
    return this.call<{ job_id: string; state: string }>("select * from stillwake.settle($1)", [
      JSON.stringify(settlements.map(settlementValue)),
    ]);
  }

  heartbeat(handles: Handle[]) {
    return this.call<{ job_id: string; verdict: string; reason: string | null }>(
      "select * from stillwake.heartbeat($1, $2, $3)",
      [handles.map(({ job }) => job), handles.map(({ epoch }) => epoch), handles.map(({ lease }) => lease)],
    );
  }

  saveCheckpoint(handle: Handle, step: string, output: string) {
    return this.ask<string>("(select result from stillwake.save_checkpoints($1))", [
      JSON.stringify([{ ...handle, step, output }]),
    ]);
  }

  async loadCheckpoints({ job, epoch, lease }: Handle) {
    const rows = await this.call<{ step: string; output: string }>(
      "select * from stillwake.load_checkpoints($1, $2, $3)",
      [job, epoch, lease],
    );
    return typeof rows === "string" ? rows : rows.map(({ step, output }) => `${step}=${output}`).sort();
  }

  async appendLogs(handle: Handle, lines: number) {
    const last = await this.ask<string | null>("(select last_seq from stillwake.append_logs($1))", [
      JSON.stringify([{ ...handle, lines: Array.from({ length: lines }, (_, n) => ({ message: `line ${n}` })) }]),
    ]);
    return last === null ? null : Number(last);
  }

  progress({ job, epoch, lease }: Handle, fraction: number) {
    return this.ask<string>("stillwake.progress($1, $2, $3, $4)", [job, epoch, lease, { fraction }]);
  }

  /** As if another server had written the tables so far. */
  async promote(): Promise<void> {
    await this.#client.query("update stillwake.outages set timeline = '00000000'");
  }

  async travel(ms: number): Promise<void> {
    await this.#client.query("update stillwake.test_clock set shift = shift + $1", [milliseconds(ms)]);
  }

  /** The state in the shape of `describeWorld`, and violated invariants, independent of the model. */
  async snapshot() {
    const { rows } = await this.#client.query({ name: "snapshot", text: snapshotText });
    return rows[0] as { world: unknown; violations: string[] | null };
  }
}

interface ClaimedRow {
  job_id: string;
  lease_id: string;
  epoch: string | number;
  attempt: number;
  crashes: number;
}

/** Undefined when no entry has one. */
function withoutNulls(labels: (string | null)[]) {
  return labels.some((label) => label !== null) ? labels : undefined;
}

function claimValues({ worker, pool, pipelines, limit, lease, cutOff }: ClaimOptions): unknown[] {
  return [worker, pool, pipelines, limit, milliseconds(lease), cutOff ? [null] : []];
}

function settlementValue({ job, epoch, lease, ...outcome }: Settlement): object {
  const handle = { job, epoch, lease, outcome: outcome.outcome };
  switch (outcome.outcome) {
    case "completed":
      return { ...handle, output: outcome.output };
    case "failed":
      return {
        ...handle,
        failure: { code: outcome.failure, message: "as asked" },
        fatal: outcome.fatal,
        retry_in: outcome.retryIn === null ? null : milliseconds(outcome.retryIn),
      };
    case "lost":
      return { ...handle, failure: { code: outcome.failure, message: "as asked" } };
    case "slept":
      return { ...handle, for: milliseconds(outcome.for), waiting_for: outcome.waitingFor };
    case "paused":
      return {
        ...handle,
        reason: outcome.reason,
        resume_in: outcome.resumeIn === null ? null : milliseconds(outcome.resumeIn),
      };
    default:
      return handle;
  }
}

function milliseconds(ms: number): string {
  return `${ms} milliseconds`;
}

export const snapshotText = `
select json_build_object(
  'jobs', (select coalesce(json_agg(json_build_object(
      'id', j.id, 'pipeline', j.pipeline, 'pool', j.pool, 'state', j.state, 'waitingFor', j.waiting_for, 'priority', j.priority,
      'runAt', since_start(j.run_at), 'orderAt', since_start(l.order_at), 'expiresAt', since_start(j.expires_at), 'startedAt', since_start(j.started_at),
      'claimedAt', since_start(j.claimed_at), 'endedAt', since_start(j.ended_at), 'attempt', j.attempt, 'maxAttempts', j.max_attempts,
      'crashes', j.crashes, 'epoch', j.epoch, 'worker', j.worker, 'lease', l.lease_id, 'key', j.key, 'tenant', j.tenant, 'slot', l.key_slot, 'idempotencyKey', j.idempotency_key,
      'failure', j.failure ->> 'code', 'output', j.output, 'cancel', j.cancel ->> 'reason', 'progress', j.progress -> 'fraction', 'seq', j.seq,
      'pause', case when j.pause is not null then json_build_object('reason', j.pause ->> 'reason', 'waitingFor', j.pause ->> 'waiting_for',
        'resumeAt', since_start((j.pause ->> 'resume_at')::timestamptz)) end,
      'feed', array(select f.kind || '@' || f.epoch from stillwake.feed f where f.job_id = j.id order by f.seq),
      'attempts', array(select a.epoch || ':' || a.attempt || ':' || a.worker || ':' || coalesce(a.outcome, 'running')
        from stillwake.attempts a where a.job_id = j.id order by a.epoch),
      'checkpoints', array(select c.step || '=' || (c.output #>> '{}') || '@' || c.epoch from stillwake.checkpoints c where c.job_id = j.id order by 1)
    ) order by j.id), '[]')
    from stillwake.jobs j left join stillwake.live_jobs l using (id)),
  'leases', (select coalesce(json_agg(json_build_object('id', id, 'pool', pool, 'worker', worker, 'until', since_start(until),
      'span', extract(epoch from span) * 1000, 'jobs', array(select unnest(job_ids) order by 1)) order by id), '[]') from stillwake.leases),
  'keys', (select coalesce(json_agg(pipeline || '/' || tenant || '/' || key || '=' || job_id order by (pipeline || '/' || tenant || '/' || key || '=') collate "C"), '[]') from stillwake.idempotency_keys),
  'pausedPools', (select coalesce(json_agg(name order by name), '[]') from stillwake.pools where paused_at is not null)
) as world, (select array_agg(violation) from (${violationsText}) v) as violations`;
