// Idle processes send no statements and hold no connections, so that a database that is billed by the hour can sleep;
// an idle worker with hints sends few. Counted in the log of a Postgres that logs every statement.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { connect } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL, isAlive, round } from "../support/processes/fault-checks.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { startWorker } from "../support/processes/workers.ts";

/** How long the process must stay silent. */
const SILENCE_MS = FULL ? 600_000 : 6000;
/** How long an idle worker is observed. */
const LISTEN_MS = FULL ? 120_000 : 11_000;

// Each line starts with the application_name of the connection.
const server = await startPostgresServer({ log_statement: "all", log_connections: "on", log_line_prefix: "<%a> " });
const client = await connect(server.url);
beforeAll(buildPackage);

/** Statements and connections since the call, without those of this test. */
function recordTraffic(): { statements(): string[]; connections(): number } {
  const from = server.log().length;
  const lines = () => server.log().slice(from).split("\n");
  return {
    statements: () => lines().filter((line) => /^<(?!test>).*LOG: {2}(statement|execute)/.test(line)),
    connections: () => lines().filter((line) => line.includes("connection received")).length,
  };
}

/** The application names of Stillwake's sessions. */
async function sessions(): Promise<string[]> {
  const { rows } = await client.query(
    "select application_name as name from pg_stat_activity where application_name like 'stillwake%' order by 1",
  );
  return rows.map(({ name }) => name);
}

/** Waits in real time, because the duration of the silence is tested. */
async function wait(ms: number, look?: () => Promise<void>): Promise<void> {
  for (const until = performance.now() + ms; performance.now() < until; ) {
    await look?.();
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, Math.min(1000, until - performance.now()))));
  }
}

describe("a process with a client", () => {
  it(
    "holds no connection and sends no statement while it is idle",
    async () => {
      const { PATH = "" } = process.env;
      const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/idle-client.mjs"), server.url], {
        env: { PATH },
        stdio: ["pipe", "pipe", "inherit"],
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      let output = "";
      child.stdout.on("data", (data) => (output += data));
      await waitFor(() => output.includes("enqueued"), { what: "the client to enqueue" });
      const worker = await startRecordedWorker({
        url: server.url,
        pipelines: [implement(pipeline("quiet"), () => "done")],
        until: "empty",
      });
      await worker.worker.done;
      await waitFor(() => output.includes("idle"), { what: "the client to be idle" });
      await waitFor(async () => (await sessions()).length === 0, { what: "its connections to be closed" });

      const traffic = recordTraffic();
      let open = 0;
      await wait(SILENCE_MS, async () => {
        open = Math.max(open, (await sessions()).length);
      });
      expect(isAlive(child.pid!)).toBe(true);
      expect(traffic.statements()).toEqual([]);
      expect({ open, opened: traffic.connections() }).toEqual({ open: 0, opened: 0 });
      const note = `over ${SILENCE_MS / 1000} s`;
      recordFigure("an idle client: statements sent", traffic.statements().length, "", note);
      recordFigure("an idle client: connections open", open, "", note);

      // The process is still alive: it exits cleanly.
      child.stdin.end();
      expect(await once(child, "exit")).toEqual([0, null]);
    },
    SILENCE_MS + 60_000,
  );
});

describe("a process with an API and an orchestrator", () => {
  it("queries neither the database nor the provider in an idle hour, and holds no connection", async () => {
    const { PATH = "" } = process.env;
    const dir = temporaryDirectory("machines");
    const fixture = path.join(ROOT, "test/fixtures/idle-orchestrator.mjs");
    const child = spawn(process.execPath, [fixture, server.url, dir], {
      env: { PATH },
      stdio: ["pipe", "pipe", "inherit"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    let output = "";
    child.stdout.on("data", (data) => (output += data));
    await waitFor(() => output.includes("idle"), { what: "the machines to have come and gone", timeout: 90_000 });
    await waitFor(async () => (await sessions()).length === 0, { what: "its connections to be closed" });
    const traffic = recordTraffic();
    child.stdin.write("an hour\n");
    await waitFor(() => output.includes("{"), { what: "an hour to pass" });
    const { fired, calls } = JSON.parse(output.slice(output.indexOf("{")));
    await wait(3000);
    expect(calls, "of the provider").toBe(0);
    expect(traffic.statements()).toEqual([]);
    expect({ open: (await sessions()).length, opened: traffic.connections() }).toEqual({ open: 0, opened: 0 });
    recordFigure(
      "an idle hour of an orchestrator: statements sent",
      traffic.statements().length,
      "",
      `sped up; ${fired} timers went off`,
    );
    recordFigure("an idle hour of an orchestrator: provider calls", calls);
    child.stdin.end();
    expect(await once(child, "exit")).toEqual([0, null]);
  }, 120_000);
});

describe("a worker", () => {
  it("that exits when idle leaves no session, lock, listener, lease or process", async () => {
    const stillwake = createStillwake({ url: server.url });
    onTestFinished(() => stillwake.close());
    const { id } = await stillwake.enqueue(pipeline("script"), { steps: [] });
    const args = ["--slots", "2", "--idle-exit", "5s", "--name", "leaver"];
    const worker = await startWorker({ url: server.url, args });
    // By then it is in the list of listeners.
    await worker.waitForLine("hints.ready");
    await stillwake.wait(id, { timeout: "20s" });
    const count = async (what: string) => (await client.query(`select from ${what}`)).rowCount;
    expect(await worker.exited).toBe(0);
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
    const traffic = recordTraffic();
    await wait(3000);
    expect({ statements: traffic.statements(), connections: traffic.connections() }).toEqual({
      statements: [],
      connections: 0,
    });
  });

  it(
    "with hints sends pings, polls no more often than its interval, and opens no new connections",
    async () => {
      const worker = await startWorker({ url: server.url, args: ["--slots", "2", "--name", "waiter"] });
      await worker.waitForLine("hints.ready");
      await worker.waitForLine("claim.empty");
      const traffic = recordTraffic();
      await wait(LISTEN_MS);
      const statements = traffic.statements();
      const direct = statements.filter((line) => line.startsWith("<stillwake direct>"));
      expect(direct.filter((line) => !/: (select 1$|select stillwake\.listen\()/.test(line))).toEqual([]);
      const claims = statements.filter((line) => /select job_id, lease_id, epoch/.test(line)).length;
      expect(claims).toBeGreaterThan(0);
      // The poll interval of 5 s varies by a tenth, and one poll may be in flight at either end.
      const most = LISTEN_MS / 4500 + 1;
      expect(claims).toBeLessThanOrEqual(most);
      expect(direct.length).toBeLessThanOrEqual(most);
      // Three statements per poll: the claim, the next due time, the presence check.
      expect(statements.length).toBeLessThanOrEqual(4 * most);
      expect(traffic.connections()).toBe(0);
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
        traffic.connections(),
        "",
        `in ${LISTEN_MS / 1000} s`,
      );
      expect(await sessions()).toEqual(["stillwake", "stillwake direct"]);
      worker.signal("SIGTERM");
      await worker.exited;
    },
    LISTEN_MS + 60_000,
  );
});
