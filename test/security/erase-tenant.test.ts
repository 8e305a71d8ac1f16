// S39: a tenant is erased. Two with a row of every kind: of one nothing is left in any table or in the store, of the other nothing is missing.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fileStore } from "../../src/artifacts/file-store.ts";
import { Database } from "../../src/db/database.ts";
import { erase } from "../../src/db/erase.ts";
import { InvalidInput } from "../../src/errors.ts";
import { artifactKey } from "../../src/worker/keeper/store-artifact.ts";
import { freshDatabase } from "../support/database/database.ts";
import { furnish, mentions, type TenantRows } from "../support/database/tenant-rows.ts";
import { freshPlaces, put, sha256 } from "../support/fakes/stores.ts";
import { recordFigure } from "../support/figures.ts";
import { connect } from "../support/processes/aftermath.ts";

const file = await freshDatabase();
const owner = await connect(file.url);
const suffix = randomBytes(4).toString("hex");
const place = freshPlaces();
const home = place();
const store = fileStore(home);
let database: Database;
let leaving: TenantRows;
let staying: TenantRows;

beforeAll(async () => {
  database = new Database({ url: file.url });
  leaving = await furnish(owner, `leaving${suffix}`);
  staying = await furnish(owner, `staying${suffix}`);
  for (const { tenant, jobs } of [leaving, staying]) {
    // One that its row names, and one of an attempt that died before it had a row.
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
    for (const act of [
      { actor: tenant, token: "01890000-0000-7000-8000-000000000000", tenant, act: "job.cancel", target: jobs.failed },
      { actor: "operator", act: "job.retry", target: jobs.failed, before: { tenant } },
    ]) {
      await owner.query("select stillwake.begin_act(gen_random_uuid(), $1)", [act]);
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

describe("S39: erasing a tenant", () => {
  it("is refused without a name, and without the store when there are artifacts; nothing of those is gone then", async () => {
    for (const tenant of ["", undefined, "a\0"]) {
      await expect(erase(database, tenant as string)).rejects.toBeInstanceOf(InvalidInput);
    }
    await expect(owner.query("select stillwake.erase_tenant(null)")).rejects.toMatchObject({ code: "SW001" });
    expect(Object.keys(await mentions(owner, words(leaving))).length).toBeGreaterThan(12);
  });

  it("asks running jobs to stop and does not go on before they have", async () => {
    await expect(erase(database, leaving.tenant, { store, timeout: "300ms" })).rejects.toMatchObject({
      code: "TIMEOUT",
      retryable: true,
      message: expect.stringMatching(/^1 jobs of tenant/),
    });
    const { rows } = await owner.query(
      "select state, cancel is not null as asked from stillwake.live_jobs where tenant = $1",
      [leaving.tenant],
    );
    expect(rows).toEqual([{ state: "running", asked: true }]);
    const { rows: held } = await owner.query(
      "select id as job, epoch, lease_id as lease from stillwake.live_jobs where tenant = $1",
      [leaving.tenant],
    );
    await owner.query("select stillwake.settle($1)", [JSON.stringify([{ ...held[0], outcome: "cancelled" }])]);
    await expect(erase(database, leaving.tenant)).rejects.toMatchObject({ code: "INVALID_INPUT", field: "store" });
  });

  it("leaves no row and no object of it, and the other as it was", async () => {
    const before = await mentions(owner, words(staying));
    const objects = objectsOf(staying);
    expect(objectsOf(leaving).length).toBeGreaterThan(0);
    const told: number[] = [];
    const answer = await erase(database, leaving.tenant, { store, onProgress: ({ jobs }) => told.push(jobs) });
    expect(answer).toEqual({ jobs: leaving.ids.length, objects: 2 });
    expect(told.length).toBeGreaterThan(0);
    const left = await mentions(owner, words(leaving));
    expect(left).toEqual({});
    expect(objectsOf(leaving)).toEqual([]);
    expect(await mentions(owner, words(staying))).toEqual(before);
    expect(objectsOf(staying)).toEqual(objects);
    recordFigure("erasure: rows left of a tenant", Object.values(left).length);
  });

  it("keeps of an act that it happened, and who did it unless that was the tenant itself", async () => {
    const { rows } = await owner.query(
      "select actor, act, target, before, after, tenant, address from stillwake.audit where target is null order by act",
    );
    const empty = { target: null, before: null, after: null, tenant: null, address: null };
    expect(rows).toEqual([
      { actor: "erased", act: "job.cancel", ...empty },
      { actor: "operator", act: "job.retry", ...empty },
    ]);
  });

  it("has nothing to do the second time, or for one that never was", async () => {
    for (const tenant of [leaving.tenant, "never"])
      expect(await erase(database, tenant)).toEqual({ jobs: 0, objects: 0 });
  });

  it("goes in batches, also through a long feed, and ends when it is broken off", async () => {
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
    expect(await mentions(owner, [tenant])).toEqual({});
  });

  it("takes children without a tenant along with their parent, and leaves those of another", async () => {
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
