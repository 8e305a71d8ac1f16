// The engine with one thing broken at a time. Each mutant is a promise taken back, with the test that must notice. `npm run mutants` breaks
// them one by one: a test that lets its mutant live proves nothing, whatever it says about the real engine.
//
// An edit replaces one text by another, and the text must be there exactly once: whoever changes the engine is told here.

const MODEL = "test/model/model.test.ts";
const LEASE = "test/lease.test.ts";
const ATTEMPTS = "test/attempts.test.ts";
const CLAIM = "test/claim.test.ts";
const INTERLEAVE = "test/interleave.test.ts";
const WORKER = "test/worker-verbs.test.ts";
const KEYS = "test/model/keys.test.ts";
const KEYS_INTERLEAVE = "test/keys-interleave.test.ts";
const FLOW = "test/model/flow.test.ts";
const GATES = "test/gates-interleave.test.ts";
const LANES = "test/lanes.test.ts";
const FLOW_COST = "test/flow-cost.test.ts";

const inFile = (file) => (old, text) => ({ file, old, new: text });
const breakers = inFile("sql/functions/breakers.sql");
const claim = inFile("sql/functions/claim.sql");
const clock = inFile("sql/functions/clock.sql");
const control = inFile("sql/functions/control.sql");
const enqueue = inFile("sql/functions/enqueue.sql");
const feed = inFile("sql/functions/feed.sql");
const keys = inFile("sql/functions/keys.sql");
const lanes = inFile("sql/functions/lanes.sql");
const lease = inFile("sql/functions/lease.sql");
const limits = inFile("sql/functions/limits.sql");
const settle = inFile("sql/functions/settle.sql");
const watchdog = inFile("sql/functions/watchdog.sql");

// `only` names the test within the file where another would notice first, or where the file is long.
/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const mutants = [
  {
    name: "completion checks only that the job runs",
    killedBy: MODEL,
    edits: [
      settle(
        "where j.id = e.id and j.epoch = e.epoch and j.lease_id is not distinct from e.lease",
        "where j.id = e.id and (j.lease_id is null) = (e.lease is null)",
      ),
    ],
  },
  {
    name: "completion is fenced by the attempt's number",
    killedBy: LEASE,
    only: "attempt's number",
    edits: [
      settle(
        "where j.id = e.id and j.epoch = e.epoch and j.lease_id is not distinct from e.lease",
        `where j.id = e.id and (j.lease_id is null) = (e.lease is null)
      and j.attempt = (select a.attempt from stillwake.attempts a where a.job_id = e.id and a.epoch = e.epoch)`,
      ),
    ],
  },
  {
    name: "completion ignores the lease and trusts the epoch",
    killedBy: MODEL,
    edits: [settle("and j.epoch = e.epoch and j.lease_id is not distinct from e.lease", "and j.epoch = e.epoch")],
  },
  {
    name: "no fence on the way of failure",
    killedBy: MODEL,
    edits: [
      settle(
        "and j.epoch = (p ->> 'epoch')::bigint and j.lease_id = (p ->> 'lease')::uuid for update",
        "and j.lease_id is not null for update",
      ),
    ],
  },
  {
    name: "no fence on checkpoints",
    killedBy: MODEL,
    edits: [
      feed(
        "where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)\n    from unnest",
        "where j.id = c.job and j.lease_id is not null)\n    from unnest",
      ),
    ],
  },
  {
    name: "no fence on logs",
    killedBy: LEASE,
    edits: [
      feed(
        "where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease\n    returning",
        "where j.id = v_batch.job\n    returning",
      ),
    ],
  },
  {
    name: "no fence on progress",
    killedBy: LEASE,
    edits: [feed("where id = p_job and epoch = p_epoch and lease_id = p_lease;", "where id = p_job;")],
  },
  {
    name: "a checkpoint does not hold its lease until it is committed",
    killedBy: INTERLEAVE,
    edits: [
      feed(
        "where l.id = any (p_leases) order by l.id for no key update;",
        "where l.id = any (p_leases) order by l.id;",
      ),
    ],
  },
  {
    name: "a checkpoint that is late but not replaced is refused",
    killedBy: MODEL,
    edits: [
      feed(
        "where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)\n    from unnest",
        "join stillwake.leases l on l.id = j.lease_id and l.until >= v_now where j.id = c.job and j.epoch = c.epoch and j.lease_id = c.lease)\n    from unnest",
      ),
    ],
  },
  {
    name: "a checkpoint is overwritten",
    killedBy: MODEL,
    edits: [
      feed(
        "on conflict do nothing\n    returning checkpoints.job_id",
        "on conflict on constraint checkpoints_pkey do update set output = excluded.output\n    returning checkpoints.job_id",
      ),
    ],
  },
  {
    name: "log numbers are taken under no lock",
    killedBy: INTERLEAVE,
    edits: [
      feed(
        "where l.id in (select (b ->> 'lease')::uuid from jsonb_array_elements(p_batches) b) order by l.id for no key update;",
        "where l.id in (select (b ->> 'lease')::uuid from jsonb_array_elements(p_batches) b) order by l.id;",
      ),
      feed(
        `update stillwake.live_jobs j set seq = j.seq + jsonb_array_length(v_batch.lines), log_batch = coalesce(v_batch.batch, j.log_batch),
      progress = coalesce(nullif(v_batch.progress, 'null') || jsonb_build_object('at', v_now), j.progress)
    where`,
        "select coalesce((select max(f.seq) from stillwake.feed f where f.job_id = j.id), 0) + jsonb_array_length(v_batch.lines) into last_seq\n    from stillwake.live_jobs j where",
      ),
      feed(
        "and j.lease_id = v_batch.lease\n    returning j.seq into last_seq;",
        "and j.lease_id = v_batch.lease;\n    update stillwake.live_jobs j set seq = last_seq where j.id = v_batch.job and last_seq is not null;",
      ),
    ],
  },
  {
    name: "recovery takes what its lease does not hold",
    killedBy: ATTEMPTS,
    edits: [
      lease("where j.id = any (p_lease.job_ids) and j.lease_id = p_lease.id", "where j.id = any (p_lease.job_ids)"),
    ],
  },
  {
    name: "recovery takes leases that have not run out",
    killedBy: MODEL,
    edits: [lease("where l.until < v_now and v_now >", "where v_now >")],
  },
  {
    name: "recovery does not look again once it has the lock",
    killedBy: INTERLEAVE,
    edits: [
      lease(
        "where l.until < v_now and v_now > pg_postmaster_start_time() + l.span and (p_pool is null or l.pool = p_pool)\n    order by l.until limit p_limit for update skip locked",
        "where l.id = any (array(select d.id from stillwake.leases d where d.until < v_now and (p_pool is null or d.pool = p_pool)))\n    order by l.until limit p_limit for update",
      ),
    ],
  },
  {
    name: "a recovered job goes to the tail of the line",
    killedBy: CLAIM,
    only: "T4",
    edits: [settle("requeue(p_job, 'lost', p_job.run_at,", "requeue(p_job, 'lost', stillwake.now(),")],
  },
  {
    name: "a recovered job gets its attempt back",
    killedBy: MODEL,
    edits: [settle("'lost', p_job.run_at, null, false, p_failure)", "'lost', p_job.run_at, null, true, p_failure)")],
  },
  {
    name: "crashes are not counted",
    killedBy: ATTEMPTS,
    edits: [settle("set crashes = crashes + 1 where", "set crashes = crashes where")],
  },
  {
    name: "the crash limit is ignored",
    killedBy: MODEL,
    edits: [settle("if p_job.crashes >= v_limit then", "if false then")],
  },
  {
    name: "the epoch is given back with the attempt",
    killedBy: MODEL,
    edits: [
      settle(
        "attempt = attempt - case when p_give_back then 1 else 0 end,",
        "attempt = attempt - case when p_give_back then 1 else 0 end, epoch = epoch - case when p_give_back then 1 else 0 end,",
      ),
    ],
  },
  {
    name: "a release costs an attempt",
    killedBy: ATTEMPTS,
    edits: [settle("'released', v_job.run_at, null, true,", "'released', v_job.run_at, null, false,")],
  },
  {
    name: "the attempt is not counted at the claim",
    killedBy: MODEL,
    edits: [claim("attempt = j.attempt + 1, worker", "attempt = j.attempt, worker")],
  },
  {
    name: "a lease is left behind at the settlement",
    killedBy: MODEL,
    edits: [settle("perform stillwake.leave_lease(v_job.lease_id, array[v_job.id]);", "")],
  },
  {
    name: "a repeated settlement is refused",
    killedBy: LEASE,
    edits: [
      settle(
        "return coalesce(stillwake.settled_before((p ->> 'job')::uuid, (p ->> 'epoch')::bigint, (p ->> 'lease')::uuid, v_outcome), 'lost');",
        "return 'lost';",
      ),
    ],
  },
  {
    name: "a breaker's pause takes the place of an operator's",
    killedBy: ATTEMPTS,
    edits: [settle("if v_job.pause is not null or exists", "if exists")],
  },
  {
    name: "a beat tells nobody that the lease is lost",
    killedBy: MODEL,
    edits: [
      lease(
        "where j.id is null or j.cancel is not null or j.pause is not null or",
        "where j.cancel is not null or j.pause is not null or",
      ),
    ],
  },
  {
    name: "a beat brings a lost lease back",
    killedBy: LEASE,
    edits: [
      lease(
        "update stillwake.leases l set until = stillwake.now() + l.span, presence = p_presence, absent_since = null where l.id = any (v_leases);",
        `insert into stillwake.leases (id, pool, worker, claimed_at, until, span, job_ids)
  select b.lease, j.pool, 'back', stillwake.now(), stillwake.now(), '15 seconds', array[b.job]
  from unnest(p_jobs, p_epochs, p_leases) as b (job, epoch, lease) join stillwake.live_jobs j on j.id = b.job and j.epoch = b.epoch and j.lease_id is null
  on conflict do nothing;
  update stillwake.live_jobs j set state = 'running', lease_id = l.id from stillwake.leases l
  where l.id = any (p_leases) and j.id = any (l.job_ids) and j.lease_id is null;
  update stillwake.leases l set until = stillwake.now() + l.span where l.id = any (p_leases);`,
      ),
    ],
  },
  {
    name: "the clock stands still inside a transaction",
    killedBy: "test/clock.test.ts",
    edits: [clock("select clock_timestamp()", "select now()")],
  },
  {
    name: "a claim limits in an IN subquery",
    killedBy: CLAIM,
    only: "T5",
    edits: [
      claim(
        "    where j.id = any (v_ids)\n",
        `    where j.id in (
      select k.id from stillwake.live_jobs k
      where k.pool = p_pool and k.run_at <= v_now and k.lease_id is null and k.pipeline = any (p_pipelines) and (k.expires_at is null or k.expires_at > v_now)
      order by k.priority desc, k.run_at, k.id limit p_limit for update skip locked)\n`,
      ),
    ],
  },
  {
    name: "a claim does not lock what it chooses",
    killedBy: CLAIM,
    only: "T5",
    edits: [claim("\n      for update skip locked", "")],
  },
  {
    name: "a claim waits for a locked job",
    killedBy: CLAIM,
    only: "the line",
    edits: [claim("\n      for update skip locked", "\n      for update")],
  },
  {
    name: "a claim takes the newest first",
    killedBy: CLAIM,
    only: "the line",
    edits: [claim("order by j.run_at, j.id\n", "order by j.run_at desc, j.id\n")],
  },
  {
    name: "an idempotency key seen before makes a second job",
    killedBy: MODEL,
    edits: [enqueue("select coalesce(k.job_id, i.id)", "select i.id")],
  },
  {
    name: "cancelling a running job ends it at once",
    killedBy: MODEL,
    edits: [
      control(
        "if v_job.lease_id is not null then\n    perform stillwake.hint_worker(v_job.worker);\n    return 'running';\n  end if;\n  return stillwake.end_job",
        "return stillwake.end_job",
      ),
    ],
  },
  {
    name: "a job that moves while a verb looks for it does not exist",
    killedBy: INTERLEAVE,
    only: "moves while",
    edits: [control("if stillwake.job_exists(p_id) then", "if false then")],
  },
  {
    name: "leases are locked in no common order",
    killedBy: "test/conflict.test.ts",
    edits: [
      settle(
        "where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id for update;",
        "where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id desc for update;",
      ),
    ],
  },
  {
    name: "a week is forgotten before its time",
    killedBy: "test/prune.test.ts",
    edits: [watchdog("then p.week <= v_today", "then p.week - 14 <= v_today")],
  },
  {
    name: "a settlement without a lease may end a job that waits",
    killedBy: "test/lease.test.ts",
    edits: [settle("or array_position(v_leases, null) is not null then", "then")],
  },
  {
    name: "a repeated settlement is told by its epoch alone",
    killedBy: "test/lease.test.ts",
    edits: [settle("e.epoch = p_epoch and e.lease_id = p_lease", "e.epoch = p_epoch and e.claimed_at is not null")],
  },
  {
    name: "a job that was started expires all the same",
    killedBy: "test/recovery.test.ts",
    edits: [
      lease(
        "where j.expires_at <= v_now and j.started_at is null",
        "where j.expires_at <= v_now and j.lease_id is null",
      ),
    ],
  },
  {
    name: "one job that cannot be recovered stops its pool",
    killedBy: "test/recovery.test.ts",
    edits: [lease("when others then\n      raise warning", "when division_by_zero then\n      raise warning")],
  },
  {
    name: "an outage of Postgres counts as the death of every worker",
    killedBy: "test/recovery.test.ts",
    edits: [lease("v_now > pg_postmaster_start_time() + l.span", "true")],
  },
  {
    name: "an old id that is enqueued again makes a second job",
    killedBy: "test/recovery.test.ts",
    edits: [enqueue("if p_ids is not null and not v_again then", "if false then")],
  },
  {
    name: "a repeated claim leases other jobs to nobody",
    killedBy: CLAIM,
    edits: [claim("if p_lease is not null and exists", "if false and exists")],
  },
  {
    name: "failed jobs are kept as long as completed ones",
    killedBy: "test/prune.test.ts",
    edits: [settle("when 'failed' then p.keep_failed", "when 'failed' then p.keep_completed")],
  },
  {
    name: "I7: a batch of lines sent again is written again",
    killedBy: WORKER,
    edits: [feed("and j.log_batch >= v_batch.batch;", "and false;")],
  },
  {
    name: "I7: the number of a batch survives its attempt",
    killedBy: WORKER,
    edits: [claim("place = null, log_batch = 0,", "place = null,")],
  },
  {
    name: "a session that broke counts as the death of its worker",
    killedBy: WORKER,
    edits: [lease("elsif v_lease.absent_since <= v_now - p_grace then", "else")],
  },
  {
    name: "a worker that beats after its session broke is taken for dead",
    killedBy: WORKER,
    edits: [lease("presence = p_presence, absent_since = null", "presence = coalesce(p_presence, l.presence)")],
  },
  {
    name: "the restart of Postgres counts as the death of all sessions",
    killedBy: WORKER,
    edits: [lease("or v_now <= pg_postmaster_start_time() + v_lease.span", "")],
  },
  {
    name: "a job is given to code older than the code that began it",
    killedBy: WORKER,
    edits: [claim("and p_versions[array_position(p_pipelines, p_pipeline)], true)", "and 2147483647, true)")],
  },
  {
    name: "I8: an artifact's row is written for an attempt that was replaced",
    killedBy: WORKER,
    edits: [
      feed(
        `  if not stillwake.holds(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  insert into stillwake.artifacts`,
        "  insert into stillwake.artifacts",
      ),
    ],
  },
  {
    name: "a step in the user's transaction is kept twice",
    killedBy: WORKER,
    edits: [feed("if v_result = 'kept' then", "if false then")],
  },
  {
    name: "a job that slept sleeps again",
    killedBy: WORKER,
    edits: [settle("if p ->> 'step' is not null then", "if false then")],
  },
  {
    name: "I4: the settlement of an attempt overtakes the result of its step",
    killedBy: "test/limits.test.ts",
    only: "I4",
    edits: [
      { file: "src/worker/keeper.ts", old: "const saves = running.saved();", new: "const saves = undefined;" },
      { file: "src/worker/steps.ts", old: "if (options.timeout !== undefined) port.limit(name, null);", new: "" },
    ],
  },
  {
    name: "a beat waits for a lease that somebody holds",
    killedBy: "test/limits.test.ts",
    only: "lingering",
    edits: [lease("set lock_timeout = '500ms' as", "set lock_timeout = '20s' as")],
  },
  {
    name: "a worker that ends stays listed",
    killedBy: "test/listen.test.ts",
    only: "leaves no listener",
    edits: [
      { file: "src/direct.ts", old: "if (listed) await client.query(leave, [worker]).catch(() => {});", new: "" },
    ],
  },
  {
    name: "keys: an end does not take the lock of its key",
    killedBy: KEYS_INTERLEAVE,
    only: "nobody waits",
    edits: [
      keys(
        "perform case when l.shared then pg_advisory_xact_lock_shared(l.lock) else pg_advisory_xact_lock(l.lock) end from (",
        "perform l.lock from (",
      ),
    ],
  },
  {
    name: "keys: who begins to wait does not look again at the commit",
    killedBy: KEYS_INTERLEAVE,
    only: "nobody waits",
    edits: [keys("perform stillwake.fill_key(new.pipeline, new.key);", "")],
  },
  {
    name: "keys: one place that somebody took counts for all",
    killedBy: KEYS_INTERLEAVE,
    only: "both free",
    edits: [keys("v_taken := v_slot;", "exit;")],
  },
  {
    name: "keys: all who wait are admitted, whatever the limit",
    killedBy: KEYS,
    edits: [
      keys(
        "v_most  integer := (select key_limit from stillwake.pipelines where name = p_pipeline);",
        "v_most  integer := 1000;",
      ),
    ],
  },
  {
    name: "keys: an ended job gives its place to nobody",
    killedBy: KEYS,
    edits: [
      settle(
        "if v_keys is not null then\n    perform stillwake.pass_keys",
        "if false then\n    perform stillwake.pass_keys",
      ),
    ],
  },
  {
    name: "keys: the last who came is admitted first",
    killedBy: KEYS,
    edits: [
      keys(
        "order by j.place, j.id limit cardinality(f.slots) for update skip locked",
        "order by j.place desc, j.id desc limit cardinality(f.slots) for update skip locked",
      ),
    ],
  },
  {
    name: "keys: who is resumed does not look whether its key is free",
    killedBy: KEYS,
    edits: [
      control("    if v_waits then\n      perform stillwake.fill_key(v_job.pipeline, v_job.key);\n    end if;\n", ""),
    ],
  },
  {
    name: "keys: a job that is retried has no place",
    killedBy: KEYS,
    edits: [
      control("    perform stillwake.fill_key(v_old.pipeline, v_old.key);", "    null;"),
      keys("perform stillwake.fill_key(new.pipeline, new.key);", ""),
    ],
  },
  {
    name: "keys: who wait for their key are locked while lanes are given out",
    killedBy: KEYS_INTERLEAVE,
    only: "gives out lanes",
    edits: [
      lanes("and (j.key is null or j.key_slot is not null or j.state = 'paused') and j.lane is", "and j.lane is"),
    ],
  },
  {
    name: "limits: a use counts as if it were made when it is granted",
    killedBy: FLOW,
    edits: [
      limits(
        "v_span interval := p_limit.period + stillwake.use_within(p_limit.period);",
        "v_span interval := p_limit.period;",
      ),
      limits("v_span := v_limit.period + stillwake.use_within(v_limit.period);", "v_span := v_limit.period;"),
    ],
  },
  {
    name: "limits: a lost lease keeps its calls under way",
    killedBy: FLOW,
    edits: [
      limits(
        "where h.name = p_limit.name and exists (select from stillwake.live_jobs j where j.id = h.job_id and j.lease_id = h.lease_id);",
        "where h.name = p_limit.name;",
      ),
    ],
  },
  {
    name: "limits: all go first into a window that nothing is known of",
    killedBy: FLOW,
    edits: [limits("free := least(free, 1 - v_out);", "free := least(free, 100 - v_out);")],
  },
  {
    name: "limits: unused uses are taken off the newest bin",
    killedBy: FLOW,
    edits: [
      limits("v_place := array_position(v_limit.marks, p_mark);", "v_place := nullif(cardinality(v_limit.marks), 0);"),
    ],
  },
  {
    name: "limits: the last answer counts, not the least",
    killedBy: FLOW,
    edits: [limits("p_limit.remaining := least(p_limit.remaining, v_left);", "p_limit.remaining := v_left;")],
  },
  {
    name: "limits: calls under way are not taken off what is left",
    killedBy: FLOW,
    edits: [limits("free := least(free, p_limit.remaining - v_out);", "free := least(free, p_limit.remaining);")],
  },
  {
    name: "limits: what an answer does not tell is a number",
    killedBy: FLOW,
    edits: [
      limits(
        "case when p_told ->> 'remaining' is not null then least((p_told ->> 'remaining')::numeric, 2147483647)::integer end;",
        "least((p_told ->> 'remaining')::numeric, 2147483647)::integer;",
      ),
    ],
  },
  {
    name: "limits: two that ask at once both see what is free",
    killedBy: GATES,
    edits: [limits("where l.name = p_limit for no key update;", "where l.name = p_limit;")],
  },
  {
    name: "breakers: several go first",
    killedBy: FLOW,
    edits: [
      breakers(
        "select p_breaker.probe_job is not null and exists (select from stillwake.live_jobs j where j.id = p_breaker.probe_job and j.lease_id = p_breaker.probe_lease)",
        "select false",
      ),
    ],
  },
  {
    name: "breakers: two that claim at once both go first",
    killedBy: GATES,
    edits: [lanes("order by b.name for no key update;", "order by b.name;")],
  },
  {
    name: "breakers: the pause does not grow",
    killedBy: FLOW,
    edits: [
      breakers(
        "v_breaker.pause_first * power(v_breaker.growth::double precision, least(v_breaker.probes, 60))",
        "v_breaker.pause_first",
      ),
    ],
  },
  {
    name: "breakers: a success does not close it",
    killedBy: FLOW,
    edits: [breakers("    else\n      perform stillwake.set_closed(v_breaker);", "    else\n      null;")],
  },
  {
    name: "breakers: the jobs that need an open one are started",
    killedBy: FLOW,
    edits: [lanes("if p_pipeline.breakers <> '{}' then", "if false then")],
  },
  {
    name: "lanes: a cap is counted under no lock",
    killedBy: GATES,
    edits: [
      lanes(
        "perform pg_advisory_xact_lock(stillwake.cap_lock(p.name)) from (",
        "perform stillwake.cap_lock(p.name) from (",
      ),
    ],
  },
  {
    name: "lanes: the cap of a pool is counted under no lock",
    killedBy: GATES,
    edits: [claim("perform pg_advisory_xact_lock(stillwake.cap_lock('pool ' || p_pool));", "")],
  },
  {
    name: "lanes: every claim begins at the first lane",
    killedBy: LANES,
    edits: [lanes("coalesce(substr(p_cursor, strpos(p_cursor, '|') + 1), '')", "''")],
  },
  {
    name: "lanes: what a pick takes from a lane is not taken off the cap",
    killedBy: LANES,
    edits: [
      lanes(
        "        ids := ids || v_found;\n        if v_place is not null then\n          v_quotas[v_place] := v_quotas[v_place] - cardinality(v_found);\n        end if;\n        if v_half ? v_name then",
        "        ids := ids || v_found;\n        if v_half ? v_name then",
      ),
    ],
  },
  {
    name: "lanes: a lane whose rest was taken is visited again in the same claim",
    killedBy: LANES,
    only: "no job is in that twice",
    edits: [lanes("or v_lane = v_from and v_resting) then", ") then")],
  },
  {
    name: "lanes: the jobs of a lane are found along the line of all",
    killedBy: FLOW_COST,
    only: "whatever the statistics say",
    edits: [
      lanes(
        "order by j.lane, j.run_at, j.id limit p_limit for update skip locked",
        "order by j.run_at, j.id limit p_limit for update skip locked",
      ),
    ],
  },
  {
    name: "lanes: a claim goes through all lanes that sleep",
    killedBy: FLOW_COST,
    only: "however many tenants sleep",
    edits: [lanes("if v_idle = 64 then", "if v_idle = 1000000 then")],
  },
  {
    name: "lanes: a claim that has met enough lanes that sleep begins at the same place next time",
    killedBy: FLOW_COST,
    only: "however many tenants sleep",
    edits: [lanes("cursor := '0|' || v_at;", "null;")],
  },
  {
    name: "lanes: weights do not count",
    killedBy: LANES,
    only: "as they weigh",
    edits: [lanes("      if v_weighted then", "      if false then")],
  },
  {
    name: "keys: each job of a call is compared with each",
    killedBy: FLOW_COST,
    only: "(join)",
    edits: [
      keys(
        "from wanted w where w.id not in (select s.id from stored s);",
        "from wanted w left join stored s on s.id = w.id where s.id is null;",
      ),
    ],
  },
];
