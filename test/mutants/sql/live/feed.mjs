// Mutants of sql/functions/live/feed.sql.
export const file = "sql/functions/live/feed.sql";

export const mutants = [
  {
    name: "log lines of other jobs wait for a locked job",
    killedBy: "test/worker/open-transaction.test.ts",
    only: "signal",
    old: "set lock_timeout = '1s' as",
    new: "as",
  },
  {
    name: "logs are not fenced",
    killedBy: "test/claim/lease.test.ts",
    old: `where j.id = v_batch.job and j.epoch = v_batch.epoch and j.lease_id = v_batch.lease
    returning`,
    new: `where j.id = v_batch.job
    returning`,
  },
  {
    name: "progress is not fenced",
    killedBy: "test/claim/lease.test.ts",
    old: "where id = p_job and epoch = p_epoch and lease_id = p_lease;",
    new: "where id = p_job;",
  },
  {
    name: "log sequence numbers are taken without a lock",
    killedBy: "test/claim/interleave.test.ts",
    edits: [
      {
        old: "where l.id in (select (b ->> 'lease')::uuid from jsonb_array_elements(p_batches) b) order by l.id for no key update;",
        new: "where l.id in (select (b ->> 'lease')::uuid from jsonb_array_elements(p_batches) b) order by l.id;",
      },
      {
        old: `update stillwake.live_jobs j set seq = j.seq + jsonb_array_length(v_lines), log_batch = coalesce(v_batch.batch, j.log_batch),
      progress = coalesce(nullif(v_batch.progress, 'null') || jsonb_build_object('at', v_now), j.progress)
    where`,
        new: `select coalesce((select max(f.seq) from stillwake.feed f where f.job_id = j.id), 0) + jsonb_array_length(v_lines) into last_seq
    from stillwake.live_jobs j where`,
      },
      {
        old: `and j.lease_id = v_batch.lease
    returning j.seq into last_seq;`,
        new: `and j.lease_id = v_batch.lease;
    update stillwake.live_jobs j set seq = last_seq where j.id = v_batch.job and last_seq is not null;`,
      },
    ],
  },
  {
    name: "a log batch that is sent again is written again",
    killedBy: "test/claim/worker-calls.test.ts",
    old: "and j.log_batch >= v_batch.batch;",
    new: "and false;",
  },
  {
    name: "a line that code repeats after a wait is stored again",
    killedBy: "test/attempt/replay.test.ts",
    only: "repeats no line after a wait",
    old: "if v_batch.epoch > 1 and jsonb_path_exists",
    new: "if false and jsonb_path_exists",
  },
  {
    name: "a new line is lost because an earlier attempt logged an equal one",
    killedBy: "test/attempt/replay.test.ts",
    only: "repeats no line after a wait",
    old: "and e.times >= (l.line ->> 'replayed')::bigint",
    new: "and l.line ? 'replayed'",
  },
  {
    name: "lines with other data count as repeated",
    killedBy: "test/attempt/replay.test.ts",
    only: "repeats no line after a wait",
    old: "and e.data is not distinct from l.line -> 'data'",
    new: "",
  },
  {
    name: "the log of a job that was retried by hand omits its first lines",
    killedBy: "test/attempt/replay.test.ts",
    only: "starts again when the job is retried by hand",
    old: "f.kind in ('retried', 'restarted')",
    new: "f.kind in ('restarted')",
  },
];
