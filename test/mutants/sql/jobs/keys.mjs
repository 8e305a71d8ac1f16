// Mutants of sql/functions/jobs/keys.sql.
export const file = "sql/functions/jobs/keys.sql";
export const killedBy = "test/flow/keys-interleave.test.ts";

export const mutants = [
  {
    name: "a key whose waiting job was locked is left to the watchdog",
    killedBy: "test/claim/key-waiters.test.ts",
    only: "starts soon after",
    old: "perform stillwake.note_free_key(k.pipeline, k.key, k.scope, v_now) from unnest(v_left, v_keys, v_scopes) k (pipeline, key, scope);",
    new: "",
  },
  {
    name: "a key is checked once only",
    killedBy: "test/claim/key-waiters.test.ts",
    only: "of two slots",
    old: "    if v_again then",
    new: "    if false then",
  },
  {
    name: "a job enqueued under REPEATABLE READ waits for the watchdog",
    killedBy: "test/claim/key-waiters.test.ts",
    only: "REPEATABLE READ",
    old: "if current_setting('transaction_isolation') <> 'read committed' then",
    new: "if false then",
  },
  {
    name: "a claim waits for the transaction that takes a slot",
    killedBy: "test/claim/key-waiters.test.ts",
    only: "does not wait long",
    old: "language plpgsql set lock_timeout = '100ms' as $$",
    new: "language plpgsql as $$",
  },
  {
    name: "ending a job does not take the lock of its key",
    only: "none waits",
    old: "perform case when l.shared then pg_advisory_xact_lock_shared(l.lock) else pg_advisory_xact_lock(l.lock) end from (",
    new: "perform l.lock from (",
  },
  {
    name: "a job that starts waiting for its key does not check again at commit",
    only: "none waits",
    old: "perform stillwake.fill_key_slots(new.pipeline, new.key, new.tenant);",
    new: "",
  },
  {
    name: "one taken slot of a key counts for all slots",
    only: "both free",
    old: "v_taken := v_slot;",
    new: "exit;",
  },
  {
    name: "all jobs waiting for a key are admitted, whatever the limit",
    killedBy: "test/model/keys.test.ts",
    old: "v_max   integer := (select key_limit from stillwake.pipelines where name = p_pipeline);",
    new: "v_max   integer := 1000;",
  },
  {
    name: "the job that came last is admitted to its key first",
    killedBy: "test/model/keys.test.ts",
    old: "order by j.order_at, j.id limit cardinality(f.slots) for update skip locked",
    new: "order by j.order_at desc, j.id desc limit cardinality(f.slots) for update skip locked",
  },
  {
    name: "a job replaces the jobs of other tenants that hold its key",
    killedBy: "test/server/tenants.test.ts",
    only: "is free, also for replace",
    old: `and j.key = i.key
        and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is not null and j.cancel is null offset 0`,
    new: `and j.key = i.key
        and j.key_slot is not null and j.cancel is null offset 0`,
  },
  {
    name: "a job replaces the jobs of other tenants that wait for its key",
    killedBy: "test/model/keys.test.ts",
    old: "and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is null",
    new: "and j.key_slot is null",
  },
  {
    name: "a job joins a job of another tenant by its key",
    killedBy: "test/model/keys.test.ts",
    old: "and coalesce(j.tenant, '') = coalesce(i.tenant, '') and j.key_slot is not null and j.cancel is null order by j.key_slot limit 1",
    new: "and j.key_slot is not null and j.cancel is null order by j.key_slot limit 1",
  },
  {
    name: "an ended job passes its key to a waiting job of another tenant",
    killedBy: "test/model/keys.test.ts",
    old: "and coalesce(j.tenant, '') = f.scope and j.key_slot is null",
    new: "and j.key_slot is null",
  },
  {
    name: "a slot of a key that another tenant holds counts as taken",
    killedBy: "test/model/keys.test.ts",
    old: "and coalesce(j.tenant, '') = v_scope and j.key_slot between 1 and v_max",
    new: "and j.key_slot between 1 and v_max",
  },
];
