// Erasing a tenant. Two tenants have a row of every kind: nothing of one is left in any table or in the store, nothing
// of the other is missing.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fileStore } from "../../src/artifacts/file-store.ts";
import { Database } from "../../src/db/database.ts";
import { erase } from "../../src/db/erase.ts";
import { InvalidInput } from "../../src/errors.ts";
import { artifactKey } from "../../src/worker/keeper/store-artifact.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { countMentions, insertTenantRows, type TenantRows } from "../support/database/tenant-rows.ts";
import { put, sha256, tempDirectories } from "../support/fakes/stores.ts";
import { recordFigure } from "../support/figures.ts";

const file = await freshDatabase();
const owner = await connect(file.url);
const suffix = randomBytes(4).toString("hex");
const place = tempDirectories();
const home = place();
const store = fileStore(home);
let database: Database;
let leaving: TenantRows;
let staying: TenantRows;

beforeAll(async () => {
  database = new Database({ url: file.url });
  leaving = await insertTenantRows(owner, `leaving${suffix}`);
  staying = await insertTenantRows(owner, `staying${suffix}`);
  for (const { tenant, jobs } of [leaving, staying]) {
    // One object with a row, and one of an attempt that died before its row was written.
    for (const content of [`first of ${tenant}`, `second of ${tenant}`]) {
      await put(store, artifactKey(jobs.completed, 1, sha256(content)), content);
    }
    await owner.query("select stillwake.set_schedule($1, $2)", [
      `nightly-${tenant}`,
      { cron: "0 3 * * *", pipeline: "report", input: { tenant }, options: { tenant } },
    ]);
    await owner.query("select stillwake.create_token(gen_random_uuid(), $1, 'swt_x', $2, 'reader', $1)", [
      tenant,
      randomBytes(32),
    ]);
    await owner.query("select stillwake.set_endpoint($1, $2)", [
      `of-${tenant}`,
      { tenant, url: `https://${tenant}.example/` },
    ]);
    for (const act of [
      { actor: "operator", act: "setEndpoint", target: `of-${tenant}`, after: { tenant } },
      { actor: tenant, token: "01890000-0000-7000-8000-000000000000", tenant, act: "job.cancel", target: jobs.failed },
      { actor: "operator", act: "job.retry", target: jobs.failed, before: { tenant } },
    ]) {
      await owner.query("select stillwake.begin_audit_entry(gen_random_uuid(), $1)", [act]);
    }
    await owner.query("select stillwake.watch('server', $1)", [[jobs.running]]);
  }
});
afterAll(async () => {
  await database.close();
  await owner.end();
});

const words = ({ tenant, ids }: TenantRows) => [tenant, ...ids];
const objectsOf = ({ ids }: TenantRows) =>
  fs.readdirSync(home, { recursive: true, encoding: "utf8" }).filter((name) => ids.some((id) => name.includes(id)));

describe("erasing a tenant", () => {
  it("is rejected without a name, and without the store if there are artifacts; nothing is deleted then", async () => {
    for (const tenant of ["", undefined, "a\0"]) {
      await expect(erase(database, tenant as string)).rejects.toBeInstanceOf(InvalidInput);
    }
    await expect(owner.query("select stillwake.erase_tenant(null)")).rejects.toMatchObject({ code: "SW001" });
    expect(Object.keys(await countMentions(owner, words(leaving))).length).toBeGreaterThan(12);
  });

  it("cancels running jobs and waits until they have stopped", async () => {
    await expect(erase(database, leaving.tenant, { store, timeout: "300ms" })).rejects.toMatchObject({
      code: "TIMEOUT",
      retryable: true,
      message: expect.stringMatching(/^1 job of tenant/),
    });
    const { rows } = await owner.query(
      "select state, cancel is not null as cancelled from stillwake.live_jobs where tenant = $1",
      [leaving.tenant],
    );
    expect(rows).toEqual([{ state: "running", cancelled: true }]);
    const { rows: leased } = await owner.query(
      "select id as job, epoch, lease_id as lease from stillwake.live_jobs where tenant = $1",
      [leaving.tenant],
    );
    await owner.query("select stillwake.settle($1)", [JSON.stringify([{ ...leased[0], outcome: "cancelled" }])]);
    await expect(erase(database, leaving.tenant)).rejects.toMatchObject({ code: "INVALID_INPUT", field: "store" });
  });

  it("leaves no row and no object of the tenant, and the other tenant unchanged", async () => {
    const before = await countMentions(owner, words(staying));
    const objects = objectsOf(staying);
    expect(objectsOf(leaving).length).toBeGreaterThan(0);
    const progress: number[] = [];
    const answer = await erase(database, leaving.tenant, { store, onProgress: ({ jobs }) => progress.push(jobs) });
    expect(answer).toEqual({ jobs: leaving.ids.length, objects: 2 });
    expect(progress.length).toBeGreaterThan(0);
    const left = await countMentions(owner, words(leaving));
    expect(left).toEqual({});
    expect(objectsOf(leaving)).toEqual([]);
    expect(await countMentions(owner, words(staying))).toEqual(before);
    expect(objectsOf(staying)).toEqual(objects);
    recordFigure("erasure: rows left of a tenant", Object.values(left).length);
  });

  it("keeps audit entries, with the actor unless it was the tenant itself", async () => {
    const { rows } = await owner.query(
      "select actor, act, target, before, after, tenant, address from stillwake.audit where target is null order by act",
    );
    const empty = { target: null, before: null, after: null, tenant: null, address: null };
    expect(rows).toEqual([
      { actor: "erased", act: "job.cancel", ...empty },
      { actor: "operator", act: "job.retry", ...empty },
      { actor: "operator", act: "setEndpoint", ...empty },
    ]);
  });

  it("does nothing the second time, or for an unknown tenant", async () => {
    for (const tenant of [leaving.tenant, "never"])
      expect(await erase(database, tenant)).toEqual({ jobs: 0, objects: 0 });
  });

  it("works in batches, also through a long feed, and stops when it is aborted", async () => {
    const tenant = `many${suffix}`;
    await owner.query(
      "select stillwake.enqueue_many('report', (select jsonb_agg($1::text) from generate_series(1, 1200)), $2)",
      [tenant, { tenant }],
    );
    await owner.query(
      `insert into stillwake.feed (job_id, seq, at, epoch, kind, level, message)
      select (select id from stillwake.live_jobs where tenant = $1 limit 1), 100 + n, stillwake.now(), 1, 'log', 'info', $1 from generate_series(1, 45000) n`,
      [tenant],
    );
    const stop = new AbortController();
    const broken = erase(database, tenant, {
      signal: stop.signal,
      onProgress: ({ jobs }) => {
        if (jobs > 0) stop.abort(new Error("enough"));
      },
    });
    await expect(broken).rejects.toThrow("enough");
    const { jobs } = await erase(database, tenant);
    expect(jobs).toBe(700);
    expect(await countMentions(owner, [tenant])).toEqual({});
  });

  it("erases children without a tenant with their parent, and keeps those of another tenant", async () => {
    const tenant = `family${suffix}`;
    const { rows } = await owner.query("select stillwake.enqueue('report', '1', $1) as parent", [{ tenant }]);
    const { parent } = rows[0];
    const make = (own: string | null) =>
      owner.query("select stillwake.enqueue('report', to_jsonb($1::text), $2) as id", [
        `child${suffix}`,
        own ? { tenant: own } : {},
      ]);
    const mine = (await make(null)).rows[0].id;
    const foreign = (await make(staying.tenant)).rows[0].id;
    await owner.query("update stillwake.live_jobs set parent_id = $1, spawn = 's', child_no = 0 where id = any ($2)", [
      parent,
      [mine, foreign],
    ]);
    expect((await erase(database, tenant)).jobs).toBe(2);
    const { rows: left } = await owner.query("select id from stillwake.jobs where id = any ($1)", [
      [parent, mine, foreign],
    ]);
    expect(left).toEqual([{ id: foreign }]);
  });
});
