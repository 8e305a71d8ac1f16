// Idle means silent. What has nothing to do sends no statement and holds no connection, so that a database which is paid by the hour may sleep;
// a worker that waits for hints says no more than it must. Counted in the log of a Postgres that writes down every statement.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { type OwnServer, ownServer } from "../support/database/postgres-server.ts";
import { recordFigure } from "../support/figures.ts";
import { connect, FULL, isAlive, round } from "../support/processes/aftermath.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { ownWorker } from "../support/processes/recorded-worker.ts";
import { startWorker } from "../support/processes/workers.ts";

/** How long nothing is to happen. */
const SILENCE_MS = FULL ? 600_000 : 20_000;
/** How long an idle worker is listened to. */
const LISTEN_MS = FULL ? 120_000 : 30_000;

let server: OwnServer;
let client: pg.Client;

beforeAll(async () => {
  buildPackage();
  // Each line begins with the name that the connection gave itself.
  server = await ownServer({ log_statement: "all", log_connections: "on", log_line_prefix: "<%a> " });
  client = await connect(server.url);
});
afterAll(async () => {
  await client.end();
  await server[Symbol.asyncDispose]();
});

/** What the server has been asked since the call, but for what this test has asked. */
function listen(): { statements(): string[]; connections(): number } {
  const from = server.log().length;
  const lines = () => server.log().slice(from).split("\n");
  return {
    statements: () => lines().filter((line) => /^<(?!test>).*LOG: {2}(statement|execute)/.test(line)),
    connections: () => lines().filter((line) => line.includes("connection received")).length,
  };
}

/** Sessions of Stillwake, by the name they go by. */
async function sessions(): Promise<string[]> {
  const { rows } = await client.query(
    "select application_name as name from pg_stat_activity where application_name like 'stillwake%' order by 1",
  );
  return rows.map(({ name }) => name);
}

/** The length of a silence is what is tested, so it is the one thing here that is a matter of time. */
async function lasts(ms: number, look?: () => Promise<void>): Promise<void> {
  for (const until = performance.now() + ms; performance.now() < until; ) {
    await look?.();
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, Math.min(1000, until - performance.now()))));
  }
}

describe("a process that holds a client", () => {
  it(
    "has no connection and sends no statement once it has nothing to ask",
    async () => {
      const { PATH = "" } = process.env;
      const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/idle-client.mjs"), server.url], {
        env: { PATH },
        stdio: ["pipe", "pipe", "inherit"],
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      let said = "";
      child.stdout.on("data", (data) => (said += data));
      await waitFor(() => said.includes("enqueued"), { what: "the client to enqueue" });
      const worker = await ownWorker({
        url: server.url,
        pipelines: [implement(pipeline("quiet"), () => "done")],
        until: "empty",
      });
      await worker.worker.done;
      await waitFor(() => said.includes("idle"), { what: "the client to be idle" });
      await waitFor(async () => (await sessions()).length === 0, { what: "its connections to be closed" });

      const heard = listen();
      let held = 0;
      await lasts(SILENCE_MS, async () => {
        held = Math.max(held, (await sessions()).length);
      });
      expect(isAlive(child.pid!)).toBe(true);
      expect(heard.statements()).toEqual([]);
      expect({ held, opened: heard.connections() }).toEqual({ held: 0, opened: 0 });
      const note = `over ${SILENCE_MS / 1000} s`;
      recordFigure("an idle client: statements sent", heard.statements().length, "", note);
      recordFigure("an idle client: connections held", held, "", note);

      // It was not silent for being dead: it ends in good order.
      child.stdin.end();
      expect(await once(child, "exit")).toEqual([0, null]);
    },
    SILENCE_MS + 60_000,
  );
});

describe("a process with an API and an orchestrator", () => {
  it("asks neither the database nor the provider anything in an idle hour, and holds no connection", async () => {
    const { PATH = "" } = process.env;
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-machines-"));
    onTestFinished(() => fs.rmSync(dir, { recursive: true, force: true }));
    const fixture = path.join(ROOT, "test/fixtures/idle-orchestrator.mjs");
    const child = spawn(process.execPath, [fixture, server.url, dir], {
      env: { PATH },
      stdio: ["pipe", "pipe", "inherit"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    let said = "";
    child.stdout.on("data", (data) => (said += data));
    await waitFor(() => said.includes("idle"), { what: "the machines to have come and gone", timeout: 90_000 });
    await waitFor(async () => (await sessions()).length === 0, { what: "its connections to be closed" });
    const heard = listen();
    child.stdin.write("an hour\n");
    await waitFor(() => said.includes("{"), { what: "an hour to pass" });
    const { fired, calls } = JSON.parse(said.slice(said.indexOf("{")));
    await lasts(5000);
    expect(calls, "of the provider").toBe(0);
    expect(heard.statements()).toEqual([]);
    expect({ held: (await sessions()).length, opened: heard.connections() }).toEqual({ held: 0, opened: 0 });
    recordFigure(
      "an idle hour of an orchestrator: statements sent",
      heard.statements().length,
      "",
      `sped up; ${fired} timers went off`,
    );
    recordFigure("an idle hour of an orchestrator: provider calls", calls);
    child.stdin.end();
    expect(await once(child, "exit")).toEqual([0, null]);
  }, 120_000);
});

describe("a worker", () => {
  it("that ends when it is idle leaves nothing: no session, no lock, no listener, no lease, no process", async () => {
    const stillwake = createStillwake({ url: server.url });
    onTestFinished(() => stillwake.close());
    const { id } = await stillwake.enqueue(pipeline("script"), { steps: [] });
    const args = ["--slots", "2", "--idle-exit", "5s", "--name", "leaver"];
    const worker = await startWorker({ url: server.url, args });
    // By then it is listed.
    await worker.says("push.ready");
    await stillwake.wait(id, { timeout: "20s" });
    const count = async (what: string) => (await client.query(`select from ${what}`)).rowCount;
    expect(await worker.ended).toBe(0);
    const runners = worker.lines.filter(({ event }) => event === "runner.started").map(({ pid }) => Number(pid));
    expect(runners.length).toBeGreaterThan(0);
    await stillwake.close();
    await waitFor(async () => (await sessions()).length === 0, { what: "its sessions to be over" });
    expect({
      listeners: await count("stillwake.listeners"),
      leases: await count("stillwake.leases"),
      locks: await count("pg_locks where locktype = 'advisory'"),
      runners: runners.filter(isAlive),
    }).toEqual({ listeners: 0, leases: 0, locks: 0, runners: [] });
    const heard = listen();
    await lasts(3000);
    expect({ statements: heard.statements(), connections: heard.connections() }).toEqual({
      statements: [],
      connections: 0,
    });
  });

  it(
    "that waits for hints pings, looks no more often than its floor, and opens no connection for it",
    async () => {
      const worker = await startWorker({ url: server.url, args: ["--slots", "2", "--name", "waiter"] });
      await worker.says("push.ready");
      await worker.says("claim.empty");
      const heard = listen();
      await lasts(LISTEN_MS);
      const statements = heard.statements();
      const direct = statements.filter((line) => line.startsWith("<stillwake direct>"));
      expect(direct.filter((line) => !/: (select 1$|select stillwake\.listen\()/.test(line))).toEqual([]);
      const claims = statements.filter((line) => /lease_id.*refused$/.test(line)).length;
      expect(claims).toBeGreaterThan(0);
      // A tenth less than the floor of 5 s is the least, and one may be under way at either end.
      const most = LISTEN_MS / 4500 + 1;
      expect(claims).toBeLessThanOrEqual(most);
      expect(direct.length).toBeLessThanOrEqual(most);
      // A claim, when the next is due, whether others live: three for a look.
      expect(statements.length).toBeLessThanOrEqual(4 * most);
      expect(heard.connections()).toBe(0);
      const perMinute = 60_000 / LISTEN_MS;
      recordFigure(
        "an idle worker with hints: statements per minute",
        round(statements.length * perMinute),
        "",
        "floor 5 s",
      );
      recordFigure("an idle worker with hints: claims per minute", round(claims * perMinute), "", "floor 5 s");
      recordFigure(
        "an idle worker with hints: connections opened",
        heard.connections(),
        "",
        `in ${LISTEN_MS / 1000} s`,
      );
      expect(await sessions()).toEqual(["stillwake", "stillwake direct"]);
      worker.signal("SIGTERM");
      await worker.ended;
    },
    LISTEN_MS + 60_000,
  );
});
