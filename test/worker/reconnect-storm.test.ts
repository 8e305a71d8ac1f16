// T22: a crowd of workers meets a server with hardly more connections than they are, and the server restarts. They must come back without
// storming it and without ending, each of them; those who find no room wait their turn. 5 processes with 10 workers each.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import readline from "node:readline";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake, type Enqueued, pipeline, type Stillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import type { WorkerOptions } from "../../src/worker/index.ts";
import { type OwnServer, ownServer } from "../support/database/postgres-server.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/aftermath.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const PROCESSES = 5;
const PER_PROCESS = 10;
const WORKERS = PROCESSES * PER_PROCESS;
/** In the worst second each worker tries two connections for statements and the direct one, and two of those again after a refusal. */
const CAP = WORKERS * 5;

interface Said {
  worker: string;
  kind: string;
  at: number;
}

let server: OwnServer;
let stillwake: Stillwake;
let login: string;
const children: ChildProcess[] = [];
const said: Said[] = [];

beforeAll(async () => {
  buildPackage();
  server = await ownServer({ max_connections: 60, log_connections: "on", log_line_prefix: "%n " });
  // Not the owner: superusers have connections of their own in reserve.
  const owner = new pg.Client({ connectionString: server.url });
  await owner.connect();
  await owner.query(
    "create role crowd login password 'crowd'; grant stillwake_worker to crowd; grant stillwake_app to crowd",
  );
  await owner.end();
  const url = new URL(server.url);
  url.username = "crowd";
  url.password = "crowd";
  login = url.href;
  stillwake = createStillwake({ url: server.url, connections: 2, patience: "forever" });
  await stillwake.register(pipeline("crowd", { pool: "crowd" }));
});
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
  await stillwake.close();
  await server[Symbol.asyncDispose]();
});

/** Answers when all of them have looked for work. */
async function startCrowd(name: string, options: Partial<WorkerOptions>): Promise<void> {
  const began = Date.now();
  const file = path.join(ROOT, "test/fixtures/crowd.mjs");
  for (let number = 0; number < PROCESSES; number++) {
    const args = [file, login, `${name}-${number}`, String(PER_PROCESS), JSON.stringify(options)];
    const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
    readline.createInterface({ input: child.stdout! }).on("line", (line) => said.push(JSON.parse(line)));
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

/** Those who have said one of these since. */
function since(at: number, ...kinds: string[]): Set<string> {
  return new Set(said.filter((one) => one.at >= at && kinds.includes(one.kind)).map(({ worker }) => worker));
}

const atWork = (after: number) => since(after, "claimed", "claim.empty").size;

/** Stops the server under work and starts it again. Answers when it took connections, and the jobs that lay there meanwhile. */
async function restart(signal: "SIGINT" | "SIGQUIT"): Promise<{ accepting: number; jobs: Enqueued[] }> {
  const inputs = Array.from({ length: 100 }, () => ({}));
  const jobs = await stillwake.enqueueMany("crowd", inputs);
  await server.kill(signal);
  const lost = Date.now();
  await waitFor(() => since(lost - 1000, "database.lost", "push.lost").size >= WORKERS / 2, { timeout: 20_000 });
  await server.start();
  return { accepting: Date.now(), jobs };
}

describe("T22: 50 workers and a server with 60 connections", () => {
  const restarts = FULL ? 10 : 2;

  it(`with room for all, restarted ${restarts} times: connects stay below the cap, everyone is back, nobody ends`, {
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
      recordFigure("T22: time to steady after a restart", steadyAt - accepting, "ms", note);
      recordFigure("T22: peak connects per second after a restart", Math.max(...perSecond), "/s", `cap ${CAP}`);
      recordFigure("T22: connects until steady", sum(perSecond), "", note);
      expect(Math.max(...perSecond)).toBeLessThanOrEqual(CAP);
    }
    await endCrowd();
  });

  it("with too little room, as each of them wants several: connects stay below the cap, the work is done, nobody ends", {
    timeout: 120_000,
  }, async () => {
    await startCrowd("crowded", {});
    const { accepting, jobs } = await restart("SIGQUIT");
    await Promise.all(jobs.map(({ id }) => stillwake.wait(id, { timeout: "60s" })));
    const done = Date.now();
    await waitFor(() => atWork(accepting) > WORKERS / 3, { timeout: 60_000, what: "a third to be at work" });
    const perSecond = connectsPerSecond(accepting, Date.now());
    recordFigure("T22: too little room: 100 jobs done after a restart", done - accepting, "ms");
    recordFigure("T22: too little room: at work when they were", atWork(accepting), "", `of ${WORKERS}`);
    recordFigure("T22: too little room: peak connects per second", Math.max(...perSecond), "/s", `cap ${CAP}`);
    recordFigure("T22: too little room: connects refused", refused(accepting));
    expect(Math.max(...perSecond)).toBeLessThanOrEqual(CAP);
    expect(refused(accepting), "there was room enough").toBeGreaterThan(0);
    await endCrowd();
  });
});

/** From the server's log: "connection received" of each second, by the server's clock, which is ours. */
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
