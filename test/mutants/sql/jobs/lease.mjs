// Mutants of sql/functions/jobs/lease.sql.
export const file = "sql/functions/jobs/lease.sql";
export const killedBy = "test/claim/recovery.test.ts";

export const mutants = [
  {
    name: "recovery takes jobs that its lease does not hold",
    killedBy: "test/claim/attempts.test.ts",
    old: "where j.id = any (p_lease.job_ids) and j.lease_id = p_lease.id",
    new: "where j.id = any (p_lease.job_ids)",
  },
  {
    name: "recovery takes leases that have not expired",
    killedBy: "test/model/model.test.ts",
    old: "where l.until < v_now and not stillwake.may_live(l, v_now) and",
    new: "where not stillwake.may_live(l, v_now) and",
  },
  {
    name: "recovery does not check the lease again after locking it",
    killedBy: "test/claim/interleave.test.ts",
    old: `where l.until < v_now and not stillwake.may_live(l, v_now) and (p_pool is null or l.pool = p_pool)
      and l.id <> all (coalesce(array_remove(p_except, null), '{}'))
    order by l.until limit p_limit for update skip locked`,
    new: `where l.id = any (array(select d.id from stillwake.leases d where d.until < v_now and (p_pool is null or d.pool = p_pool)))
    order by l.until limit p_limit for update`,
  },
  {
    name: "a claim recovers leases that its worker holds",
    old: "and l.id <> all (coalesce(array_remove(p_except, null), '{}'))",
    new: "",
  },
  {
    name: "a heartbeat does not report a lost lease",
    killedBy: "test/model/model.test.ts",
    old: "where j.id is null or j.cancel is not null or j.pause is not null or",
    new: "where j.cancel is not null or j.pause is not null or",
  },
  {
    name: "a heartbeat renews a lost lease",
    killedBy: "test/claim/lease.test.ts",
    old: "update stillwake.leases l set until = stillwake.now() + l.span, presence = p_presence, absent_since = null where l.id = any (v_leases);",
    new: `insert into stillwake.leases (id, pool, worker, claimed_at, until, span, job_ids)
  select b.lease, j.pool, 'back', stillwake.now(), stillwake.now(), '15 seconds', array[b.job]
  from unnest(p_jobs, p_epochs, p_leases) as b (job, epoch, lease) join stillwake.live_jobs j on j.id = b.job and j.epoch = b.epoch and j.lease_id is null
  on conflict do nothing;
  update stillwake.live_jobs j set state = 'running', lease_id = l.id from stillwake.leases l
  where l.id = any (p_leases) and j.id = any (l.job_ids) and j.lease_id is null;
  update stillwake.leases l set until = stillwake.now() + l.span where l.id = any (p_leases);`,
  },
  {
    name: "a job that was started can still expire",
    old: "where j.expires_at <= v_now and j.started_at is null",
    new: "where j.expires_at <= v_now and j.lease_id is null",
  },
  {
    name: "one job that cannot be recovered blocks recovery of its pool",
    old: `when others then
      raise warning 'Lease`,
    new: `when division_by_zero then
      raise warning 'Lease`,
  },
  {
    name: "an outage of Postgres counts as the death of every worker",
    old: "if not exists (select from stillwake.outages o where o.timeline = v_timeline and o.started_at = v_started) then",
    new: "if false then",
  },
  {
    name: "a promotion does not count as an outage",
    killedBy: "test/model/model.test.ts",
    old: "o.timeline = v_timeline and o.started_at = v_started",
    new: "o.started_at = v_started",
  },
  {
    name: "every restart keeps the leases of workers that were dead before",
    old: "(select min(o.ended_at) from stillwake.outages o",
    new: "(select max(o.ended_at) from stillwake.outages o",
  },
  {
    name: "a worker that was cut off takes the jobs of those that were cut off with it",
    old: "p_except is null or array_position(p_except, null) is not null",
    new: "p_except is null",
  },
  {
    name: "leases are never recovered while no worker extends one",
    old: "where l.until < v_now and not exists (select from stillwake.outages o where o.ended_at > l.until - l.span)) then",
    new: "where l.until < v_now) then\n    delete from stillwake.outages;",
  },
  {
    name: "a restart counts from the start of the server, not from when it can be used",
    only: "from when a restarted server can be used",
    old: "values (v_now, v_timeline, v_started)\n    on conflict",
    new: "values (v_started, v_timeline, v_started)\n    on conflict",
  },
  {
    name: "one job that cannot be recovered keeps absent workers from being noticed",
    only: "of absent workers skips",
    old: "          update stillwake.leases set presence = null where id = v_lease.id;",
    new: "          raise;",
  },
  {
    name: "the first late heartbeat after an outage exposes the other workers",
    old: "perform stillwake.note_outage(exists (select from stillwake.leases l where l.id = any (v_leases) and l.until < v_now));",
    new: "perform stillwake.note_outage(false);",
  },
  {
    name: "a heartbeat that meets a locked lease counts as silence",
    old: "or exists (select from stillwake.locked_heartbeats h where h.lease_id = p_lease.id and h.until >= p_now)",
    new: "",
  },
  {
    name: "a broken session counts as the death of its worker",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "elsif v_lease.absent_since <= v_now - p_grace then",
    new: "else",
  },
  {
    name: "a worker that heartbeats after its session broke is considered dead",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "presence = p_presence, absent_since = null",
    new: "presence = coalesce(p_presence, l.presence)",
  },
  {
    name: "a restart of Postgres counts as the end of all sessions",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "and l.until >= v_now and not stillwake.may_live(l, v_now) order by",
    new: "and l.until >= v_now order by",
  },
  {
    name: "a heartbeat is a conflict for the user's transaction under REPEATABLE READ",
    killedBy: "test/attempt/tx-steps.test.ts",
    only: "longer than a heartbeat interval",
    old: "order by l.id for no key update;\n  exception",
    new: "order by l.id for update;\n  exception",
  },
  {
    name: "a transaction with an old snapshot does not lock the lease",
    killedBy: "test/attempt/tx-steps.test.ts",
    only: "although its snapshot shows the job as its own",
    old: "perform from stillwake.leases where id = p_lease for key share;",
    new: "",
  },
  {
    name: "a heartbeat waits for a locked lease",
    killedBy: "test/attempt/step-limits.test.ts",
    only: "that a long transaction has locked",
    old: "set lock_timeout = '500ms' as",
    new: "set lock_timeout = '20s' as",
  },
  {
    name: "an expired job that cannot be ended stops the claims of its pool",
    killedBy: "test/claim/recovery.test.ts",
    old: "raise warning 'Job % has expired and cannot be ended: %', v_job.id, sqlerrm;",
    new: "raise;",
  },
  {
    name: "an expired job that cannot be ended is tried again with every claim",
    killedBy: "test/claim/recovery.test.ts",
    old: "update stillwake.live_jobs set expires_at = null where id = v_job.id;",
    new: "",
  },
];
