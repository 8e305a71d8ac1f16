// Recovery of jobs whose worker is gone, and expiry of jobs that were never started: bounded, in order, and without delaying others.
import fs from "node:fs";
import path from "node:path";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import { migrate } from "../../src/db/migrate.ts";
import { startPostgres } from "../../src/postgres/index.ts";
import { travel, waitFor } from "../../src/testing/index.ts";
import { claim, connect, enqueue, first, outcomes, prepareJobs, readJob, settle, writes } from "../model/actors.ts";
import { violations } from "../model/invariants.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { freshDatabase } from "../support/database/database.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { waitDatabaseTime } from "../support/processes/fault-checks.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const { startJob, take, letLeaseRunOut } = await prepareJobs(client);

describe("recovery", () => {
  it("is bounded in jobs too, and continues where it stopped", async () => {
    await startJob();
    const inputs = JSON.stringify(Array.from({ length: 299 }, (_, n) => n));
    await client.query("select stillwake.enqueue_many('sturdy', $1)", [inputs]);
    await claim(client, "w1", ["sturdy"], { limit: 300 });
    await letLeaseRunOut();
    const recover = () => first(client, "select stillwake.recover(10, null, 200)", []);
    expect(await recover()).toBe(200);
    expect(await violations(client)).toEqual([]);
    expect(await recover()).toBe(100);
    expect(await recover()).toBe(0);
    expect(await first(client, "select count(*)::int from stillwake.leases", [])).toBe(0);
  });

  it("by a claim excludes the leases that its worker holds: a claim sent before a freeze may arrive after it", async () => {
    const held = await startJob();
    await enqueue(client, "sturdy");
    const dead = await take("w1");
    await letLeaseRunOut();
    const { rows } = await client.query(
      "select job_id from stillwake.claim('w1', 'default', array['sturdy'], 5, '1 minute', p_held => array[$1::uuid])",
      [held.lease],
    );
    expect(rows).toEqual([{ job_id: dead.job }]);
    expect(await readJob(client, held.job)).toMatchObject({ state: "running", crashes: 0 });
    expect(await settle(client, held, outcomes.completed)).toBe("completed");
  });

  it("skips a job that cannot be recovered, reports it, and the pool continues", async () => {
    const bad = await startJob("frail");
    await client.query(`
      create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'no room for it'; end $$`);
    await client.query(
      "create trigger refuse before insert on stillwake.ended_jobs for each row execute function pg_temp.refuse()",
    );
    const warnings: string[] = [];
    const listen = (notice: { message?: string | undefined }) => warnings.push(notice.message ?? "");
    client.on("notice", listen);
    try {
      await letLeaseRunOut();
      const good = await enqueue(client, "sturdy");
      expect((await take("w2")).job).toBe(good);
      expect(await first(client, "select count from stillwake.watchdog() where act = 'recovered'", [])).toBe("0");
      expect(warnings.join()).toContain("no room for it");
      expect((await readJob(client, bad.job)).state).toBe("running");
    } finally {
      client.off("notice", listen);
      await client.query("drop trigger refuse on stillwake.ended_jobs");
    }
    await travel(client, "30s");
    await client.query("select stillwake.recover()");
    expect((await readJob(client, bad.job)).failure.code).toBe("POISONED");
  });

  it("of absent workers skips a job that cannot be recovered, and recovers the others", async () => {
    const { url } = await freshDatabase();
    const own = await connect(url);
    const jobs = await prepareJobs(own);
    const bad = await jobs.startJob("frail");
    await enqueue(own, "sturdy");
    const good = await jobs.take("w1");
    // No session holds these keys.
    await own.query("update stillwake.leases set presence = case id when $1 then 7001 else 7002 end", [bad.lease]);
    await own.query(`
      create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'no room for it'; end $$`);
    await own.query(
      "create trigger refuse before insert on stillwake.ended_jobs for each row execute function pg_temp.refuse()",
    );
    const recoverAbsent = () => first(own, "select recovered from stillwake.recover_absent(null, '0')", []);
    expect([await recoverAbsent(), await recoverAbsent()]).toEqual([0, 1]);
    expect((await readJob(own, good.job)).state).toBe("queued");
    expect((await readJob(own, bad.job)).state).toBe("running");
    expect(await first(own, "select presence from stillwake.leases", [])).toBeNull();
  });

  it("gives every worker the length of its lease after an outage of Postgres, before its jobs count as lost", async () => {
    const dir = temporaryDirectory("away");
    fs.chmodSync(dir, 0o755);
    let server = await startPostgres({ dir: path.join(dir, "data") });
    try {
      await migrate({ url: server.url });
      await withClient(server.url, async (own) => {
        await own.query("select stillwake.register_pipeline('long')");
        await enqueue(own, "long");
        await claim(own, "w1", ["long"], { lease: "1 minute" });
      });
      await server.stop();
      server = await startPostgres({ dir: path.join(dir, "data") });
      await withClient(server.url, async (own) => {
        // As after an outage that was longer than the lease, which was last extended before the restart.
        await own.query(`update stillwake.leases
          set until = stillwake.now() - interval '50 milliseconds', span = stillwake.now() - interval '50 milliseconds' - claimed_at`);
        expect(await first(own, "select stillwake.recover()", [])).toBe(0);
        await travel(own, "61s");
        expect(await first(own, "select stillwake.recover()", [])).toBe(1);
      });
    } finally {
      await server.stop();
    }
  });
});

describe("recovery after outages", () => {
  it("requeues the job of a worker that died before several restarts, and leaves that of one that heartbeats between them", async () => {
    const server = await startPostgresServer();
    const span = "3 seconds";
    const held = await withClient(server.url, async (own) => {
      await own.query("select stillwake.register_pipeline('long')");
      const jobs = [await enqueue(own, "long"), await enqueue(own, "long")];
      const [dead] = await claim(own, "dead", ["long"], { lease: span });
      const [living] = await claim(own, "living", ["long"], { lease: span });
      expect([dead!.job, living!.job]).toEqual(jobs);
      return { dead: dead!, living: living! };
    });
    const recovered: unknown[] = [];
    // Each restart comes before the length of a lease has passed since the one before.
    for (let restart = 0; restart < 3; restart++) {
      await server.kill("SIGQUIT");
      await server.start();
      await withClient(server.url, async (own) => {
        await writes.heartbeat!.send(own, held.living);
        await waitDatabaseTime(own, "1700 milliseconds");
        recovered.push(await first(own, "select stillwake.recover()", []));
      });
    }
    expect(recovered).toEqual([0, 1, 0]);
    await withClient(server.url, async (own) => {
      expect(await readJob(own, held.dead.job)).toMatchObject({ state: "queued", crashes: 1 });
      expect(await readJob(own, held.living.job)).toMatchObject({ state: "running", crashes: 0 });
    });
  });

  it("waits for the length of a lease when no lease anywhere was extended and its caller was cut off too", async () => {
    const held = await startJob();
    const recoverUnsure = () => first(client, "select stillwake.recover(p_except => '{null}')", []);
    await letLeaseRunOut();
    expect(await recoverUnsure()).toBe(0);
    await travel(client, "10s");
    expect(await recoverUnsure()).toBe(0);
    await travel(client, "1ms");
    expect(await recoverUnsure()).toBe(1);
    expect(await readJob(client, held.job)).toMatchObject({ state: "queued", crashes: 1 });
  });

  it("waits for a caller that was cut off, also while the lease of another worker is still valid", async () => {
    const late = await startJob();
    await travel(client, "5s");
    await enqueue(client, "sturdy");
    const valid = await take("w2");
    await travel(client, "5001ms");
    const recoverUnsure = () =>
      first(client, "select stillwake.recover(p_except => array[$1, null]::uuid[])", [valid.lease]);
    expect(await recoverUnsure()).toBe(0);
    await writes.heartbeat!.send(client, late);
    await travel(client, "9s");
    expect(await recoverUnsure()).toBe(0);
    expect(await readJob(client, late.job)).toMatchObject({ state: "running", crashes: 0 });
    await settle(client, late, outcomes.completed);
    await settle(client, valid, outcomes.completed);
  });

  it("gives the length of a lease from when a restarted server can be used, however long its start took", async () => {
    const { url } = await freshDatabase();
    const own = await connect(url);
    const jobs = await prepareJobs(own);
    await travel(own, "-1h");
    const held = await jobs.startJob();
    // As if this server had been started after the last heartbeat, and no call had noticed it.
    await own.query("delete from stillwake.outages");
    await travel(own, "3h");
    expect(await first(own, "select stillwake.recover()", [])).toBe(0);
    await travel(own, "10s");
    expect(await first(own, "select stillwake.recover()", [])).toBe(0);
    await travel(own, "1ms");
    expect(await first(own, "select stillwake.recover()", [])).toBe(1);
    expect(await readJob(own, held.job)).toMatchObject({ state: "queued", crashes: 1 });
  });

  it("does not wait for a caller that was connected all the time", async () => {
    const dead = await startJob();
    await enqueue(client, "sturdy");
    const living = await take("w2");
    await travel(client, "5s");
    await writes.heartbeat!.send(client, living);
    await travel(client, "5001ms");
    expect(await first(client, "select stillwake.recover()", [])).toBe(1);
    expect((await readJob(client, dead.job)).state).toBe("queued");
  });

  it("waits after the first late heartbeat of a worker, when no other could send one either", async () => {
    const early = await startJob();
    await enqueue(client, "sturdy");
    const late = await take("w2");
    await letLeaseRunOut();
    await travel(client, "1m");
    await writes.heartbeat!.send(client, early);
    expect(await first(client, "select stillwake.recover()", [])).toBe(0);
    await travel(client, "9s");
    await writes.heartbeat!.send(client, late);
    await travel(client, "1001ms");
    expect(await first(client, "select stillwake.recover()", [])).toBe(1);
    expect(await readJob(client, late.job)).toMatchObject({ state: "running", crashes: 0 });
  });
});

describe("a lease whose row is locked", () => {
  it("is kept by the heartbeats of that time, for the length of the lease", async () => {
    const held = await startJob();
    const application = await connect(database.url);
    await application.query("begin");
    await application.query("select from stillwake.leases where id = $1 for update", [held.lease]);
    await travel(client, "9s");
    expect(await writes.heartbeat!.send(client, held)).toBe("busy");
    await travel(client, "2s");
    expect(await first(client, "select stillwake.recover()", [])).toBe(0);
    await application.query("commit");
    expect(await first(client, "select stillwake.recover()", [])).toBe(0);
    expect(await readJob(client, held.job)).toMatchObject({ state: "running", crashes: 0 });
    await travel(client, "8001ms");
    expect(await first(client, "select stillwake.recover()", [])).toBe(1);
  });

  it("needs no stored heartbeat after the next one that reaches it", async () => {
    const held = await startJob();
    const application = await connect(database.url);
    await application.query("begin");
    await application.query("select from stillwake.leases where id = $1 for update", [held.lease]);
    await writes.heartbeat!.send(client, held);
    await application.query("commit");
    const stored = "select count(*)::int from stillwake.locked_heartbeats where lease_id = $1";
    expect(await first(client, stored, [held.lease])).toBe(1);
    expect(await writes.heartbeat!.send(client, held)).toBeUndefined();
    expect(await first(client, stored, [held.lease])).toBe(0);
  });
});

describe("expiry", () => {
  it("ends a job that was not started, and never one that was started, however it was requeued", async () => {
    const started = await startJob("sturdy", { expires_in: "1 minute" });
    const never = await enqueue(client, "sturdy", { expires_in: "1 minute", priority: -9 });
    await travel(client, "61s");
    await client.query("select stillwake.recover()");
    const again = await take("w2");
    expect(again.job).toBe(started.job);
    expect((await readJob(client, never)).failure.code).toBe("EXPIRED");
    await settle(client, again, outcomes.released);
    await client.query("select stillwake.expire()");
    expect((await readJob(client, started.job)).state).toBe("queued");
    expect(await settle(client, await take("w3"), outcomes.completed)).toBe("completed");
  });

  it("pauses a job that cannot be ended, and the pool's other jobs are claimed", async () => {
    await client.query("select stillwake.register_pipeline('guarded')");
    await client.query(`create function guard() returns trigger language plpgsql as
      $$ begin if new.pipeline = 'guarded' then raise exception 'not in this table'; end if; return new; end $$`);
    await client.query(
      "create trigger guard before insert on stillwake.ended_jobs for each row execute function guard()",
    );
    const guarded = await enqueue(client, "guarded", { expires_in: "1 minute" });
    const expired = await enqueue(client, "sturdy", { expires_in: "1 minute", priority: -9 });
    await travel(client, "61s");
    const good = await enqueue(client, "sturdy");
    const held = await take("w1");
    expect(held.job).toBe(good);
    expect(await settle(client, held, outcomes.completed)).toBe("completed");
    expect((await readJob(client, expired)).failure.code).toBe("EXPIRED");
    expect(await readJob(client, guarded)).toMatchObject({
      state: "paused",
      pause: { reason: expect.stringMatching(/^The job expired at .* could not be ended: not in this table$/) },
    });
    await client.query("select * from stillwake.watchdog()");
    const pauses = "select count(*)::int from stillwake.feed where job_id = $1 and kind = 'paused'";
    expect(await first(client, pauses, [guarded])).toBe(1);
    await client.query("drop trigger guard on stillwake.ended_jobs");
    expect(await first(client, "select stillwake.cancel($1)", [guarded])).toBe("cancelled");
    expect(await violations(client)).toEqual([]);
  });
});

describe("a hint", () => {
  it("is sent for a job that is requeued for a later time, if a worker listens", async () => {
    const held = await startJob();
    const hints: string[] = [];
    client.on("notification", ({ payload }) => hints.push(payload ?? ""));
    await client.query('listen "stillwake.hint"');
    await settle(client, held, outcomes.slept);
    await client.query("select 1");
    expect(hints).toEqual([]);
    await travel(client, "2m");
    await client.query("select stillwake.listen('w9', 'default')");
    await settle(client, await take("w1"), outcomes.slept);
    await waitFor(async () => hints.length > 0, { timeout: 5000 });
    expect(hints).toEqual(["default"]);
    await client.query("select stillwake.unlisten('w9')");
  });
});

describe("an id", () => {
  it("that is enqueued again after its job has ended stays that job", async () => {
    const held = await startJob();
    const again = "select stillwake.enqueue_many('sturdy', '[1]', '{}', array[$1::uuid])";
    await settle(client, held, outcomes.completed);
    await travel(client, "6s");
    expect(await first(client, again, [held.job])).toEqual([held.job]);
    expect(await first(client, "select count(*)::int from stillwake.jobs where id = $1", [held.job])).toBe(1);
    expect((await readJob(client, held.job)).state).toBe("completed");
  });
});

async function withClient<Result>(url: string, work: (client: pg.Client) => Promise<Result>): Promise<Result> {
  const own = await connect(url);
  try {
    return await work(own);
  } finally {
    await own.end();
  }
}
