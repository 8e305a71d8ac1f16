// Reads and removes jobs of graphile-worker 0.16 and later. Its workers claim with `for update skip locked` on the same
// rows, so a job is either claimed there or moved.
import pg from "pg";
import {
  type Client,
  declareCursor,
  fetchRows,
  futureTime,
  type ImportSource,
  inputText,
  readColumns,
  type SourceJob,
  type SourceQueue,
} from "./source.ts";

export async function openGraphileWorker(
  client: Client,
  schema: string,
  tasks: readonly string[],
): Promise<ImportSource> {
  const name = pg.escapeIdentifier(schema);
  for (const table of ["_private_jobs", "_private_tasks", "_private_job_queues", "_private_known_crontabs"])
    await readColumns(client, "graphile-worker", schema, table, "graphile-worker 0.16 and later");
  const jobs = `${name}._private_jobs j join ${name}._private_tasks t on t.id = j.task_id
    left join ${name}._private_job_queues q on q.id = j.job_queue_id`;
  // A job of a named queue would run beside the one that runs in graphile-worker.
  const movable = "j.is_available and coalesce(q.is_available, true)";
  const chosen = "(cardinality($1::text[]) = 0 or t.identifier = any ($1))";

  return {
    name: "graphile-worker",
    keptReason: "without attempts left, or behind a running job of the same named queue",

    async notes() {
      const { rows } = await client.query<{ identifier: string }>(
        `select identifier from ${name}._private_known_crontabs order by identifier limit 100`,
      );
      if (rows.length === 0) return [];
      const names = rows.map(({ identifier }) => identifier).join(", ");
      return [
        `The crontab of graphile-worker is in your code, not in its tables: declare a schedule for each of ${names} (docs/move/from-graphile-worker.md).`,
      ];
    },

    async queues() {
      const { rows } = await client.query<Record<keyof SourceQueue, string>>(
        `select t.identifier as name, count(*) filter (where ${movable} and j.run_at <= now()) as ready,
          count(*) filter (where ${movable} and j.run_at > now()) as delayed, count(*) filter (where j.locked_at is not null) as running,
          count(*) filter (where j.locked_at is null and not (${movable})) as kept
        from ${jobs} where ${chosen} group by t.identifier order by t.identifier`,
        [tasks],
      );
      return rows.map(({ name: task, ready, delayed, running, kept }) => ({
        name: task,
        ready: Number(ready),
        delayed: Number(delayed),
        running: Number(running),
        kept: Number(kept),
      }));
    },

    schedules: async () => [],

    async open({ dryRun, limit, skip = [] }) {
      await declareCursor(
        client,
        `select t.identifier as queue, j.id::text, ${inputText("j.payload::text")} as input, ${futureTime("j.run_at")} as "runAt",
          -j.priority as priority, j.max_attempts - j.attempts as attempts, coalesce(q.queue_name, j.key) as key
        from ${jobs}
        where ${movable} and ${chosen} and j.id <> all ($2::bigint[])
        order by j.run_at > now(), case when j.run_at > now() then j.run_at end, j.priority, j.run_at, j.id
        limit $3`,
        [tasks, skip, limit ?? null],
        dryRun ? "" : "for update of j skip locked",
      );
    },

    next: (count) => fetchRows<SourceJob>(client, count),

    async remove(moved) {
      await client.query(`delete from ${name}._private_jobs j where j.id = any ($1::bigint[])`, [
        moved.map(({ id }) => id),
      ]);
    },

    removeSchedule: async () => {},
  };
}
