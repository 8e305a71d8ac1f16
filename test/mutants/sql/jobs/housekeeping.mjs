// Mutants of sql/functions/jobs/housekeeping.sql.
export const file = "sql/functions/jobs/housekeeping.sql";

export const mutants = [
  {
    name: "a weekly partition is dropped too early",
    killedBy: "test/db/prune.test.ts",
    old: "then p.week <= v_today",
    new: "then p.week - 14 <= v_today",
  },
  {
    name: "children are dropped while their parent waits",
    killedBy: "test/db/prune.test.ts",
    old: "stillwake.keep_children_of_live(v_part.name, p_rows) else 0 end",
    new: "0 else 0 end",
  },
  {
    name: "a partition is attached while writes are on their way to the default one",
    killedBy: "test/db/housekeeping.test.ts",
    only: "lets no write fail that began before a partition was attached",
    old: "    execute format('lock table stillwake.%I in share row exclusive mode', p_parent);",
    new: "    null;",
  },
  {
    name: "all rows of a missed week are moved, however many",
    killedBy: "test/db/housekeeping.test.ts",
    only: "stalls no one, works within a statement_timeout, and leaves many rows where they are",
    old: "  if v_rows > p_rows then",
    new: "  if v_rows < 0 then",
  },
  {
    name: "partitions of a week are kept for years",
    killedBy: "test/db/housekeeping.test.ts",
    only: "needs few partitions, and keeps everything as long",
    old: "greatest((select stillwake.weeks_per_partition(max(k.keep)) from keeps k),",
    new: "greatest(1,",
  },
  {
    name: "two processes do the housekeeping at once",
    killedBy: "test/db/housekeeping.test.ts",
    only: "does it once for all",
    old: "  if not pg_try_advisory_xact_lock(hashtextextended('stillwake housekeeping', 0)) then",
    new: "  if false then",
  },
];
