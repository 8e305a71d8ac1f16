// Inserts a row of every kind that can belong to a tenant, with the tenant's tag in every text. Tests then search all
// tables for the tag and the ids of its jobs.
import { randomUUID } from "node:crypto";
import type pg from "pg";

export interface TenantRows {
  tenant: string;
  /** Queued, running, completed, failed, and the parent of a child. */
  jobs: { queued: string; running: string; completed: string; failed: string; parent: string; child: string };
  ids: string[];
}

/** `client` is the owner's connection. `mark` consists of letters and digits. */
export async function insertTenantRows(client: pg.Client, mark: string): Promise<TenantRows> {
  await client.query("select stillwake.register_pipeline('report', $1)", [{ on_conflict: "wait", pool: "reports" }]);
  await client.query("select stillwake.set_endpoint('hook', $1)", [{ url: "https://receiver.example/hook" }]);
  const enqueue = async (name: string) => {
    const options = {
      tenant: mark,
      key: `${mark}-${name}`,
      idempotency_key: `${mark}-once-${name}`,
      webhook: { endpoint: "hook" },
    };
    const { rows } = await client.query("select stillwake.enqueue('report', $1, $2) as id", [{ mark, name }, options]);
    return rows[0].id as string;
  };
  const claim = async () => {
    const { rows } = await client.query("select * from stillwake.claim($1, 'reports', '{report}', 1)", [`w-${mark}`]);
    const { job_id: job, epoch, lease_id: lease } = rows[0];
    return { job, epoch, lease, fence: [job, epoch, lease] };
  };
  const work = async ({ job, epoch, lease, fence }: Awaited<ReturnType<typeof claim>>) => {
    const at = { job, epoch, lease };
    await client.query("select stillwake.append_logs($1)", [
      JSON.stringify([{ ...at, lines: [{ message: `line of ${mark}`, step: mark, data: { mark } }] }]),
    ]);
    await client.query("select stillwake.save_checkpoints($1)", [
      JSON.stringify([{ ...at, step: `step ${mark}`, output: { mark } }]),
    ]);
    const sha = "0".repeat(64);
    await client.query("select stillwake.save_artifact($1, $2, $3, $4, 3, $5, 'text/plain', $6)", [
      ...fence,
      `${mark}.txt`,
      sha,
      `2026-01-05/${job}/${epoch}/${sha}`,
    ]);
    await client.query("select stillwake.progress($1, $2, $3, $4)", [...fence, { sentence: mark }]);
    await client.query("select stillwake.signal($1, 'go', $2, $3, $4)", [job, { mark }, mark, randomUUID()]);
  };

  const completed = await enqueue("completed");
  const first = await claim();
  await work(first);
  await client.query("select stillwake.complete($1, $2, $3, $4)", [...first.fence, { mark }]);

  const failed = await enqueue("failed");
  const lost = await claim();
  await client.query("select stillwake.fail($1, $2, $3, $4, false, '0s')", [...lost.fence, { message: `no ${mark}` }]);
  const second = await claim();
  await work(second);
  await client.query("select stillwake.fail($1, $2, $3, $4, true)", [...second.fence, { message: `never ${mark}` }]);

  const parent = await enqueue("parent");
  const spawner = await claim();
  const { rows } = await client.query(
    `select stillwake.spawn($1, $2, $3, $4, 'report', $5, $6, array[stillwake.new_id()], 0, 1, 'collect')`,
    [...spawner.fence, `spawn ${mark}`, JSON.stringify([{ mark, name: "child" }]), { tenant: mark }],
  );
  if (rows.length !== 1) throw new Error("no child was spawned");
  const child = (await client.query("select id from stillwake.live_jobs where parent_id = $1", [parent])).rows[0].id;
  await client.query("select stillwake.settle($1)", [
    JSON.stringify([
      {
        job: spawner.job,
        epoch: spawner.epoch,
        lease: spawner.lease,
        outcome: "slept",
        waiting_for: "children",
        awaits: `spawn ${mark}`,
      },
    ]),
  ]);
  await client.query("select stillwake.pause($1, $2, $2)", [child, mark]);

  const running = await enqueue("running");
  await work(await claim());
  const queued = await enqueue("queued");
  await client.query("select stillwake.pause($1, $2, $2)", [queued, mark]);
  await client.query("select stillwake.set_weight($1, 2)", [mark]);
  const jobs = { queued, running, completed, failed, parent, child };
  return { tenant: mark, jobs, ids: Object.values(jobs) };
}

/** The number of rows per table (partitions excluded) that contain one of the words. */
export async function countMentions(client: pg.Client, words: string[]): Promise<Record<string, number>> {
  const { rows } = await client.query<{ name: string }>(
    "select relname as name from pg_class where relnamespace = 'stillwake'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1",
  );
  const found: Record<string, number> = {};
  for (const { name } of rows) {
    const answer = await client.query(
      `select count(*)::integer as count from stillwake.${name} t where exists (select from unnest($1::text[]) w where position(w in t::text) > 0)`,
      [words],
    );
    if (answer.rows[0].count > 0) found[name] = answer.rows[0].count;
  }
  return found;
}
