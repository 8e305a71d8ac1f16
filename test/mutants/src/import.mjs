// Mutants of stillwake import.
export const killedBy = "test/moving/import-pg-boss.test.ts";

export const mutants = [
  {
    name: "the import of pg-boss does not lock the jobs it reads",
    only: "loses and doubles no job",
    file: "src/db/import/pg-boss.ts",
    old: 'dryRun ? "" : "for update of j skip locked"',
    new: '""',
  },
  {
    name: "the import of graphile-worker does not lock the jobs it reads",
    killedBy: "test/moving/import-graphile-worker.test.ts",
    only: "loses and doubles no job",
    file: "src/db/import/graphile-worker.ts",
    old: 'dryRun ? "" : "for update of j skip locked"',
    new: '""',
  },
  {
    name: "jobs imported from another database have no idempotency key",
    only: "stores no job twice",
    file: "src/cli/import/move.ts",
    old: "idempotencyKey: idempotent ?",
    new: "idempotencyKey: idempotent && false ?",
  },
  {
    name: "the jobs behind a running job of a named queue are imported",
    killedBy: "test/moving/import-graphile-worker.test.ts",
    only: "those behind them in a named queue",
    file: "src/db/import/graphile-worker.ts",
    old: "j.is_available and coalesce(q.is_available, true)",
    new: "j.is_available",
  },
  {
    name: "a queue of BullMQ is not paused while its jobs are moved",
    killedBy: "test/moving/import-bullmq.test.ts",
    only: "stays paused after an interruption",
    file: "src/cli/import/bullmq.ts",
    old: "await queue.pause();",
    new: "",
  },
];
