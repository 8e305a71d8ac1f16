// The clock that all decisions use, and how tests move it.
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { migrate } from "../../src/db/migrate.ts";
import { startClock, stopClock, travel, waitFor } from "../../src/testing/index.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const database = await freshDatabase();
const [first, second] = await Promise.all([connect(database.url), connect(database.url)]);

describe("the clock of a Stillwake", () => {
  it("advances inside a transaction, so that a decision after waiting for a lock is not outdated", async () => {
    await first.query("begin");
    const before = await ahead(first);
    const { rows } = await second.query("select clock_timestamp()::text as at");
    const after = await first.query("select stillwake.now() > $1 as later", [rows[0].at]);
    await first.query("commit");
    expect(Math.abs(before)).toBeLessThan(1000);
    expect(after.rows[0].later).toBe(true);
  });

  it("extends a lease from the time of the heartbeat, however old its transaction is", async () => {
    await first.query("select stillwake.register_pipeline('steady'); select stillwake.enqueue('steady')");
    const claimed = await first.query("select * from stillwake.claim('w1', 'default', '{steady}', 1, '10 seconds')");
    const { job_id, epoch, lease_id } = claimed.rows[0];
    await first.query("begin");
    await first.query("select 1");
    const { rows } = await second.query("select clock_timestamp()::text as at");
    await first.query("select stillwake.heartbeat($1, $2, $3)", [[job_id], [epoch], [lease_id]]);
    await first.query("commit");
    const lease = await second.query("select until - span >= $1 as fresh from stillwake.leases", [rows[0].at]);
    expect(lease.rows).toEqual([{ fresh: true }]);
  });
});

describe("travel", () => {
  it("moves the time of every connection, forward and back", async () => {
    await travel(first, "5m");
    expect(await ahead(second)).toBeCloseTo(300_000, -3);
    await travel(database.url, "1h30m");
    await travel(first, "-5m");
    expect(await ahead(second)).toBeCloseTo(5_400_000, -3);
  });

  it("refuses an invalid duration", async () => {
    await expect(travel(first, "soon" as "1s")).rejects.toThrow(/is not a duration/);
  });

  it("can be started by several processes at once, each in its own schema or in the same", async () => {
    await migrate({ url: database.url, schema: "other" });
    const travellers = await Promise.all(Array.from({ length: 6 }, () => connect(database.url)));
    await Promise.all(travellers.map((client) => travel(client, "10m", "other")));
    const { rows } = await second.query(
      "select extract(epoch from other.now() - clock_timestamp()) * 1000 as other, extract(epoch from stillwake.now() - clock_timestamp()) * 1000 as own",
    );
    expect(Number(rows[0].other)).toBeCloseTo(3_600_000, -3);
    expect(Number(rows[0].own)).toBeCloseTo(5_400_000, -3);
  });

  it("stops the clock at a time and lets it continue from there", async () => {
    await stopClock(first);
    const [one, two] = [await now(second), await now(second)];
    expect(two).toBe(one);
    await travel(second, "1s");
    expect((await now(first)) - one).toBe(1000);
    await startClock(first);
    const later = await waitFor(async () => (await now(second)) - one > 1000 && now(second), { what: "time to go on" });
    expect(later - one).toBeLessThan(11_000);
  });
});

/** Milliseconds by which stillwake.now() is ahead of the server's clock. */
async function ahead(client: pg.Client): Promise<number> {
  const { rows } = await client.query("select extract(epoch from stillwake.now() - clock_timestamp()) * 1000 as ms");
  return Number(rows[0].ms);
}

async function now(client: pg.Client): Promise<number> {
  const { rows } = await client.query("select stillwake.now() as at");
  return rows[0].at.getTime();
}
