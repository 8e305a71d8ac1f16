// stillwake import: moves waiting and delayed jobs, and schedules, from another job queue into Stillwake.
import { InvalidInput } from "../../errors.ts";
import { findClosest } from "../../text/suggest.ts";
import { type Command, databaseFlags } from "../command.ts";

const SOURCES = ["pg-boss", "graphile-worker", "bullmq"] as const;

export const importCommand: Command = {
  name: "import",
  group: "Run",
  summary: "move waiting and delayed jobs from pg-boss, graphile-worker or BullMQ",
  usage: SOURCES.map((source) => `${source} [queue…]`),
  args: [1, 1000],
  subcommands: SOURCES,
  flags: {
    "dry-run": "print what would be moved, and move nothing",
    map: "<queue=pipeline> where they have different names; repeatable. BullMQ: also queue/name=pipeline",
    limit: "<n> move at most this many jobs",
    "skip-invalid": "leave jobs that the pipeline's schema rejects in the source",
    "no-keys": "ignore singleton keys, job keys and named queues",
    "no-schedules": "leave the schedules in the source",
    from: "<url> the source, if it is not in Stillwake's database; for BullMQ redis://…",
    "source-schema": '<name> the schema of the source (default: "pgboss" or "graphile_worker")',
    prefix: '<prefix> of the keys of BullMQ (default: "bull")',
    ...databaseFlags,
    json: "print JSON",
  },
  examples: [
    ["import pg-boss --dry-run", "what would be moved"],
    ["import pg-boss email --map email=send-email", "one queue, to a pipeline of another name"],
    ["import graphile-worker", "all tasks, in one transaction"],
    ["import bullmq email reports --from redis://localhost:6379", "in the project that has bullmq installed"],
  ],
  async run(context) {
    const source = SOURCES.find((name) => name === context.args[0]);
    if (source) return (await import("../import/run.ts")).runImport(context, source);
    const closest = findClosest(context.args[0]!, SOURCES);
    throw new InvalidInput(`Jobs cannot be imported from ${JSON.stringify(context.args[0])}`, {
      field: "source",
      remedy: closest ? `Did you mean ${closest}?` : `Allowed: ${SOURCES.join(", ")}`,
    });
  },
};
