// Mutants of sql/functions/jobs/settle.sql.
export const file = "sql/functions/jobs/settle.sql";
export const killedBy = "test/model/model.test.ts";

export const mutants = [
  {
    name: "a job that ends is not subtracted from the count of its cap",
    killedBy: "test/flow/caps.test.ts",
    only: "is right after every way",
    old: "  if v_capped is not null then",
    new: "  if false then",
  },
  {
    name: "a job that is requeued is not subtracted from the count of its cap",
    killedBy: "test/flow/caps.test.ts",
    only: "is right after every way",
    old: "perform stillwake.free_caps(array[p_job.pipeline]);",
    new: "null;",
  },
  {
    name: "the end of a job in a pool at its cap hints no worker",
    killedBy: "test/flow/caps.test.ts",
    only: "of a pool lets",
    old: "  perform stillwake.hint(p) from unnest(v_pools) p;\n",
    new: "",
  },
  {
    name: "a settlement waits for a locked job, and the others with it",
    killedBy: "test/worker/open-transaction.test.ts",
    only: "delays no settlement",
    old: "set lock_timeout = '1s' as",
    new: "as",
  },
  {
    name: "a job moves to a larger pool that does not exist",
    killedBy: "test/orchestrator/machine-calls.test.ts",
    old: "select n.name into v_larger from stillwake.pools p join stillwake.pools n on n.name = p.machines ->> 'larger_pool'",
    new: "select p.machines ->> 'larger_pool' into v_larger from stillwake.pools p",
  },
  {
    name: "completing a job checks only that the job is running",
    old: "where j.id = e.id and j.epoch = e.epoch and j.lease_id is not distinct from e.lease",
    new: "where j.id = e.id and (j.lease_id is null) = (e.lease is null)",
  },
  {
    name: "completing a job is fenced by the attempt number",
    killedBy: "test/claim/lease.test.ts",
    only: "attempt's number",
    old: "where j.id = e.id and j.epoch = e.epoch and j.lease_id is not distinct from e.lease",
    new: `where j.id = e.id and (j.lease_id is null) = (e.lease is null)
      and j.attempt = (select a.attempt from stillwake.attempts a where a.job_id = e.id and a.epoch = e.epoch)`,
  },
  {
    name: "completing a job ignores the lease and trusts the epoch",
    old: "and j.epoch = e.epoch and j.lease_id is not distinct from e.lease",
    new: "and j.epoch = e.epoch",
  },
  {
    name: "a failure is not fenced",
    old: "and j.epoch = (p ->> 'epoch')::bigint and j.lease_id = (p ->> 'lease')::uuid for update",
    new: "and j.lease_id is not null for update",
  },
  {
    name: "a job that is failed without a worker has no sentence",
    killedBy: "test/claim/failed-without-worker.test.ts",
    only: "no worker alive",
    old: "update stillwake.live_jobs set seq = seq + 1 where id = p_job.id returning seq into v_seq;",
    new: "return stillwake.end_job(p_job, 'failed', p_failure, p_outcome);",
  },
  {
    name: "the sentence for a lost machine replaces an error thrown by user code",
    killedBy: "test/claim/failed-without-worker.test.ts",
    only: "whatever its code",
    old: "p_failure ->> 'name' = 'Stopped' and p_failure",
    new: "p_failure",
  },
  {
    name: "a recovered job goes to the end of the queue order",
    killedBy: "test/claim/claim.test.ts",
    only: "a recovered job is the next one claimed",
    old: "requeue(p_job, 'lost', p_job.run_at,",
    new: "requeue(p_job, 'lost', stillwake.now(),",
  },
  {
    name: "a recovered job gets its attempt back",
    old: "'lost', p_job.run_at, null, false, p_failure)",
    new: "'lost', p_job.run_at, null, true, p_failure)",
  },
  {
    name: "crashes are not counted",
    killedBy: "test/claim/attempts.test.ts",
    old: "set crashes = crashes + 1 where",
    new: "set crashes = crashes where",
  },
  {
    name: "the crash limit is ignored",
    old: "if p_job.crashes >= v_limit then",
    new: "if false then",
  },
  {
    name: "the epoch is decremented with the returned attempt",
    old: "attempt = attempt - case when p_give_back then 1 else 0 end,",
    new: "attempt = attempt - case when p_give_back then 1 else 0 end, epoch = epoch - case when p_give_back then 1 else 0 end,",
  },
  {
    name: "a release costs an attempt",
    killedBy: "test/claim/attempts.test.ts",
    old: "'released', v_job.run_at, null, true,",
    new: "'released', v_job.run_at, null, false,",
  },
  {
    name: "the lease row stays after all its jobs are settled",
    old: "perform stillwake.remove_from_lease(v_job.lease_id, array[v_job.id]);",
    new: "",
  },
  {
    name: "a repeated settlement is refused",
    killedBy: "test/claim/lease.test.ts",
    old: "return coalesce(stillwake.earlier_settlement((p ->> 'job')::uuid, (p ->> 'epoch')::bigint, (p ->> 'lease')::uuid, v_outcome), 'lost');",
    new: "return 'lost';",
  },
  {
    name: "a pause by a breaker replaces a pause by an operator",
    killedBy: "test/claim/attempts.test.ts",
    old: "if v_job.pause is not null or exists",
    new: "if exists",
  },
  {
    name: "leases are not locked in id order",
    killedBy: "test/claim/conflict.test.ts",
    old: "where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id for update;",
    new: "where l.id in (select unnest(v_leases) union select (s ->> 'lease')::uuid from unnest(v_others) s) order by l.id desc for update;",
  },
  {
    name: "a settlement without a lease may end a waiting job",
    killedBy: "test/claim/lease.test.ts",
    old: "or array_position(v_leases, null) is not null then",
    new: "then",
  },
  {
    name: "a repeated settlement is recognized by its epoch alone",
    killedBy: "test/claim/lease.test.ts",
    old: "e.epoch = p_epoch and e.lease_id = p_lease",
    new: "e.epoch = p_epoch and e.claimed_at is not null",
  },
  {
    name: "failed jobs are kept as long as completed ones",
    killedBy: "test/db/prune.test.ts",
    old: "when 'failed' then p.keep_failed",
    new: "when 'failed' then p.keep_completed",
  },
  {
    name: "a job that has slept sleeps again",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "if p ->> 'step' is not null then",
    new: "if false then",
  },
  {
    name: "an ended job does not pass its key slot on",
    killedBy: "test/model/keys.test.ts",
    old: `if v_keys is not null then
    perform stillwake.pass_key_slots`,
    new: `if false then
    perform stillwake.pass_key_slots`,
  },
  {
    name: "webhooks are created after the end of the job has committed",
    killedBy: "test/webhooks/webhooks.test.ts",
    only: "its webhook",
    edits: [
      {
        old: `    perform stillwake.add_webhooks(case when v_told then v_jobs else v_webhooks end);
`,
        new: `    null;
`,
      },
      {
        file: "sql/functions/jobs/watchdog.sql",
        old: "  act := 'relaned';",
        new: `  perform stillwake.add_webhooks(array(select e.id from stillwake.ended_jobs e where not exists (select from stillwake.webhooks w where w.job_id = e.id)));
  act := 'relaned';`,
      },
    ],
  },
  {
    name: "an ended job loses its slot",
    killedBy: "test/flow/schedules.test.ts",
    only: "a claim of the pool",
    old: "g.child_no, g.origin",
    new: "g.child_no, null",
  },
  {
    name: "children continue after their parent has failed",
    killedBy: "test/model/children/children.test.ts",
    old: `if p_state <> 'completed' then
    perform stillwake.cancel_children`,
    new: `if false then
    perform stillwake.cancel_children`,
  },
  {
    name: "a waiting parent loses its position in the queue order",
    killedBy: "test/model/children/children.test.ts",
    old: "order_at = case when v_keeps then p_job.run_at end",
    new: "order_at = null",
  },
  {
    name: "the end of a job sends no hint to its watchers",
    killedBy: "test/live/live.test.ts",
    only: "name watched jobs",
    old: `  perform stillwake.hint_watchers(v_jobs);
`,
    new: "",
  },
  {
    name: "the progress of a completed job stays where it was reported",
    killedBy: "test/attempt/log-writer.test.ts",
    only: "is complete, although it last reported",
    old: "case when p_state = 'completed' then stillwake.complete_progress(g.progress) else g.progress end,",
    new: "g.progress,",
  },
];
