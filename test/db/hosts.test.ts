// URLs with several hosts, and servers whose commits wait for a standby: a real primary with a streaming standby.
import { describe, expect, it } from "vitest";
import { runDoctor } from "../../src/db/doctor.ts";
import { splitHosts } from "../../src/db/hosts.ts";
import { createStillwake, type Duration, pipeline } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { type ReplicatedServer, startReplicatedServer } from "../support/database/replicated-server.ts";
import { deferred } from "../support/deferred.ts";
import { recordFigure } from "../support/figures.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { waitDatabaseTime } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";

const ADDRESS = "postgres://u:p%2C@";

describe("a URL with several hosts", () => {
  it.each([
    [`${ADDRESS}a:1,b:2/db?sslmode=disable`, [`${ADDRESS}a:1/db?sslmode=disable`, `${ADDRESS}b:2/db?sslmode=disable`]],
    [`${ADDRESS}a,b:2,[::1]:3/db`, [`${ADDRESS}a/db`, `${ADDRESS}b:2/db`, `${ADDRESS}[::1]:3/db`]],
    [`${ADDRESS}/db?host=a,b&port=1,2`, [`${ADDRESS}a:1/db`, `${ADDRESS}b:2/db`]],
    [`${ADDRESS}/db?host=a,/run/pg&port=7`, [`${ADDRESS}a:7/db`, `${ADDRESS}/db?host=%2Frun%2Fpg&port=7`]],
    [`${ADDRESS}a:1/db`, [`${ADDRESS}a:1/db`]],
  ])("%s is one URL per host", (url, singles) => {
    expect(splitHosts(url)).toEqual(singles);
  });

  it.each([
    [
      "a:1,b:2/db?target_session_attrs=read-only",
      /target_session_attrs=read-only, which leads to a standby.*read-write/,
    ],
    ["a:1/db?target_session_attrs=standby", /target_session_attrs=standby, which leads to a standby/],
    ["a:1/db?target_session_attrs=master", /target_session_attrs=master, which is not known/],
    ["a:1,,b:2/db", /has an empty host/],
    ["a,b,c/db?port=1,2", /has 3 hosts and 2 ports.*one port for all hosts/],
    ["a:1,b:x/db", /has an invalid host, number 2/],
    ["a,b/db?hostaddr=10.0.0.1", /hostaddr, which is not supported/],
  ])("%s is refused by name", (rest, message) => {
    expect(() => createStillwake({ url: `${ADDRESS}${rest}` })).toThrow(message);
    expect(() => createStillwake({ url: `${ADDRESS}${rest}` })).not.toThrow(/p%2C/);
  });
});

/** Both hosts, the standby first, so that the order alone does not find the primary. */
function urlOf({ primary, standby }: ReplicatedServer): string {
  const { host } = new URL(standby.url);
  return `${primary.url.replace("@", `@${host},`)}?target_session_attrs=read-write`;
}

describe("with a primary and a standby", () => {
  it("client, worker with hints and server find the primary, and the promoted standby after it", {
    timeout: 120_000,
  }, async () => {
    const servers = await startReplicatedServer({ synchronous: true });
    const url = urlOf(servers);
    const work = pipeline<number, number>("work");
    const stillwake = openStillwake(url, { retryTimeout: "60s" });
    const server = createServer({ url, auth: "none", retryTimeout: "60s" });
    const { promise: promoted, resolve: release } = deferred();
    const code = implement(work, async (job, n) => {
      await job.step("one", () => n);
      if (n === 1) await promoted;
      return n;
    });
    const recorded = await startRecordedWorker({ url, pipelines: [code], slots: 2, lease: "60s" as Duration });
    await recorded.waitForEvent("hints.ready");
    const before = await stillwake.enqueue(work, 0);
    expect((await stillwake.wait(before.id, { timeout: "20s" })).output).toBe(0);
    const across = await stillwake.enqueue(work, 1);
    await waitFor(async () => (await stillwake.get(across.id)).state === "running", { timeout: 10_000 });

    const killedAt = performance.now();
    await servers.primary.kill();
    await servers.promote();
    const promotedAt = performance.now();
    release();
    const after = await stillwake.enqueue(work, 2);
    expect((await stillwake.wait(after.id, { timeout: "60s" })).output).toBe(2);
    recordFigure("first job after a promotion, several hosts", performance.now() - promotedAt, "ms");
    expect(await stillwake.wait(across.id, { timeout: "60s" })).toMatchObject({ output: 1, crashes: 0 });
    await recorded.waitForEvent("hints.ready", { after: killedAt, timeout: 30_000 });
    expect((await server.fetch(new Request("http://127.0.0.1/v1/health"))).status).toBe(200);
    const { port } = new URL(servers.standby.url);
    expect((await runDoctor({ url }))[0]).toMatchObject({
      check: "connection",
      level: "ok",
      found: expect.stringContaining(port),
    });
    await server.close();
  });

  it("commands find the primary", async () => {
    const servers = await startReplicatedServer({ synchronous: true });
    const doctor = await runCommand(["doctor", "--url", urlOf(servers), "--json"]);
    expect(doctor.stdout).toContain(`127.0.0.1:${new URL(servers.primary.url).port}`);
    const migrated = await runCommand(["migrate", "--url", urlOf(servers)]);
    expect(migrated).toMatchObject({ code: 0, stderr: "" });
    const jobs = await runCommand(["jobs", "--url", urlOf(servers), "--json"]);
    expect(jobs).toMatchObject({ code: 0, stderr: "" });
  });

  it("while the synchronous standby is away, health and doctor say so and connections do not pile up", {
    timeout: 180_000,
  }, async () => {
    const servers = await startReplicatedServer({ synchronous: true });
    const { url } = servers.primary;
    const work = pipeline<number, number>("work");
    const stillwake = openStillwake(url, { retryTimeout: "forever" });
    const server = createServer({ url, auth: "none" });
    const health = async () => (await server.fetch(new Request("http://127.0.0.1/v1/health"))).status;
    const { promise: away, resolve: release } = deferred();
    const code = implement(work, async (job, n) => {
      await away;
      for (let step = 0; step < 5; step++) await job.step(`${step}`, () => step);
      return n;
    });
    const { worker } = await startRecordedWorker({ url, pipelines: [code], slots: 8, lease: "120s" as Duration });
    const running = await stillwake.enqueueMany(work, [...new Array(8).keys()]);
    await waitFor(() => worker.health().active === 8, { timeout: 10_000, what: "all slots to be in use" });
    expect(await health()).toBe(200);
    const sql = await connect(url);
    const connections = async () =>
      (await sql.query("select count(*)::int as n from pg_stat_activity where backend_type = 'client backend'")).rows[0]
        .n as number;

    await servers.standby.kill();
    release();
    const pending = Array.from({ length: 40 }, (_, n) => stillwake.enqueue(work, n));
    for (const enqueued of pending) enqueued.catch(() => {});
    await waitFor(async () => (await health()) === 503, { timeout: 20_000, what: "health to notice" });
    const found = (await runDoctor({ url })).find(({ check }) => check === "replication");
    expect(found).toMatchObject({ level: "error", found: expect.stringMatching(/every commit waits/) });
    await waitFor(() => worker.health().database === "down", { timeout: 40_000, what: "the worker to notice" });
    const early = await connections();
    // Two statement timeouts: each one could leave another session that waits.
    await waitDatabaseTime(sql, "24 seconds");
    const late = await connections();
    recordFigure("connections while commits wait", late, "", `${early} when it was noticed`);
    expect(late).toBeLessThanOrEqual(early + 2);

    await servers.standby.start();
    const jobs = [...running, ...(await Promise.all(pending))];
    for (const job of jobs) expect(await stillwake.wait(job.id, { timeout: "60s" })).toMatchObject({ crashes: 0 });
    await waitFor(async () => (await health()) === 200, { timeout: 20_000, what: "health to be well" });
    expect(worker.health().database).toBe("up");
    await server.close();
  });

  it("the doctor says what an asynchronous standby can lose", async () => {
    const servers = await startReplicatedServer({ synchronous: false });
    const findings = await runDoctor({ url: servers.primary.url });
    expect(findings.find(({ check }) => check === "replication")).toMatchObject({
      level: "warning",
      found: expect.stringMatching(/^asynchronous: a failover to .* loses .* bytes of WAL/),
      remedy: expect.stringContaining("synchronous_standby_names"),
    });
  });
});
