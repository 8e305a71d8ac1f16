// The engine of the game of spawns, events and positions: the calls as SQL, and their whole state read in one statement.
import pg from "pg";
import { stopClock } from "../../../src/testing/index.ts";
import { longWorkText } from "./invariants.ts";
import { FOREVER, type Handle, limits, type OnError, type PlaceCall } from "./world.ts";

const ms = (value: number) => `${value} milliseconds`;
export const TABLES = [
  ..."live_jobs leases ended_jobs ended_attempts checkpoints feed spawns spawn_parts signals".split(" "),
];

export class SpawnEngine {
  readonly #client: pg.Client;
  #resets = 0;
  /** The start of every game, in milliseconds of the wall clock. */
  #origin = 0;

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
    await this.#client.query("select stillwake.register_pipeline('tree', $1)", [
      { max_attempts: limits.attempts, crash_limit: limits.crashes },
    ]);
    this.#origin = Number(await this.#value("select extract(epoch from stillwake.now()) * 1000"));
    await this.#client.query(`create function since_start(timestamptz) returns float8 language sql immutable as
      $f$ select case when $1 = 'infinity' then ${FOREVER} else extract(epoch from $1) * 1000 - ${this.#origin} end $f$`);
  }

  async close(): Promise<void> {
    await this.#client.end();
  }

  async reset(): Promise<void> {
    // The same ids are used in each game, and their dead rows slow down every query.
    if (this.#resets++ % 5 === 4)
      await this.#client.query(`vacuum ${TABLES.map((table) => `stillwake.${table}`).join(", ")}`);
    await this.#client.query(
      `${TABLES.map((table) => `delete from stillwake.${table}`).join("; ")}; update stillwake.test_clock set shift = '0'`,
    );
  }

  async travel(by: number): Promise<void> {
    await this.#client.query("update stillwake.test_clock set shift = shift + $1", [ms(by)]);
  }

  enqueue(id: string) {
    return this.#ask<string[]>("stillwake.enqueue_many('tree', '[{}]', '{}', array[$1::uuid])", [id]);
  }

  recover() {
    return this.#ask<number>("stillwake.recover()", []);
  }

  async claim(limit: number, span: number): Promise<Handle[]> {
    const { rows } = await this.#client.query({
      name: "claim",
      text: "select job_id as job, epoch::integer, lease_id as lease from stillwake.claim('w', 'default', '{tree}', $1, $2)",
      values: [limit, ms(span)],
    });
    return rows;
  }

  /** The new state of each job, in order. */
  async settle(settlements: (Handle & { outcome: string; until?: number; [more: string]: unknown })[]) {
    const sent = settlements.map(({ until, ...rest }) => ({
      ...rest,
      ...(until !== undefined && { until: new Date(this.#origin + until).toISOString() }),
    }));
    const { rows } = await this.#client.query({
      name: "settle",
      text: "select job_id, state from stillwake.settle($1)",
      values: [JSON.stringify(sent)],
    });
    return settlements.map(({ job }) => rows.find(({ job_id }) => job_id === job)?.state as string);
  }

  spawn({ job, epoch, lease }: Handle, name: string, ids: string[], from: number, total: number, onError: OnError) {
    const inputs = JSON.stringify(ids.map(() => ({})));
    return this.#ask<number>("stillwake.spawn($1, $2, $3, $4, 'tree', $5, '{}', $6, $7, $8, $9)", [
      ...[job, epoch, lease, name, inputs, ids],
      ...[from, total, onError],
    ]);
  }

  spawnState({ job, epoch, lease }: Handle, name: string) {
    return this.#ask<(number | boolean)[] | null>(
      "(select json_build_array(over, total, completed, failed, cancelled) from stillwake.spawn_state($1, $2, $3, $4))",
      [job, epoch, lease, name],
    );
  }

  /** Numbers and states, as the parent reads them. */
  loadChildren({ job, epoch, lease }: Handle, name: string, failed: boolean) {
    return this.#ask<string[] | null>(
      "(select array_agg(child_no || ' ' || state order by child_no) from stillwake.load_children($1, $2, $3, $4, -1, 500, $5))",
      [job, epoch, lease, name, failed],
    );
  }

  children(job: string) {
    return this.#ask<Record<string, number> | null>("stillwake.children($1)", [job]);
  }

  control(verb: "cancel" | "retry" | "pause" | "resume", job: string) {
    return this.#ask<string>(`stillwake.${verb}($1)`, [job]);
  }

  retryFromStart(job: string) {
    return this.#ask<string>("stillwake.retry($1, true)", [job]);
  }

  signal(job: string, name: string, id: string) {
    return this.#ask<string>("stillwake.signal($1, $2, '1', null, $3)", [job, name, id]);
  }

  look({ job, epoch, lease }: Handle, name: string, step: string, timeout: number | null) {
    return this.#ask<(string | number | null)[]>(
      "(select json_build_array(answer, id, since_start(until)) from stillwake.find_signal($1, $2, $3, $4, $5, $6))",
      [job, epoch, lease, name, step, timeout === null ? null : ms(timeout)],
    );
  }

  take({ job, epoch, lease }: Handle, step: string, id: string, accepted: boolean) {
    return this.#ask<string>("stillwake.take_signal($1, $2, $3, $4, $5, $6, $7)", [
      ...[job, epoch, lease, step, id],
      ...[JSON.stringify(id), accepted],
    ]);
  }

  savePlace({ job, epoch, lease }: Handle, step: string, { from, to, last, over, value }: PlaceCall) {
    return this.#ask<string>("stillwake.save_position($1, $2, $3, $4, $5, $6, $7, $8, $9)", [
      ...[job, epoch, lease, step, from, to, last, over, value],
    ]);
  }

  /** The state in the shape of `describeSpawns`, and violated invariants, independent of the model. */
  async snapshot() {
    const { rows } = await this.#client.query({ name: "snapshot", text: snapshotText });
    return rows[0] as { state: unknown; violations: string[] | null };
  }

  async #ask<Value>(text: string, values: unknown[]): Promise<Value | string> {
    try {
      return await this.#value<Value>(`select ${text}`, values);
    } catch (error) {
      const code = (error as { code?: string }).code ?? "";
      if (/^SW\d/.test(code)) return code;
      throw error;
    }
  }

  async #value<Value>(text: string, values: unknown[] = []): Promise<Value> {
    const { rows } = await this.#client.query({ name: text.slice(0, 60), text, values, rowMode: "array" });
    return rows[0]![0];
  }
}

const snapshotText = `
select json_build_object(
  'jobs', (select coalesce(json_object_agg(j.id, json_build_object(
      'parent', j.parent_id || '/' || j.spawn || '/' || j.child_no, 'state', j.state, 'epoch', j.epoch, 'attempt', j.attempt, 'crashes', j.crashes,
      'cancel', j.cancel is not null, 'pause', j.pause is not null, 'lease', j.lease_id,
      'waits', case when j.state = 'queued' and j.run_at > stillwake.now() then array[j.waiting_for, case when j.waiting_for in ('children', 'event') then j.awaits end] end,
      'runAt', since_start(j.run_at), 'orderAt', since_start(j.order_at)) order by j.id), '{}')
    from (
      select id, parent_id, spawn, child_no, state, epoch, attempt, crashes, cancel, pause, lease_id, waiting_for, awaits, run_at, order_at from stillwake.live_jobs
      union all select id, parent_id, spawn, child_no, state, epoch, attempt, crashes, cancel, null, lease_id, null, null, null, null from stillwake.ended_jobs
    ) j),
  'spawns', (select coalesce(json_object_agg(s.job_id || '/' || s.name, json_build_object('total', s.total, 'spawned', s.spawned, 'onError', s.on_error,
      'over', stillwake.spawn_is_over(s), 'openParts', s.open_parts,
      'parts', (select coalesce(json_agg(json_build_array(p.open, p.completed, p.failed, p.cancelled) order by p.part), '[]')
        from stillwake.spawn_parts p where p.job_id = s.job_id and p.name = s.name)) order by s.job_id, s.name), '{}') from stillwake.spawns s),
  'signals', (select coalesce(json_agg(json_build_array(s.job_id, s.id, s.name, s.taken_by) order by s.id), '[]') from stillwake.signals s),
  'steps', (select coalesce(json_object_agg(c.job_id || '/' || c.step, case c.output #>> '{$stillwake,0}'
      when 'wait' then json_build_array('wait', since_start((c.output #>> '{$stillwake,1}')::timestamptz))
      when 'position' then json_build_array('position', c.output #>> '{$stillwake,1,done}', c.output #> '{$stillwake,1,lasts}', coalesce(c.output #> '{$stillwake,1,over}', 'false'), c.value)
      when 'timeout' then json_build_array('timeout') else json_build_array('taken', c.output) end order by c.job_id, c.step), '{}') from stillwake.checkpoints c)
) as state, (select array_agg(violation) from (${longWorkText}) v) as violations`;
