// Reads and removes jobs and schedules of pg-boss 10 and later. Its workers claim with `for update skip locked` on the
// same rows, so a job is either claimed there or moved.
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
  type SourceSchedule,
  unsupported,
} from "./source.ts";

/** Policies that let one job of a key run at a time. */
const SERIAL = "('singleton', 'stately', 'exclusive', 'key_strict_fifo')";
const SUPPORTED = "pg-boss 10 and later";

export async function openPgBoss(client: Client, schema: string, queues: readonly string[]): Promise<ImportSource> {
  const name = pg.escapeIdentifier(schema);
  const columns = await readColumns(client, "pg-boss", schema, "job", SUPPORTED);
  // The table of an older version has other columns.
  if (!columns.has("start_after")) throw unsupported("pg-boss", `${schema}.job`, SUPPORTED);
  const scheduled = await readColumns(client, "pg-boss", schema, "schedule", SUPPORTED);
  // The jobs of a flow wait for each other: one of them alone cannot be moved.
  const flow = ["blocked", "blocking"].filter((column) => columns.has(column)).map((column) => `j.${column}`);
  // A job of a serial key would run beside the one that runs in pg-boss.
  const kept = [
    ...flow,
    `(j.policy in ${SERIAL} and exists (select from ${name}.job a where a.name = j.name and a.state = 'active'
      and a.policy = j.policy and coalesce(a.singleton_key, '') = coalesce(j.singleton_key, '')))`,
  ].join(" or ");
  // Queues of pg-boss itself, such as the one of its schedules.
  const chosen = `j.name not like '\\_\\_pgboss\\_\\_%' and (cardinality($1::text[]) = 0 or j.name = any ($1))`;
  const all = [queues];

  return {
    name: "pg-boss",
    keptReason: "part of a flow, or behind a running job of the same singleton key",
    notes: async () => [],

    async queues() {
      const { rows } = await client.query<Record<keyof SourceQueue, string>>(
        `select j.name, count(*) filter (where waiting and not kept and start_after <= now()) as ready,
          count(*) filter (where waiting and not kept and start_after > now()) as delayed,
          count(*) filter (where not waiting) as running, count(*) filter (where waiting and kept) as kept
        from (select j.name, j.state < 'active' as waiting, j.state < 'active' and (${kept}) as kept, j.start_after
          from ${name}.job j where j.state <= 'active' and ${chosen}) j
        group by j.name order by j.name`,
        all,
      );
      return rows.map(({ name: queue, ready, delayed, running, kept: left }) => ({
        name: queue,
        ready: Number(ready),
        delayed: Number(delayed),
        running: Number(running),
        kept: Number(left),
      }));
    },

    async schedules() {
      const optional = (column: string) => (scheduled.has(column) ? `j.${column}` : `''`);
      const { rows } = await client.query<SourceSchedule & { kind: string }>(
        `select j.name as queue, ${optional("key")} as key, ${optional("kind")} as kind, j.cron,
          coalesce(j.timezone, 'UTC') as zone, coalesce(j.data, '{}')::text as input,
          (j.options ->> 'priority')::integer as priority, (j.options ->> 'retryLimit')::integer + 1 as attempts
        from ${name}.schedule j where ${chosen} order by 1, 2 for update`,
        all,
      );
      return rows.map(({ kind, ...schedule }) =>
        kind === "rrule" ? { ...schedule, problem: "it is a recurrence rule, not a cron expression" } : schedule,
      );
    },

    async open({ dryRun, limit, skip = [] }) {
      const input = inputText("coalesce(j.data, '{}')::text");
      await declareCursor(
        client,
        `select j.name as queue, j.id::text, ${input} as input, ${futureTime("j.start_after")} as "runAt", j.priority,
          greatest(1, case when j.started_on is null then j.retry_limit + 1 else j.retry_limit - j.retry_count end) as attempts,
          case when j.policy in ${SERIAL} then coalesce(j.singleton_key, j.name) when j.policy = 'short' then j.singleton_key end as key
        from ${name}.job j
        where j.state < 'active' and not (${kept}) and ${chosen} and j.id <> all ($2::uuid[])
        order by j.start_after > now(), case when j.start_after > now() then j.start_after end, j.priority desc, j.created_on, j.id
        limit $3`,
        [queues, skip, limit ?? null],
        dryRun ? "" : "for update of j skip locked",
      );
    },

    next: (count) => fetchRows<SourceJob>(client, count),

    async remove(jobs) {
      await client.query(
        `delete from ${name}.job j using unnest($1::text[], $2::uuid[]) m (name, id) where j.name = m.name and j.id = m.id`,
        [jobs.map(({ queue }) => queue), jobs.map(({ id }) => id)],
      );
    },

    async removeSchedule({ queue, key }) {
      const byKey = scheduled.has("key") ? "j.key = $2" : "$2 = ''";
      await client.query(`delete from ${name}.schedule j where j.name = $1 and ${byKey}`, [queue, key]);
    },
  };
}
