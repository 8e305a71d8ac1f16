// Invariants of spawns, events and positions that hold at any time, checked on the tables, without the model.
import type pg from "pg";
import { violationsText } from "../invariants.ts";

/** Returns one row per violation, including those of invariants.ts. */
export const longWorkText = `
  ${violationsText}
  union all
  select 'wake: ' || j.id || ' waits for "' || j.awaits || '", which is over' from stillwake.live_jobs j
  where j.state = 'queued' and j.waiting_for = 'children' and j.run_at > stillwake.now()
    and not exists (select from stillwake.spawns s where s.job_id = j.id and s.name = j.awaits and not stillwake.spawn_is_over(s))
  union all
  select 'wake: ' || j.id || ' waits for "' || j.awaits || '", of which nobody is left' from stillwake.live_jobs j join stillwake.spawns s on s.job_id = j.id and s.name = j.awaits
  where j.state = 'queued' and j.waiting_for = 'children' and j.run_at > stillwake.now() and s.spawned = s.total
    and not exists (select from stillwake.live_jobs c where c.parent_id = j.id and c.spawn = j.awaits)
  union all
  select 'wake: ' || j.id || ' waits for "' || j.awaits || '", which was said' from stillwake.live_jobs j
  where j.state = 'queued' and j.waiting_for = 'event' and j.run_at > stillwake.now()
    and exists (select from stillwake.signals s where s.job_id = j.id and s.name = j.awaits and s.taken_by is null)
  union all
  select 'wake: ' || j.id || ' waits for ever and for nothing' from stillwake.live_jobs j
  where j.state = 'queued' and j.run_at = 'infinity' and (j.waiting_for is null or j.waiting_for in ('children', 'event') and j.awaits is null)
  union all
  select 'cancel: ' || j.id || ' has a cancel request and waits in the queue' from stillwake.live_jobs j where j.lease_id is null and j.cancel is not null
  union all
  select 'count: part ' || p.part || ' of ' || p.job_id || '/' || p.name || ' has ' || array_to_string(p.counts, ', ') || ', and there are ' || array_to_string(c.counts, ', ')
  from (select job_id, name, part, array[open, completed, failed, cancelled] as counts from stillwake.spawn_parts) p
  cross join lateral (
    select array[count(*) filter (where j.state in ('queued', 'running', 'paused')), count(*) filter (where j.state = 'completed'),
      count(*) filter (where j.state = 'failed'), count(*) filter (where j.state = 'cancelled')]::integer[] as counts
    from (select state, child_no, parent_id, spawn from stillwake.live_jobs union all select state, child_no, parent_id, spawn from stillwake.ended_jobs) j
    where j.parent_id = p.job_id and j.spawn = p.name and j.child_no / 128 = p.part
  ) c where c.counts <> p.counts
  union all
  select 'count: ' || s.job_id || '/' || s.name || ' has ' || s.open_parts || ' open parts, ' || s.spawned || ' of ' || s.total || ', failed: ' || s.failed
  from stillwake.spawns s
  cross join lateral (
    select count(*) filter (where p.open > 0) as open, coalesce(sum(p.open + p.completed + p.failed + p.cancelled), 0) as children, coalesce(sum(p.failed + p.cancelled), 0) > 0 as failed
    from stillwake.spawn_parts p where p.job_id = s.job_id and p.name = s.name
  ) p where p.open <> s.open_parts or p.children <> s.spawned or s.spawned > s.total or s.on_error = 'fail' and p.failed <> s.failed
  union all
  select 'count: ' || c.parent_id || '/' || c.spawn || ' has ' || count(*) || ' children ' || c.child_no
  from (select parent_id, spawn, child_no from stillwake.live_jobs union all select parent_id, spawn, child_no from stillwake.ended_jobs) c
  left join stillwake.spawns s on s.job_id = c.parent_id and s.name = c.spawn
  where c.parent_id is not null group by s.job_id, c.parent_id, c.spawn, c.child_no, s.spawned
  having count(*) > 1 or s.job_id is null or c.child_no not between 0 and s.spawned - 1
  union all
  select 'signal: step "' || s.taken_by || '" of ' || s.job_id || ' has ' || count(*) || ' signals' from stillwake.signals s where s.taken_by <> '' group by s.job_id, s.taken_by having count(*) > 1
  union all
  select 'signal: step "' || s.taken_by || '" of ' || s.job_id || ' has a signal and no result' from stillwake.signals s
  where s.taken_by <> '' and not exists (select from stillwake.checkpoints c where c.job_id = s.job_id and c.step = s.taken_by and c.output #>> '{$stillwake,0}' is distinct from 'wait')`;

/** Unless a child was retried alone: the children of a failed or cancelled parent have ended, or are being cancelled. */
const orphansText = `
  select 'cancel: ' || c.id || ' goes on, and its parent has ' || e.state as violation from stillwake.live_jobs c join stillwake.ended_jobs e on e.id = c.parent_id
  where e.state <> 'completed' and c.cancel is null`;

export async function longWorkViolations(client: pg.ClientBase, alsoOrphans: boolean): Promise<string[]> {
  const text = alsoOrphans ? `${longWorkText} union all ${orphansText}` : longWorkText;
  const { rows } = await client.query({ name: alsoOrphans ? "long work, orphans" : "long work", text });
  return rows.map(({ violation }) => violation);
}
