// Invariants of the database that hold at any time, checked on the tables, without the model. For keys: no slot is assigned
// twice or beyond the limit, a job without a slot waits for one, and no job waits while a slot is free.
import type pg from "pg";

/** Returns one row per violation, prefixed with its subject. */
export const violationsText = `
  select 'state: ' || id || ' is live and ended' as violation from stillwake.live_jobs join stillwake.ended_jobs using (id)
  union all
  select 'state: ' || id || ' has ended ' || count(*) || ' times' from stillwake.ended_jobs group by id having count(*) > 1
  union all
  select 'fence: ' || job_id || ' was written by epoch ' || epoch || ' after epoch ' || before
  from (select job_id, epoch, lag(epoch) over (partition by job_id order by seq) as before from stillwake.feed) f where before > epoch
  union all
  select 'fence: ' || c.job_id || ' has a checkpoint of epoch ' || c.epoch || ' and is at ' || j.epoch
  from stillwake.checkpoints c join stillwake.jobs j on j.id = c.job_id where c.epoch > j.epoch
  union all
  select 'lease: ' || j.id || ' runs under a lease that does not list it'
  from stillwake.live_jobs j left join stillwake.leases l on l.id = j.lease_id and j.id = any (l.job_ids)
  where j.state = 'running' and l.id is null
  union all
  select 'lease: lease ' || l.id || ' lists ' || coalesce(i.id::text, 'nothing') || ', which it does not hold'
  from stillwake.leases l left join lateral unnest(l.job_ids) i (id) on true left join stillwake.live_jobs j on j.id = i.id and j.lease_id = l.id
  where j.id is null
  union all
  select 'lease: ' || job_id || ' has ' || count(*) || ' running attempts' from stillwake.attempts where outcome is null group by job_id having count(*) > 1
  union all
  select 'attempts: ' || j.id || ' is at attempt ' || j.attempt || ' of ' || j.max_attempts || ' with ' || j.crashes || ' crashes of ' || p.crash_limit
  from stillwake.jobs j join stillwake.pipelines p on p.name = j.pipeline where j.attempt not between 0 and j.max_attempts or j.crashes > p.crash_limit
  union all
  select 'feed: the feed of ' || j.id || ' has ' || f.lines || ' lines up to ' || f.last || ', its seq is ' || j.seq
  from stillwake.jobs j
  cross join lateral (select count(*) as lines, coalesce(max(seq), 0) as last from stillwake.feed where job_id = j.id) f
  where f.lines <> j.seq or f.last <> j.seq
  union all
  select 'key: ' || j.id || ' has slot ' || j.key_slot || ' of ' || p.key_limit || ' of key ' || coalesce(j.key, 'null')
  from stillwake.live_jobs j join stillwake.pipelines p on p.name = j.pipeline where j.key_slot not between 1 and p.key_limit or j.key is null and j.key_slot is not null
  union all
  select 'key: ' || count(*) || ' jobs of ' || j.pipeline || ' and ' || coalesce('tenant ' || j.tenant, 'no tenant') || ' have key ' || j.key || ', the limit is ' || p.key_limit
  from stillwake.live_jobs j join stillwake.pipelines p on p.name = j.pipeline where j.key_slot is not null
  group by j.pipeline, j.tenant, j.key, p.key_limit having count(*) > p.key_limit
  union all
  select 'key: ' || j.id || ' has no slot of its key and does not wait for one' from stillwake.live_jobs j
  where j.key is not null and j.key_slot is null
    and not (j.run_at = 'infinity' and j.order_at < 'infinity' and coalesce(j.waiting_for, j.pause ->> 'waiting_for') = 'key' and (j.state = 'paused') = (j.pause is not null))
  union all
  select 'key: ' || j.id || ' waits for key ' || j.key || ', which is free' from stillwake.live_jobs j join stillwake.pipelines p on p.name = j.pipeline
  where j.key_slot is null and j.key is not null and j.state = 'queued'
    and (select count(*) from stillwake.live_jobs h where h.pipeline = j.pipeline and h.tenant is not distinct from j.tenant and h.key = j.key and h.key_slot <= p.key_limit) < p.key_limit`;

export async function violations(client: pg.ClientBase | pg.Pool): Promise<string[]> {
  const { rows } = await client.query({ name: "violations", text: violationsText });
  return rows.map((row) => row.violation);
}
