// 50 workers (5 processes with 10 each) on a server with hardly more connections, which restarts. All of them must
// reconnect without flooding the server and without exiting; workers without a free connection wait.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import readline from "node:readline";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Enqueued, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import type { WorkerOptions } from "../../src/worker/index.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL } from "../support/processes/fault-checks.ts";

const PROCESSES = 5;
const PER_PROCESS = 10;
const WORKERS = PROCESSES * PER_PROCESS;
/** In the worst second each worker opens two connections for statements and the direct one, and two again after a refusal. */
const CAP = WORKERS * 5;

interface Reported {
  worker: string;
  kind: string;
  at: number;
}

const server = await startPostgresServer({ max_connections: 60, log_connections: "on", log_line_prefix: "%n " });
const owner = await connect(server.url);
const stillwake = openStillwake(server.url, { connections: 2, retryTimeout: "forever" });
let login: string;
const children: ChildProcess[] = [];
const reported: Reported[] = [];

beforeAll(async () => {
  buildPackage();
  // Not the owner: superusers have reserved connections.
  await owner.query(
    "create role crowd login password 'crowd'; grant stillwake_worker to crowd; grant stillwake_app to crowd",
  );
  await owner.end();
  const url = new URL(server.url);
  url.username = "crowd";
  url.password = "crowd";
  login = url.href;
  await stillwake.register(pipeline("crowd", { pool: "crowd" }));
});
afterAll(() => {
  for (const child of children) child.kill("SIGKILL");
});

/** Resolves when all of them have claimed. */
async function startCrowd(name: string, options: Partial<WorkerOptions>): Promise<void> {
  const began = Date.now();
  const file = path.join(ROOT, "test/fixtures/crowd.mjs");
  for (let number = 0; number < PROCESSES; number++) {
    const args = [file, login, `${name}-${number}`, String(PER_PROCESS), JSON.stringify(options)];
    const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
    readline.createInterface({ input: child.stdout! }).on("line", (line) => reported.push(JSON.parse(line)));
    children.push(child);
  }
  await waitFor(() => since(began, "worker.started").size > WORKERS / 2, { timeout: 30_000, what: "most to start" });
}

async function endCrowd(): Promise<void> {
  const ended = children.splice(0).map(async (child) => {
    expect(child.exitCode).toBeNull();
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  });
  await Promise.all(ended);
}

/** The workers that reported one of these events since. */
function since(at: number, ...kinds: string[]): Set<string> {
  return new Set(reported.filter((one) => one.at >= at && kinds.includes(one.kind)).map(({ worker }) => worker));
}

const atWork = (after: number) => since(after, "claimed", "claim.empty").size;

/** Restarts the server under load. Returns when it accepted connections, and the jobs that waited. */
async function restart(signal: "SIGINT" | "SIGQUIT"): Promise<{ accepting: number; jobs: Enqueued[] }> {
  const inputs = Array.from({ length: 100 }, () => ({}));
  const jobs = await stillwake.enqueueMany("crowd", inputs);
  await server.kill(signal);
  const lost = Date.now();
  await waitFor(() => since(lost - 1000, "database.lost", "hints.lost").size >= WORKERS / 2, { timeout: 20_000 });
  await server.start();
  return { accepting: Date.now(), jobs };
}

describe("50 workers and a server with 60 connections", () => {
  const restarts = FULL ? 10 : 2;

  it(`reconnect below the connection rate limit after ${restarts} restarts, and no worker exits`, {
    timeout: 60_000 + restarts * 60_000,
  }, async () => {
    await startCrowd("fitting", { connections: 1, directUrl: false });
    for (let number = 0; number < restarts; number++) {
      const { accepting, jobs } = await restart(number % 2 === 0 ? "SIGINT" : "SIGQUIT");
      await waitFor(() => atWork(accepting) === WORKERS, { timeout: 60_000, what: "all to be at work" });
      const steadyAt = Date.now();
      await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "60s" })));
      const perSecond = connectsPerSecond(accepting, steadyAt);
      const note = `${WORKERS} workers, a connection each`;
      recordFigure("time to steady after a restart", steadyAt - accepting, "ms", note);
      recordFigure("peak connects per second after a restart", Math.max(...perSecond), "/s", `cap ${CAP}`);
      recordFigure("connects until steady", sum(perSecond), "", note);
      expect(Math.max(...perSecond)).toBeLessThanOrEqual(CAP);
    }
    await endCrowd();
  });

  it("do their work below the connection rate limit when each wants several connections, and no worker exits", {
    timeout: 120_000,
  }, async () => {
    await startCrowd("crowded", {});
    const { accepting, jobs } = await restart("SIGQUIT");
    await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "60s" })));
    const done = Date.now();
    await waitFor(() => atWork(accepting) > WORKERS / 3, { timeout: 60_000, what: "a third to be at work" });
    const perSecond = connectsPerSecond(accepting, Date.now());
    recordFigure("too little room: 100 jobs done after a restart", done - accepting, "ms");
    recordFigure("too little room: at work when they were", atWork(accepting), "", `of ${WORKERS}`);
    recordFigure("too little room: peak connects per second", Math.max(...perSecond), "/s", `cap ${CAP}`);
    recordFigure("too little room: connects refused", refused(accepting));
    expect(Math.max(...perSecond)).toBeLessThanOrEqual(CAP);
    expect(refused(accepting), "there was room enough").toBeGreaterThan(0);
    await endCrowd();
  });
});

/** The number of received connections per second, from the server's log. */
function connectsPerSecond(from: number, to: number): number[] {
  const times = [...server.log().matchAll(/^(\d+\.\d+) LOG: {2}connection received/gm)].map(
    ([, at]) => Number(at) * 1000,
  );
  const counted = times.filter((at) => at >= from && at <= to);
  const seconds = Array.from({ length: Math.ceil((to - from) / 1000) }, () => 0);
  for (const at of counted) seconds[Math.floor((at - from) / 1000)]! += 1;
  return seconds;
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}

function refused(from: number): number {
  const times = [
    ...server.log().matchAll(/^(\d+\.\d+) FATAL: {2}(?:sorry, too many clients|remaining connection slots)/gm),
  ];
  return times.filter(([, at]) => Number(at) * 1000 >= from).length;
}
