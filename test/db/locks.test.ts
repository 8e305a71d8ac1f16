// Schema changes while an application runs. A migration waits for a lock for at most two seconds and holds no other lock
// while it waits, so that no session is blocked behind it for longer.
import type pg from "pg";
import { describe, expect, inject, it } from "vitest";
import { migrate } from "../../src/index.ts";
import { testDatabase, travel, waitFor } from "../../src/testing/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";

describe("while another session reads", () => {
  it("a migration waits for a lock only briefly, so that no session is blocked behind it, and succeeds in the end", async () => {
    const { url, client } = await migratedDatabase();
    await client.query("update stillwake.installation set functions = 'of an earlier release'");
    const holder = await connect(url);
    await holder.query("begin; select from stillwake.jobs");
    const migrating = migrate({ url });
    await waitFor(() => somebodyIsBlocked(client));
    const stall = await timed(() => client.query("select from stillwake.jobs"));
    await holder.query("commit");
    expect(await migrating).toMatchObject({ functions: true });
    expect(stall).toBeGreaterThan(50);
    expect(stall).toBeLessThan(3500);
    recordFigure("locks: longest wait of an application behind a migration", stall, "ms");
  });

  it("make_partitions stops at the first lock it does not get, and creates the rest the next time", async () => {
    const { url, client } = await migratedDatabase();
    const all = await partitions(client);
    await client.query(`do $$ declare v record; begin
      for v in select * from stillwake.partitions() loop execute format('drop table stillwake.%I', v.name); end loop; end $$`);
    const stall = await stallBehind(url, client, "select stillwake.make_partitions()");
    expect(stall).toBeLessThan(3500);
    expect((await partitions(client)).length).toBeLessThan(all.length);
    await client.query("select stillwake.make_partitions()");
    expect(await partitions(client)).toEqual(all);
  });

  it("prune stops at the first partition it cannot drop, and drops the rest the next time", async () => {
    const { url, client } = await migratedDatabase();
    await travel(client, "90d");
    const stall = await stallBehind(url, client, "select stillwake.prune()");
    expect(stall).toBeLessThan(3500);
    expect((await partitions(client)).length).toBeGreaterThan(0);
    await client.query("select stillwake.prune()");
    expect(await partitions(client)).toEqual([]);
  });
});

describe("when a lock is never available", () => {
  it("a migration fails after its timeout, and leaves nothing behind", async () => {
    const database = await testDatabase({ server: inject("server"), prefix: "locks" });
    cleanUp(() => database.drop());
    const holder = await connect(database.url);
    await holder.query("begin; lock table pg_catalog.pg_proc in share mode");
    await expect(migrate({ url: database.url, retryTimeoutMs: 0 })).rejects.toThrow(/lock timeout/);
    expect((await holder.query("select to_regnamespace('stillwake') as schema")).rows).toEqual([{ schema: null }]);
  });
});

/** Runs a statement while another session reads the feed, and measures how long a third session waits behind it. */
async function stallBehind(url: string, client: pg.Client, statement: string): Promise<number> {
  const [holder, worker] = await Promise.all([connect(url), connect(url)]);
  await holder.query("begin; select from stillwake.feed");
  const working = worker.query(statement);
  await waitFor(() => somebodyIsBlocked(client));
  const stall = await timed(() => client.query("select from stillwake.jobs; select from stillwake.checkpoints"));
  await working;
  await holder.query("commit");
  return stall;
}

async function partitions(client: pg.Client): Promise<string[]> {
  return (await client.query("select name from stillwake.partitions() order by 1")).rows.map(({ name }) => name);
}

async function somebodyIsBlocked(client: pg.Client): Promise<boolean> {
  const { rowCount } = await client.query(
    "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
  );
  return rowCount! > 0;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

async function migratedDatabase(): Promise<{ url: string; client: pg.Client }> {
  const database = await testDatabase({ server: inject("server"), template: inject("template"), prefix: "locks" });
  cleanUp(() => database.drop());
  return { url: database.url, client: await connect(database.url) };
}
