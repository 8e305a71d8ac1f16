// The first minute of a new user: a fresh copy of the repository, and the two commands of the README.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { launchBrowser, openVisit } from "../support/server/browser.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const MINUTES = 60_000;
const isRoot = process.getuid?.() === 0;

interface User {
  name: string;
  uid?: number;
  gid?: number;
}

// Each user needs an installation. Where CI runs as root, the run itself is the clone of root.
const users: User[] = isRoot
  ? [{ name: "nobody", uid: 65534, gid: 65534 }, ...(FULL ? [{ name: "root, in a directory closed to others" }] : [])]
  : [{ name: "this user (the other users are skipped: only root can try them)" }];

const undo: (() => unknown)[] = [];
afterAll(async () => {
  for (const step of undo.splice(0).reverse()) await step();
  // Two installations and a copy of npm's cache are many files.
}, 5 * MINUTES);

describe.each(users)("in a fresh clone, as $name,", { timeout: 5 * MINUTES }, (user) => {
  const clone = makeClone(user);

  it("npm test passes", async () => {
    const began = performance.now();
    const command = run(clone, ["test", "--", "test/package/testing"]);
    await once(command.process, "exit");
    expect(command.output()).toMatch(/Tests {2}\d+ passed/);
    expect(command.process.exitCode).toBe(0);
    recordFigure(`clone: npm test, first time, ${user.name}`, (performance.now() - began) / 1000, "s");
  });

  it("npm start serves on the URL it prints, and exits with npm", async () => {
    const port = await freePort();
    const began = performance.now();
    const command = run(clone, ["start"], { STILLWAKE_PORT: String(port) });
    const address = `http://127.0.0.1:${port}`;
    await waitFor(() => command.output().includes(address) || hasEnded(command.process), { timeout: 2 * MINUTES });
    expect(command.output()).toContain(address);
    recordFigure(`clone: npm start, ${user.name}`, (performance.now() - began) / 1000, "s", "already installed");

    const health = await fetch(`${address}/health`);
    expect(health.status).toBe(200);
    expect(await health.json()).toMatchObject({ status: "ok" });

    // npm and its shell die at once, without a signal to the program below them.
    command.process.kill("SIGTERM");
    await waitFor(() => processesIn(clone.dir).length === 0, { timeout: 20_000, what: "everything to end" });
    await expect(fetch(`${address}/health`)).rejects.toThrow();
  });
});

// Takes some minutes, mostly npm: only in the full run, on an idle machine.
describe.runIf(FULL)("the first minute", { timeout: 5 * MINUTES }, () => {
  it("shows a job in the browser that loses its runner and completes, from one command", async () => {
    const clone = makeClone(users[0]!);
    const browser = await launchBrowser();
    undo.push(() => browser.close());
    const port = await freePort();
    const began = performance.now();
    const note = (what: string) =>
      recordFigure(
        `first minute: ${what}`,
        (performance.now() - began) / 1000,
        "s",
        "from npm start in a fresh clone, warm npm cache",
      );
    const command = run(clone, ["start"], { STILLWAKE_PORT: String(port) });
    const origin = `http://127.0.0.1:${port}`;
    await waitFor(() => command.output().includes(origin) || hasEnded(command.process), { timeout: 4 * MINUTES });
    note("the banner");
    const { page, expectNoComplaints } = await openVisit(browser, { origin });
    await page.goto(`${origin}/jobs`);
    await page
      .getByRole("link", { name: /demo-survivor/ })
      .first()
      .click();
    await page
      .getByText(/The job resumes from its last checkpoint/)
      .first()
      .waitFor({ timeout: MINUTES });
    note("a runner is seen to die");
    await page.getByRole("heading", { name: /demo-survivor/ }).waitFor();
    await page.locator(".state[data-state=completed]").first().waitFor({ timeout: MINUTES });
    note("the job is seen to complete");
    expectNoComplaints();
    expect((performance.now() - began) / 1000).toBeLessThan(90);
    command.process.kill("SIGTERM");
    await waitFor(() => processesIn(clone.dir).length === 0, { timeout: 20_000, what: "everything to end" });
  });
});

interface Clone {
  dir: string;
  user: User;
  env: NodeJS.ProcessEnv;
}

function makeClone(user: User): Clone {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-clone-"));
  const dir = path.join(base, "stillwake");
  const listed = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], { cwd: ROOT });
  for (const file of listed.toString().split("\0").filter(Boolean)) {
    if (fs.existsSync(path.join(ROOT, file))) fs.cpSync(path.join(ROOT, file), path.join(dir, file));
  }
  const home = path.join(base, "home");
  fs.mkdirSync(home);
  const env: NodeJS.ProcessEnv = {
    PATH: process.env.PATH,
    HOME: home,
    npm_config_cache: cacheFor(user, base),
    npm_config_prefer_offline: "true",
  };
  if (user.uid !== undefined) execFileSync("chown", ["-R", `${user.uid}:${user.gid}`, base]);
  undo.push(() => {
    for (const pid of processesIn(dir)) process.kill(pid, "SIGKILL");
    fs.rmSync(base, { recursive: true, force: true, maxRetries: 5 });
  });
  return { dir, user, env };
}

/** Another user cannot read this user's npm cache and gets a copy. */
function cacheFor(user: User, base: string): string {
  const ours = process.env.npm_config_cache ?? path.join(os.homedir(), ".npm");
  if (user.uid === undefined) return ours;
  const copy = path.join(base, "cache");
  fs.mkdirSync(copy);
  if (fs.existsSync(path.join(ours, "_cacache"))) execFileSync("cp", ["-r", path.join(ours, "_cacache"), copy]);
  return copy;
}

function run(clone: Clone, args: string[], env: NodeJS.ProcessEnv = {}) {
  const { uid, gid } = clone.user;
  const child = spawn("npm", args, {
    cwd: clone.dir,
    env: { ...clone.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    ...(uid !== undefined && gid !== undefined && { uid, gid }),
  });
  const output: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => output.push(data));
  return { process: child, output: () => Buffer.concat(output).toString() };
}

/** Every process whose working directory is in `dir`: npm, its shell, the program, and Postgres. */
function processesIn(dir: string): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    try {
      return fs.readlinkSync(`/proc/${Number(entry)}/cwd`).startsWith(dir) ? [Number(entry)] : [];
    } catch {
      return [];
    }
  });
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

async function freePort(): Promise<number> {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as net.AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}
