// The engine with one thing broken at a time. Each mutant is a promise taken back, with the test that must notice. `npm run mutants` breaks
// them one by one: a test that lets its mutant live proves nothing, whatever it says about the real engine.
//
// An edit replaces one text by another, and the text must be there exactly once: whoever changes the engine is told here.

import { costsMutants } from "./costs.mjs";
import { door } from "./door.mjs";
import { extractionMutants } from "./extraction.mjs";
import { leaderboardMutants } from "./leaderboard.mjs";
import { machinesMutants } from "./machines.mjs";
import { view } from "./view.mjs";

const MODEL = "test/model/model.test.ts";
const LEASE = "test/claim/lease.test.ts";
const ATTEMPTS = "test/claim/attempts.test.ts";
const CLAIM = "test/claim/claim.test.ts";
const INTERLEAVE = "test/claim/interleave.test.ts";
const WORKER = "test/claim/worker-calls.test.ts";
const KEYS = "test/model/keys.test.ts";
const KEYS_INTERLEAVE = "test/flow/keys-interleave.test.ts";
const FLOW = "test/model/flow/flow.test.ts";
const GATES = "test/flow/gates-interleave.test.ts";
const LANES = "test/flow/lanes.test.ts";
const FLOW_COST = "test/flow/claim-cost.test.ts";
const SPAWN = "test/model/children/children.test.ts";
const CHILDREN = "test/flow/children.test.ts";
const CHILDREN_INTERLEAVE = "test/flow/children-interleave.test.ts";
const SCHEDULES = "test/flow/schedules.test.ts";
const SCHEDULES_DST = "test/flow/schedules-dst.test.ts";
const WEBHOOKS = "test/webhooks/webhooks.test.ts";
const RECEIVERS = "test/webhooks/receivers.test.ts";
const SIGNATURE = "test/webhooks/signature.test.ts";
const SSRF = "test/webhooks/ssrf.test.ts";
const SEALED = "test/security/sealed.test.ts";
const GIVEN_UP = "test/claim/failed-without-worker.test.ts";
const ARTIFACT_FILES = "test/artifacts/artifact-file.test.ts";
const REDACT = "test/security/redact.test.ts";

const inFile = (file) => (old, text) => ({ file, old, new: text });
const breakers = inFile("sql/functions/flow/breakers.sql");
const children = inFile("sql/functions/flow/children.sql");
const claim = inFile("sql/functions/jobs/claim.sql");
const clock = inFile("sql/functions/base/clock.sql");
const control = inFile("sql/functions/jobs/control.sql");
const cron = inFile("sql/functions/flow/cron.sql");
const enqueue = inFile("sql/functions/jobs/enqueue.sql");
const events = inFile("sql/functions/flow/events.sql");
const feed = inFile("sql/functions/live/feed.sql");
const fleet = inFile("sql/functions/machines/fleet.sql");
const keys = inFile("sql/functions/jobs/keys.sql");
const lanes = inFile("sql/functions/flow/lanes.sql");
const lease = inFile("sql/functions/jobs/lease.sql");
const limits = inFile("sql/functions/flow/limits.sql");
const schedules = inFile("sql/functions/flow/schedules.sql");
const places = inFile("sql/functions/flow/places.sql");
const settle = inFile("sql/functions/jobs/settle.sql");
const watchdog = inFile("sql/functions/jobs/watchdog.sql");
const webhooks = inFile("sql/functions/live/webhooks.sql");
const guard = inFile("src/webhooks/address-guard.ts");
const signature = inFile("src/webhooks/signature.ts");
const sealing = inFile("src/secrets/seal.ts");
const redact = inFile("src/worker/redact/redact.ts");
const verified = inFile("src/artifacts/verify-stream.ts");

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
    name: "a job that is given up ends without a word",
    killedBy: GIVEN_UP,
    only: "no worker alive",
    edits: [
      settle(
        "update stillwake.live_jobs set seq = seq + 1 where id = p_job.id returning seq into v_seq;",
        "return stillwake.end_job(p_job, 'failed', p_failure, p_outcome);",
      ),
    ],
  },
  {
    name: "the sentence for a lost machine covers what code has thrown",
    killedBy: GIVEN_UP,
    only: "whatever its code",
    edits: [settle("p_failure ->> 'name' = 'Stopped' and p_failure", "p_failure")],
  },
  {
    name: "what the store has of an artifact is believed",
    killedBy: ARTIFACT_FILES,
    only: "has other content by now",
    edits: [verified('bytes === Number(size) && hash.digest("hex") === sha256', "bytes === Number(size)")],
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
    name: "a heartbeat tells nobody that the lease is lost",
    killedBy: MODEL,
    edits: [
      lease(
        "where j.id is null or j.cancel is not null or j.pause is not null or",
        "where j.cancel is not null or j.pause is not null or",
      ),
    ],
  },
  {
    name: "a heartbeat brings a lost lease back",
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
    killedBy: "test/claim/clock.test.ts",
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
        "    perform stillwake.hint_worker(v_job.worker);\n    return 'running';\n  end if;\n  return stillwake.end_job",
        "  end if;\n  return stillwake.end_job",
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
    killedBy: "test/claim/conflict.test.ts",
    edits: [
      settle(
        "where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id for update;",
        "where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id desc for update;",
      ),
    ],
  },
  {
    name: "a week is forgotten before its time",
    killedBy: "test/db/prune.test.ts",
    edits: [watchdog("then p.week <= v_today", "then p.week - 14 <= v_today")],
  },
  {
    name: "a settlement without a lease may end a job that waits",
    killedBy: "test/claim/lease.test.ts",
    edits: [settle("or array_position(v_leases, null) is not null then", "then")],
  },
  {
    name: "a repeated settlement is told by its epoch alone",
    killedBy: "test/claim/lease.test.ts",
    edits: [settle("e.epoch = p_epoch and e.lease_id = p_lease", "e.epoch = p_epoch and e.claimed_at is not null")],
  },
  {
    name: "a job that was started expires all the same",
    killedBy: "test/claim/recovery.test.ts",
    edits: [
      lease(
        "where j.expires_at <= v_now and j.started_at is null",
        "where j.expires_at <= v_now and j.lease_id is null",
      ),
    ],
  },
  {
    name: "one job that cannot be recovered stops its pool",
    killedBy: "test/claim/recovery.test.ts",
    edits: [lease("when others then\n      raise warning", "when division_by_zero then\n      raise warning")],
  },
  {
    name: "an outage of Postgres counts as the death of every worker",
    killedBy: "test/claim/recovery.test.ts",
    edits: [lease("v_now > pg_postmaster_start_time() + l.span", "true")],
  },
  {
    name: "an old id that is enqueued again makes a second job",
    killedBy: "test/claim/recovery.test.ts",
    edits: [enqueue("if p_ids is not null and not v_again then", "if false then")],
  },
  {
    name: "a repeated claim leases other jobs to nobody",
    killedBy: CLAIM,
    edits: [claim("if p_lease is not null and exists", "if false and exists")],
  },
  {
    name: "failed jobs are kept as long as completed ones",
    killedBy: "test/db/prune.test.ts",
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
    name: "a worker that heartbeats after its session broke is taken for dead",
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
    killedBy: "test/attempt/step-limits.test.ts",
    only: "I4",
    edits: [
      { file: "src/worker/keeper/keeper.ts", old: "const saves = running.saved();", new: "const saves = undefined;" },
      {
        file: "src/worker/attempt/steps.ts",
        old: "if (options.timeout !== undefined) port.limit(name, null);",
        new: "",
      },
    ],
  },
  {
    name: "a heartbeat waits for a lease that somebody holds",
    killedBy: "test/attempt/step-limits.test.ts",
    only: "lingering",
    edits: [lease("set lock_timeout = '500ms' as", "set lock_timeout = '20s' as")],
  },
  {
    name: "a worker that ends stays listed",
    killedBy: "test/worker/listener.test.ts",
    only: "leaves no listener",
    edits: [
      {
        file: "src/db/worker-presence.ts",
        old: "if (listed) await client.query(leave, [worker]).catch(() => {});",
        new: "",
      },
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
      control("  perform stillwake.fill_key(k.pipeline, k.key) from (", "  perform from ("),
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
        "v_breaker.pause_initial * power(v_breaker.growth::double precision, least(v_breaker.probes, 60))",
        "v_breaker.pause_initial",
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
    name: "webhooks: the outbox is written after the end has committed",
    killedBy: WEBHOOKS,
    only: "I10",
    edits: [
      settle("    perform stillwake.add_webhooks(case when v_told then v_jobs else v_webhooks end);\n", "    null;\n"),
      watchdog(
        "  count := stillwake.prune_webhooks();",
        "  perform stillwake.add_webhooks(array(select e.id from stillwake.ended_jobs e where not exists (select from stillwake.webhooks w where w.job_id = e.id)));\n  count := stillwake.prune_webhooks();",
      ),
    ],
  },
  {
    name: "webhooks: only jobs that completed are told of",
    killedBy: WEBHOOKS,
    only: "I10",
    edits: [
      webhooks(
        "    where e.state = any (n.states) and coalesce",
        "    where e.state = any (n.states) and e.state = 'completed' and coalesce",
      ),
    ],
  },
  {
    name: "webhooks: a job that is retried tells nobody",
    killedBy: WEBHOOKS,
    only: "retried",
    edits: [control("then o.version end, o.webhooks,", "then o.version end, null::jsonb,")],
  },
  {
    name: "webhooks: whoever joins a job is not told",
    killedBy: WEBHOOKS,
    only: "joins",
    edits: [
      webhooks(
        "update stillwake.live_jobs j set webhooks = coalesce(j.webhooks, '[]') || jsonb_build_array(new.webhook)",
        "update stillwake.live_jobs j set webhooks = coalesce(j.webhooks, '[]')",
      ),
    ],
  },
  {
    name: "webhooks: whoever joins a job that ends before he commits is not told",
    killedBy: WEBHOOKS,
    only: "stays open",
    edits: [
      webhooks("    perform stillwake.add_webhooks(array[new.job_id], jsonb_build_array(new.webhook));", "    null;"),
    ],
  },
  {
    name: "webhooks: whoever joins a job locks it until he commits",
    killedBy: WEBHOOKS,
    only: "stays open",
    edits: [
      webhooks(
        "  insert into stillwake.webhook_joins (job_id, webhook) select distinct",
        "  perform from stillwake.live_jobs j where j.id = any (p_jobs) for update;\n  insert into stillwake.webhook_joins (job_id, webhook) select distinct",
      ),
    ],
  },
  {
    name: "webhooks: what an endpoint held back goes to its old place",
    killedBy: WEBHOOKS,
    only: "new place",
    edits: [
      webhooks(
        "select distinct n.name, nullif(a.url, n.url) as url, n.body",
        "select distinct n.name, coalesce(a.url, n.url) as url, n.body",
      ),
    ],
  },
  {
    name: "webhooks: a success makes Retry-After forgotten",
    killedBy: WEBHOOKS,
    only: "left alone|is, though",
    edits: [
      webhooks("where l.name = v_one.name and (l.until is null or l.until <= v_now);", "where l.name = v_one.name;"),
    ],
  },
  {
    name: "webhooks: the newest secret by the clock is the current one",
    killedBy: WEBHOOKS,
    only: "told apart",
    edits: [
      webhooks(
        "where s.endpoint = p_name order by s.expires_at desc nulls first limit 1;",
        "where s.endpoint = p_name order by s.created_at desc limit 1;",
      ),
    ],
  },
  {
    name: "webhooks: an endpoint's credentials go wherever a job says",
    killedBy: WEBHOOKS,
    only: "from other places",
    edits: [
      webhooks(
        "<> substring(v_endpoint.url from '^[^/]+//[^/?#]+') then",
        "<> substring(v_endpoint.url from '^[^/]+//[^/?#]+') and false then",
      ),
    ],
  },
  {
    name: "webhooks: any sender may record a try",
    killedBy: WEBHOOKS,
    only: "fenced",
    edits: [
      webhooks(
        "and w.epoch = v_one.epoch and w.sender = v_one.sender for update;",
        "and w.state = 'pending' for update;",
      ),
    ],
  },
  {
    name: "webhooks: a record is fenced by the sender's name alone",
    killedBy: WEBHOOKS,
    only: "fenced",
    edits: [
      webhooks(
        "and w.epoch = v_one.epoch and w.sender = v_one.sender for update;",
        "and w.sender = v_one.sender for update;",
      ),
    ],
  },
  {
    name: "webhooks: what a dead sender had claimed stays with it",
    killedBy: WEBHOOKS,
    only: "fenced",
    edits: [
      webhooks(
        "attempts = w.attempts + 1, next_at = v_now + p_span",
        "attempts = w.attempts + 1, next_at = 'infinity'",
      ),
    ],
  },
  {
    name: "webhooks: a try is recorded as delivered before it is answered",
    killedBy: WEBHOOKS,
    only: "is listed with",
    edits: [
      inFile("src/webhooks/sender.ts")(
        "answer = await poster.post({ url, body, headers: { ...headers, ...signed }, timeoutMs, onWritten });",
        "void poster.post({ url, body, headers: { ...headers, ...signed }, timeoutMs, onWritten });\n      answer = { status: 204 };",
      ),
    ],
  },
  {
    name: "webhooks: tries come at the same distance",
    killedBy: WEBHOOKS,
    only: "one of ten",
    edits: [webhooks("[least(greatest(p_attempt, 1), 9)]", "[1]")],
  },
  {
    name: "webhooks: tries have no end",
    killedBy: WEBHOOKS,
    only: "one of ten",
    edits: [
      webhooks(
        "      when v_hook.attempts >= stillwake.webhook_tries() then 'failed' else 'pending' end;",
        "      else 'pending' end;",
      ),
    ],
  },
  {
    name: "webhooks: a body has what user code has made",
    killedBy: WEBHOOKS,
    only: "S18: is thin",
    edits: [
      webhooks(
        "'attempt', p_job.attempt, 'code', substring(",
        "'attempt', p_job.attempt, 'output', p_job.output, 'code', substring(",
      ),
    ],
  },
  {
    name: "webhooks: a failure is told with its stack",
    killedBy: WEBHOOKS,
    only: "never the stack",
    edits: [
      webhooks(
        "'step', p_job.failure -> 'step')), '{}')",
        "'step', p_job.failure -> 'step', 'stack', p_job.failure -> 'stack')), '{}')",
      ),
    ],
  },
  {
    name: "webhooks: what is left out is not named",
    killedBy: WEBHOOKS,
    only: "left out",
    edits: [webhooks("if v_out <> '{}' and jsonb_typeof(v_filled) = 'object' then", "if false then")],
  },
  {
    name: "webhooks: two endpoints may share a secret",
    killedBy: WEBHOOKS,
    only: "S15",
    edits: [webhooks("  if v_owner is distinct from p_endpoint then", "  if false then")],
  },
  {
    name: "webhooks: the secret before signs no more",
    killedBy: WEBHOOKS,
    only: "S16: is signed",
    edits: [webhooks("nulls first limit 2);", "nulls first limit 1);")],
  },
  {
    name: "webhooks: a secret that has run out signs on",
    killedBy: WEBHOOKS,
    only: "S16: is signed",
    edits: [
      webhooks(
        "where s.endpoint = w.endpoint and (s.expires_at is null or s.expires_at > v_now) order by",
        "where s.endpoint = w.endpoint order by",
      ),
    ],
  },
  {
    name: "webhooks: a disabled endpoint is told on",
    killedBy: WEBHOOKS,
    only: "holds back",
    edits: [webhooks("continue when v_endpoint.disabled_at is not null or v_next.url", "continue when v_next.url")],
  },
  {
    name: "webhooks: what failed is forgotten with what was delivered",
    killedBy: WEBHOOKS,
    only: "is forgotten",
    edits: [webhooks("and (w.state = 'delivered' or w.ended_at < v_now - interval '30 days')", "")],
  },
  {
    name: "webhooks: 410 disables nothing",
    killedBy: RECEIVERS,
    only: "410",
    edits: [webhooks("        v_gone := v_gone || v_hook.endpoint;\n", "")],
  },
  {
    name: "webhooks: Retry-After is not heard",
    killedBy: RECEIVERS,
    only: "is given it",
    edits: [
      webhooks(
        "v_now + greatest(stillwake.webhook_pause(v_hook.attempts), v_asked)",
        "v_now + stillwake.webhook_pause(v_hook.attempts)",
      ),
    ],
  },
  {
    name: "webhooks: Retry-After holds for one webhook only",
    killedBy: RECEIVERS,
    only: "left alone altogether",
    edits: [
      webhooks(
        "continue when v_lane.until > v_now or v_failing and v_slow <= 0;",
        "continue when v_failing and v_slow <= 0;",
      ),
    ],
  },
  {
    name: "webhooks: a lane has no limit",
    killedBy: RECEIVERS,
    only: "one at a time",
    edits: [webhooks("case when v_failing then 1 else 10 end", "case when v_failing then 1 else 1000 end")],
  },
  {
    name: "webhooks: a lane that fails goes on as before",
    killedBy: RECEIVERS,
    only: "one at a time",
    edits: [webhooks("v_failing := coalesce(v_lane.failures >= 5, false);", "v_failing := false;")],
  },
  {
    name: "webhooks: dead receivers may have all places",
    killedBy: RECEIVERS,
    only: "half of the places",
    edits: [
      webhooks(
        "continue when v_lane.until > v_now or v_failing and v_slow <= 0;",
        "continue when v_lane.until > v_now;",
      ),
    ],
  },
  {
    name: "webhooks: every claim begins at the first lane",
    killedBy: RECEIVERS,
    only: "go round",
    edits: [webhooks("v_at       text := coalesce(p_after, '');", "v_at       text := '';")],
  },
  {
    name: "webhooks: a redirect counts as taken",
    killedBy: RECEIVERS,
    only: "redirects",
    edits: [
      inFile("src/webhooks/request.ts")("if (status < 200 || status > 299)", "if (status < 200 || status > 399)"),
    ],
  },
  {
    name: "webhooks: an answer is read to its end",
    killedBy: RECEIVERS,
    only: "cut off",
    edits: [inFile("src/webhooks/request.ts")("if (size > MAX_RESPONSE) end(false);", "")],
  },
  {
    name: "webhooks: only the first address of a name is judged",
    killedBy: SSRF,
    edits: [guard("for (const { address } of answers) judge(url, address);", "judge(url, answers[0]!.address);")],
  },
  {
    name: "webhooks: a name is asked for again when it is connected to",
    killedBy: SSRF,
    edits: [
      guard(
        "if (options.all) callback(null, [...answers] as never);",
        "if (options.all) void resolve(host).then((again) => callback(null, [...again] as never));",
      ),
    ],
  },
  {
    name: "webhooks: what the socket came to is not judged",
    killedBy: SSRF,
    edits: [guard("      if (!address) throw new BlockedAddress();\n      judge(url, address);\n", "")],
  },
  {
    name: "webhooks: IPv6 is judged by a list of what is known",
    killedBy: SSRF,
    edits: [
      guard(
        "return !within(ip, internet6) || inside6.some((one) => within(ip, one));",
        "return inside6.some((one) => within(ip, one));",
      ),
    ],
  },
  {
    name: "webhooks: names of the inside are only judged by their address",
    killedBy: SSRF,
    edits: [
      guard(
        "if (isInside(ip) || isInsideName(hostOf(url)) || !usual.has(port))",
        "if (isInside(ip) || !usual.has(port))",
      ),
      guard("      else if (isInsideName(host) && allowed.length === 0) throw new BlockedAddress();\n", ""),
    ],
  },
  {
    name: "webhooks: plain http is allowed",
    killedBy: SSRF,
    edits: [guard('if (url.protocol === "http:" && !allowHttp) throw', "if (false) throw")],
  },
  {
    name: "webhooks: a webhook from the future is believed",
    killedBy: SIGNATURE,
    edits: [signature("Math.abs(apartMs) > toleranceMs", "-apartMs > toleranceMs")],
  },
  {
    name: "webhooks: an id may have a dot",
    killedBy: SIGNATURE,
    edits: [signature("/^[^\\s.]{1,200}$/", "/^\\S{1,200}$/")],
  },
  {
    name: "webhooks: the time is not part of what is signed",
    killedBy: SIGNATURE,
    edits: [signature("signedContent(id, String(Math.floor(timestamp)), body)", 'signedContent(id, "0", body)')],
  },
  {
    name: "webhooks: an id is remembered before it is believed",
    killedBy: SIGNATURE,
    edits: [
      signature(
        "  const content = signedContent(id, timestamp, body);\n  if (!(await isSigned",
        "  const content = signedContent(id, timestamp, body);\n  await options.seen?.add(id);\n  if (!(await isSigned",
      ),
    ],
  },
  {
    name: "schedules: the row of a schedule is not locked",
    killedBy: SCHEDULES,
    only: "whoever comes first",
    edits: [schedules("where s.name = v_name and s.due_at <= v_now for update skip locked;", "where s.name = v_name;")],
  },
  {
    name: "schedules: neither a lock nor an idempotency key keeps a slot",
    killedBy: SCHEDULES_DST,
    only: "becomes one job",
    edits: [
      schedules("where s.name = v_name and s.due_at <= v_now for update skip locked;", "where s.name = v_name;"),
      schedules("p_row.name || ':' || p_slot", "p_row.name || ':' || gen_random_uuid()"),
    ],
  },
  {
    name: "schedules: a slot has no idempotency key",
    killedBy: SCHEDULES,
    only: "back and forth",
    edits: [schedules("p_row.name || ':' || p_slot", "p_row.name || ':' || gen_random_uuid()")],
  },
  {
    name: "schedules: a local time that comes twice is that of the second time",
    killedBy: SCHEDULES,
    only: "has 02:00 to 03:00 twice",
    edits: [cron("if v_past < v_at and (v_past at", "if v_past is null and (v_past at")],
  },
  {
    name: "schedules: a local time that is skipped is what Postgres makes of it",
    killedBy: SCHEDULES,
    only: "Berlin skips",
    edits: [cron("  v_low := extract(epoch from v_at)::bigint - 93600;", "  return v_at;")],
  },
  {
    name: "schedules: clocks are never turned back by more than an hour",
    killedBy: SCHEDULES,
    only: "Troll goes back",
    edits: [cron("array[interval '3 hours', interval '25 hours']", "array[interval '1 hour']")],
  },
  {
    name: "schedules: an interval is a time of day",
    killedBy: SCHEDULES,
    only: "an interval",
    edits: [cron("if cardinality(p_cron.hours) < 24 then", "if cardinality(p_cron.hours) <= 24 then")],
  },
  {
    name: "schedules: the clocks are never turned back over midnight",
    killedBy: SCHEDULES,
    only: "over midnight",
    edits: [cron("case when (v_then at time zone p_zone) = v_local + interval '3 hours' then", "case when true then")],
  },
  {
    name: "schedules: the clocks do not change between two strokes",
    killedBy: SCHEDULES_DST,
    only: "as strokes of an interval",
    edits: [
      cron(
        "if (v_then at time zone p_zone) <> v_local + (v_next - v_minute) * interval '1 minute' then",
        "if (v_then at time zone p_zone) is null then",
      ),
    ],
  },
  {
    name: "schedules: of two day fields both must match",
    killedBy: SCHEDULES,
    only: "0 0 13",
    edits: [cron("v_cron.either := v_parts[3] not like '*%' and v_parts[5] not like '*%';", "v_cron.either := false;")],
  },
  {
    name: "schedules: every late slot is made up for",
    killedBy: SCHEDULES,
    only: '"one"',
    edits: [schedules("or v_row.catch_up = 'all' then", "or v_row.catch_up in ('one', 'all') then")],
  },
  {
    name: "schedules: an hour late is on time",
    killedBy: SCHEDULES,
    only: '"none"',
    edits: [schedules("v_row.next_at >= p_now - interval '1 minute'", "v_row.next_at >= p_now - interval '1 hour'")],
  },
  {
    name: "schedules: a late slot runs besides one that is on time",
    killedBy: SCHEDULES,
    only: "nothing older runs besides",
    edits: [
      schedules("and v_missed > 0 and v_slots = '{}' and", "and v_missed > 0 and"),
      schedules("v_slots := v_late[2:2];", "v_slots := v_late[2:2] || v_slots;"),
      schedules("v_times := v_late_at[2:2];", "v_times := v_late_at[2:2] || v_times;"),
    ],
  },
  {
    name: "schedules: what does not fit into one call is passed over",
    killedBy: SCHEDULES,
    only: "bounded portions",
    edits: [
      schedules(
        "if v_again or v_row.next_at >= p_now - interval '1 minute' or v_row.catch_up = 'all' then",
        "if cardinality(v_slots) < 99 and (v_row.next_at >= p_now - interval '1 minute' or v_row.catch_up = 'all') then",
      ),
    ],
  },
  {
    name: "schedules: a slot runs beside the job of the last",
    killedBy: SCHEDULES,
    only: '"skip"',
    edits: [schedules("if v_row.overlap = 'skip' and", "if v_row.overlap is null and")],
  },
  {
    name: "schedules: who queues does not wait",
    killedBy: SCHEDULES,
    only: '"queue"',
    edits: [schedules("when p_row.overlap in ('queue', 'replace')", "when p_row.overlap in ('replace')")],
  },
  {
    name: "schedules: who replaces runs before the last has stopped",
    killedBy: SCHEDULES,
    only: '"replace"',
    edits: [schedules("when p_row.overlap in ('queue', 'replace')", "when p_row.overlap in ('queue')")],
  },
  {
    name: "schedules: who replaces cancels nobody",
    killedBy: SCHEDULES,
    only: '"replace"',
    edits: [schedules("perform stillwake.cancel(v_row.last_job,", "perform concat(v_row.last_job,")],
  },
  {
    name: "schedules: one that fails takes the others along",
    killedBy: SCHEDULES,
    only: "stops neither the others",
    edits: [
      schedules(
        "this schedule: the caller repeats the whole.\n      if sqlstate in ('40P01', '40001') then",
        "this schedule: the caller repeats the whole.\n      if sqlstate is not null then",
      ),
      schedules(
        "and the caller repeats the whole.\n      if sqlstate in ('40P01', '40001') then",
        "and the caller repeats the whole.\n      if sqlstate is not null then",
      ),
    ],
  },
  {
    name: "schedules: one that waits for a lock holds up the others",
    killedBy: SCHEDULES,
    only: "waits for a lock holds up",
    edits: [schedules("set lock_timeout = '500ms' as", "as")],
  },
  {
    name: "schedules: a call waits for each that waits for a lock",
    killedBy: SCHEDULES,
    only: "waits for a lock holds up",
    edits: [schedules("perform set_config('lock_timeout', '20ms', true);", "null;")],
  },
  {
    name: "schedules: a slot that failed is late when it is tried again",
    killedBy: SCHEDULES,
    only: "failed in its time",
    edits: [schedules("if v_again or v_row.next_at", "if v_row.next_at")],
  },
  {
    name: "schedules: a slot that failed is on time for ever",
    killedBy: SCHEDULES,
    only: "when nobody came to try it again",
    edits: [schedules(" and p_row.due_at >= p_now - interval '60 seconds';", ";")],
  },
  {
    name: "schedules: what is missed is counted with each try",
    killedBy: SCHEDULES,
    only: "failed in its time",
    edits: [schedules("if v_missed > 0 and slot is distinct from p_row.next_slot then", "if v_missed > 0 then")],
  },
  {
    name: "schedules: each of them makes up for a hundred slots in one call",
    killedBy: SCHEDULES,
    only: "makes a hundred jobs",
    edits: [schedules("v_jobs := v_jobs - (act in ('fired', 'joined'))::integer;", "")],
  },
  {
    name: "schedules: what is left goes before the others",
    killedBy: SCHEDULES,
    only: "makes a hundred jobs",
    edits: [schedules("case when v_row.next_at <= p_now then p_now else v_row.next_at end;", "v_row.next_at;")],
  },
  {
    name: "schedules: settling comes first",
    killedBy: SCHEDULES,
    only: "has no lease yet",
    edits: [
      claim(
        "perform stillwake.run_schedules(10, p_pool);\n  end if;\n  select array_agg",
        "null;\n  end if;\n  select array_agg",
      ),
      claim("p_cursor, false) c;", "p_cursor, true) c;"),
    ],
  },
  {
    name: "schedules: a paused pool has jobs made",
    killedBy: SCHEDULES,
    only: "while its pool is paused",
    edits: [
      schedules(
        "(p_pool is null or s.pool = p_pool) and not exists (select from stillwake.pools p where p.name = s.pool and p.paused_at is not null)",
        "(p_pool is null or s.pool = p_pool)",
      ),
    ],
  },
  {
    name: "schedules: they stay behind when their pipeline moves",
    killedBy: SCHEDULES,
    only: "has moved to",
    edits: [inFile("sql/functions/jobs/enqueue.sql")("if v_new.pool <> v_old.pool then", "if false then")],
  },
  {
    name: "schedules: a worker that is full sees to none",
    killedBy: "test/flow/schedules-worker.test.ts",
    only: "makes the jobs of slots in time",
    edits: [inFile("src/worker/keeper/keeper.ts")("    this.#tender.watch();\n", "")],
  },
  {
    name: "schedules: what was paused is made up for",
    killedBy: SCHEDULES,
    only: "what was paused",
    edits: [schedules("next_slot = a.slot, next_at = a.at, due_at = a.at\n", "due_at = s.next_at\n")],
  },
  {
    name: "schedules: the same definition begins anew",
    killedBy: SCHEDULES,
    only: "set again changes nothing",
    edits: [
      schedules(
        "if v_new.cron is distinct from v_old.cron or v_new.zone is distinct from v_old.zone then",
        "if v_new.cron is not null then",
      ),
    ],
  },
  {
    name: "schedules: a new definition wakes nobody",
    killedBy: SCHEDULES,
    only: "send a hint",
    edits: [schedules("perform stillwake.hint(v_new.pool);", "null;")],
  },
  {
    name: "schedules: a claim makes no jobs of slots",
    killedBy: SCHEDULES,
    only: "a claim of the pool",
    edits: [
      claim(
        "perform stillwake.run_schedules(10, p_pool);\n  end if;\n  select array_agg",
        "null;\n  end if;\n  select array_agg",
      ),
    ],
  },
  {
    name: "schedules: a claim goes through all of them",
    killedBy: SCHEDULES,
    only: "however many there are",
    edits: [
      claim(
        "if p_schedules and exists (select from stillwake.schedules s where s.pool = p_pool and s.due_at <= v_now) then",
        "if p_schedules and exists (select from stillwake.schedules s where s.updated_at <= v_now and s.due_at <= stillwake.now()) then",
      ),
    ],
  },
  {
    name: "schedules: the watchdog makes no jobs of slots",
    killedBy: SCHEDULES,
    only: "the watchdog, for every pool",
    edits: [watchdog("from stillwake.run_schedules(1000) r", "from stillwake.run_schedules(0) r")],
  },
  {
    name: "schedules: who sleeps does not know of them",
    killedBy: SCHEDULES,
    only: "know the next slot",
    edits: [
      fleet("where s.due_at is not null and p.paused_at is null", "where s.due_at is null and p.paused_at is null"),
    ],
  },
  {
    name: "schedules: a job that has ended does not know its slot",
    killedBy: SCHEDULES,
    only: "a claim of the pool",
    edits: [settle("g.child_no, g.origin", "g.child_no, null")],
  },
  {
    name: "children: who wants to wait waits, without a look",
    killedBy: CHILDREN_INTERLEAVE,
    only: "is woken or goes on: complete, complete",
    edits: [children("return found and not stillwake.spawn_is_over(v_spawn);", "return true;")],
  },
  {
    name: "children: who wants to wait looks under no lock",
    killedBy: CHILDREN_INTERLEAVE,
    only: "is woken or goes on: complete, complete",
    edits: [children("s.name = p_name for update;\n  return found", "s.name = p_name;\n  return found")],
  },
  {
    name: "children: those of a part that end together count as one",
    killedBy: SPAWN,
    edits: [children("set open = p.open - l.count,", "set open = p.open - 1,")],
  },
  {
    name: "children: a part is counted from what was read before its lock",
    killedBy: CHILDREN_INTERLEAVE,
    only: "is woken or goes on: complete, complete",
    edits: [
      children("and o.part = e.part for update", "and o.part = e.part"),
      children(
        "set open = p.open - l.count,",
        "set open = (select o.open from stillwake.spawn_parts o where o.job_id = l.job_id and o.name = l.name and o.part = l.part) - l.count,",
      ),
    ],
  },
  {
    name: "children: a part whose last one ends does not tell its spawn",
    killedBy: CHILDREN_INTERLEAVE,
    only: "is woken by the last part",
    edits: [children("where c.closed > 0 or p_state <> 'completed'", "where c.closed > 1 or p_state <> 'completed'")],
  },
  {
    name: "children: an attempt that goes on spawns them again",
    killedBy: SPAWN,
    edits: [
      children("if p_from < v_spawn.spawned or v_count = 0 then", "if v_count = 0 then"),
      children(
        "from generate_series(p_from, p_from + v_count - 1, 128) n;",
        "from generate_series(p_from, p_from + v_count - 1, 128) n on conflict do nothing;",
      ),
    ],
  },
  {
    name: "children: an attempt that lost its lease spawns",
    killedBy: SPAWN,
    edits: [children("elsif not stillwake.holds(p_job, p_epoch, p_lease) then", "elsif false then")],
  },
  {
    name: "children: they go on when their parent has failed",
    killedBy: SPAWN,
    edits: [
      settle(
        "if p_state <> 'completed' then\n    perform stillwake.cancel_children",
        "if false then\n    perform stillwake.cancel_children",
      ),
    ],
  },
  {
    name: "children: those that run are not asked to stop",
    killedBy: SPAWN,
    edits: [
      children("perform stillwake.cancel(v_id, p_reason, p_by);", "null;"),
      children(
        "exit when not exists (select from stillwake.live_jobs j where j.parent_id = p_job and j.cancel is null);",
        "exit;",
      ),
    ],
  },
  {
    name: "children: one that is claimed while its parent is cancelled goes on",
    killedBy: CHILDREN_INTERLEAVE,
    only: "while a child is being claimed",
    edits: [
      children(
        "exit when not exists (select from stillwake.live_jobs j where j.parent_id = p_job and j.cancel is null);",
        "exit;",
      ),
    ],
  },
  {
    name: "children: one that fails does not wake a parent that cannot do without it",
    killedBy: CHILDREN_INTERLEAVE,
    only: "is woken by the first that fails",
    edits: [children(" or p_spawn.on_error = 'fail' and p_spawn.failed", "")],
  },
  {
    name: "children: one that is retried is not open again",
    killedBy: SPAWN,
    edits: [control("if v_parents is not null then", "if false then")],
  },
  {
    name: "children: one that is retried hides one of another part that fails meanwhile",
    killedBy: CHILDREN_INTERLEAVE,
    only: "while one of another part fails",
    edits: [
      children(
        "(v_one.closed > 0 or s.on_error = 'fail')",
        "(v_one.closed > 0 or s.on_error = 'fail' and not s.failed)",
      ),
    ],
  },
  {
    name: "children: who retries one looks at the others before it has the spawn",
    killedBy: CHILDREN_INTERLEAVE,
    only: "while one of another part fails",
    edits: [
      children("perform from stillwake.spawns s where s.job_id = v_one.job_id and s.name = v_one.name for update;", ""),
    ],
  },
  {
    name: "children: a parent that starts again keeps them",
    killedBy: CHILDREN,
    only: "from the start spawns anew",
    edits: [control("perform stillwake.forget_children(i) from unnest(p_ids) i;", "")],
  },
  {
    name: "children: who waits loses its place in line",
    killedBy: SPAWN,
    edits: [
      settle(
        "place = case when p_awaits is not null and p_waiting_for is not null then p_job.run_at end",
        "place = null",
      ),
    ],
  },
  {
    name: "children: who was resumed and is woken goes to the end of the line",
    killedBy: CHILDREN_INTERLEAVE,
    only: "keeps its place in line",
    edits: [
      children(
        "set run_at = least(j.run_at, coalesce(j.place, stillwake.now())),",
        "set run_at = coalesce(j.place, stillwake.now()),",
      ),
      events(
        "set run_at = least(j.run_at, coalesce(j.place, stillwake.now())),",
        "set run_at = coalesce(j.place, stillwake.now()),",
      ),
    ],
  },
  {
    name: "events: what is said between a look and the wait is not heard",
    killedBy: CHILDREN_INTERLEAVE,
    only: "hears what is said while it lies down",
    edits: [
      children(
        "return not exists (select from stillwake.signals s where s.job_id = p_job and s.name = p_name and s.taken_by is null);",
        "return true;",
      ),
    ],
  },
  {
    name: "events: one word is taken by two",
    killedBy: SPAWN,
    edits: [
      events(
        "where s.job_id = p_job and s.id = p_id and s.taken_by is null;",
        "where s.job_id = p_job and s.id = p_id;",
      ),
    ],
  },
  {
    name: "events: the time is counted from the last wait",
    killedBy: SPAWN,
    edits: [
      events(
        "jsonb_build_array('wait', v_now + p_timeout))) on conflict do nothing;",
        "jsonb_build_array('wait', v_now + p_timeout))) on conflict (job_id, step) do update set output = excluded.output where checkpoints.output #>> '{$stillwake,0}' = 'wait';",
      ),
    ],
  },
  {
    name: "events: data that did not fit are offered again",
    killedBy: SPAWN,
    edits: [
      events(
        "set taken_by = case when p_accepted then p_step else '' end",
        "set taken_by = case when p_accepted then p_step end",
      ),
    ],
  },
  {
    name: "places: the last batch is all that is known",
    killedBy: SPAWN,
    edits: [
      places(
        "v_done := v_done + int8multirange(int8range(p_from, p_to));",
        "v_done := int8multirange(int8range(p_from, p_to));",
      ),
    ],
  },
  {
    name: "places: items that were done are done again",
    killedBy: SPAWN,
    edits: [places(" or p_to > p_from and v_done && int8range(p_from, p_to) then", " then")],
  },
  {
    name: "places: an attempt that lost its lease says how far it is",
    killedBy: SPAWN,
    edits: [places("elsif not stillwake.holds(p_job, p_epoch, p_lease) then", "elsif false then")],
  },
  {
    name: "places: what finds an item again loses its empty fields",
    killedBy: SPAWN,
    edits: [places("'lasts', v_lasts)", "'lasts', jsonb_strip_nulls(v_lasts))")],
  },
  {
    name: "webhooks: claims at the same time count the same free places",
    killedBy: RECEIVERS,
    only: "ten tries at once",
    edits: [webhooks("  perform pg_advisory_xact_lock(hashtextextended('stillwake.webhooks', 0));\n", "")],
  },
  {
    name: "sealed: the database takes plain values",
    killedBy: SEALED,
    edits: [enqueue("if v_pipeline.sealed <> '{}' then", "if false then")],
  },
  {
    name: "sealed: what is one job's opens in another",
    killedBy: SEALED,
    edits: [sealing('["j", job, tenant, at]', '["j", tenant, at]')],
  },
  {
    name: "sealed: what is one tenant's opens for another",
    killedBy: SEALED,
    edits: [sealing('["j", job, tenant, at]', '["j", job, at]')],
  },
  {
    name: "sealed: what is one field's opens in another",
    killedBy: SEALED,
    edits: [sealing('["j", job, tenant, at]', '["j", job, tenant]')],
  },
  {
    name: "sealed: a key may carry what is sealed",
    killedBy: SEALED,
    edits: [sealing("for (const label of labels) if (label !== null) refuseLabel(label, value, at);", "")],
  },
  {
    name: "sealed: the children of a job are stored in the plain",
    killedBy: SEALED,
    edits: [inFile("src/worker/keeper/unseal.ts")("if (!sealed?.length) return inputs;", "if (sealed) return inputs;")],
  },
  {
    name: "redact: what was opened is not known as secret",
    killedBy: SEALED,
    edits: [inFile("src/worker/keeper/unseal.ts")("secrets: valuesAt(input, paths)", "secrets: []")],
  },
  {
    name: "redact: the output of a job shows its secrets",
    killedBy: SEALED,
    edits: [redact("outcome.output = this.hideIn(outcome.output);", "this.hideIn(outcome.output);")],
  },
  {
    name: "redact: a secret over two lines shows",
    killedBy: REDACT,
    edits: [redact(": this.#withoutParts(text, enough, enough);", ": text;")],
  },
  {
    name: "redact: a secret that a limit has cut shows its end",
    killedBy: REDACT,
    edits: [redact("place > 0 ? any : none", "none")],
  },
  {
    name: "redact: why a breaker is open shows secrets",
    killedBy: SEALED,
    edits: [
      inFile("src/worker/attempt/limits-and-breakers.ts")(
        "this.#hide(String((error as Error)?.message ?? error))",
        "String((error as Error)?.message ?? error)",
      ),
    ],
  },
  ...door,
  ...view,
  ...machinesMutants,
  ...costsMutants,
  ...extractionMutants,
  ...leaderboardMutants,
];
