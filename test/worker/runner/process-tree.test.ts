// Kills trees of real processes that leave their group, session and parent.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { killTree, PROCESS_TAG, startGuard } from "../../../src/worker/runner/process-tree.ts";
import { cleanUp, temporaryDirectory } from "../../support/cleanup.ts";
import { recordFigure } from "../../support/figures.ts";

const FIXTURES = path.join(import.meta.dirname, "../../fixtures");
const DIST = path.join(import.meta.dirname, "../../../dist/worker/runner/process-tree.js");
/** The number of processes of exec-tree.sh. */
const TREE = 8;
// Tags are read from /proc. On other systems only groups and descendants are found, and the guardian does nothing.
const hasProc = fs.existsSync("/proc/self/environ");
const shells = ["/bin/sh", "/bin/dash", "/bin/bash", "/bin/busybox"].filter((shell) => fs.existsSync(shell));

// Cleanup functions of the current test, run in reverse order.

describe.skipIf(!hasProc)("killTree (needs /proc)", () => {
  it("kills a whole tree that ignores SIGTERM, daemonizes and clears its environment", async () => {
    const tag = newTag();
    const pids = await startTree(tag);
    expect(pids.filter(isAlive)).toHaveLength(TREE);
    // The shell and its processes, once each; a subshell that is exiting may be included.
    expect(await killTree(tag)).toBeGreaterThanOrEqual(TREE);
    expect(pids.filter(isAlive)).toEqual([]);
    recordFigure("processes left after killTree", pids.filter(isAlive).length, "processes", "after killTree");
  });

  it("treats a tag as a prefix of whole levels, and kills no other processes", async () => {
    const tag = newTag();
    const [own, below, sibling, above] = await Promise.all(
      [`${tag}1.`, `${tag}1.5.`, `${tag}10.`, tag].map((each) => startSleep(each)),
    );
    expect(await killTree(`${tag}1.`)).toBe(2);
    expect([own, below, sibling, above].map((child) => isAlive(child!.pid!))).toEqual([false, false, true, true]);
  });

  it("ignores the tag in other variables, in names and inside values", async () => {
    const tag = newTag();
    const others = await Promise.all([
      startSleep(undefined, { OTHER: `${PROCESS_TAG}=${tag}` }),
      startSleep(undefined, { [`X${PROCESS_TAG}`]: tag }),
      startSleep(undefined, { LINES: `a\n${PROCESS_TAG}=${tag}\n` }),
    ]);
    expect(await killTree(tag)).toBe(0);
    const guard = startGuard(tag);
    await guard.close();
    expect(others.map((child) => isAlive(child.pid!))).toEqual([true, true, true]);
  });

  it("does not kill the excepted processes and itself", async () => {
    const tag = newTag();
    const kept = await startSleep(tag);
    const killed = await startSleep(tag);
    expect(await killTree(tag, { except: [kept.pid!] })).toBe(1);
    expect([isAlive(kept.pid!), isAlive(killed.pid!)]).toEqual([true, false]);
    const run = await runNode(`console.log(await killTree("${tag}", { except: [${kept.pid}] }))`, {
      [PROCESS_TAG]: tag,
    });
    expect(run).toEqual({ code: 0, signal: null, stdout: "0\n" });
  });

  it("kills many trees at once, but not the excepted processes of each", async () => {
    const tags = Array.from({ length: 5 }, newTag);
    const trees = await Promise.all(
      tags.map(async (tag) => ({ tag, pids: await startTree(tag), kept: (await startSleep(tag)).pid! })),
    );
    const bystander = await startSleep(newTag());
    await Promise.all(trees.map(({ tag, kept }) => killTree(tag, { except: [kept] })));
    expect(trees.flatMap(({ pids }) => pids).filter(isAlive)).toEqual([]);
    expect([bystander.pid!, ...trees.map(({ kept }) => kept)].filter((pid) => !isAlive(pid))).toEqual([]);
  });

  it("finds processes without tag and parent by the session of a root", async () => {
    const file = path.join(scratch(), "pid");
    const script = '(env -i sh -c "echo $$ >&3; exec sleep 600" 3>"$0" & echo "$!" >"$0.pid") ';
    const root = spawn("sh", ["-c", script, file], { detached: true, stdio: "ignore" });
    await once(root, "exit");
    const pid = await waitFor(() => Number(fs.readFileSync(`${file}.pid`, "utf8")));
    cleanUp(() => endQuietly(pid));
    expect(await killTree(newTag())).toBe(0);
    expect(isAlive(pid)).toBe(true);
    expect(await killTree(newTag(), { roots: [root.pid!] })).toBe(1);
    expect(isAlive(pid)).toBe(false);
  });

  it("kills a process that forks as fast as it can", async () => {
    const tag = newTag();
    const go = path.join(scratch(), "go");
    fs.writeFileSync(go, "");
    // At most 2000, in case the test fails.
    const script = 'i=0; while [ -e "$0" ] && [ $i -lt 2000 ]; do sleep 600 & i=$((i + 1)); done; wait';
    start(["sh", "-c", script, go], { [PROCESS_TAG]: tag });
    await waitFor(() => tagged(tag).length > 50);
    const killed = await killTree(tag);
    expect(killed).toBeGreaterThan(50);
    expect(tagged(tag)).toEqual([]);
  });

  it("kills a process that keeps moving to a new session and pid", async () => {
    const tag = newTag();
    const go = path.join(scratch(), "go");
    fs.writeFileSync(go, "");
    const HOP = 'echo $$ >>"$GO"; [ -e "$GO" ] && [ "$(wc -l <"$GO")" -lt 5000 ] && setsid sh -c "$HOP" &';
    start(["sh", "-c", HOP], { [PROCESS_TAG]: tag, HOP, GO: go });
    const hops = () => fs.readFileSync(go, "utf8").split("\n").length;
    await waitFor(() => hops() > 20);
    expect(await killTree(tag)).toBeGreaterThan(0);
    const after = hops();
    expect(tagged(tag)).toEqual([]);
    expect(hops()).toBe(after);
    expect(after).toBeLessThan(5000);
  });

  it("rejects an invalid tag", async () => {
    for (const tag of ["", ".", "worker", "worker.1", "wor ker.", "a..b."]) {
      await expect(killTree(tag)).rejects.toMatchObject({ code: "INVALID_INPUT", field: "tag" });
      expect(() => startGuard(tag)).toThrow(/tag/);
    }
  });
});

describe.skipIf(!hasProc)("the guardian (needs /proc)", () => {
  it.each(shells)("with %s, kills everything when its owner's group is killed with SIGKILL", async (shell) => {
    const owner = await startOwner(newTag(), shellNamedSh(shell));
    // Signals that a terminal or a service manager sends to the group do not end it.
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"] as const) process.kill(owner.guard, signal);
    expect(owner.pids.filter(isAlive)).toHaveLength(TREE);
    const began = performance.now();
    process.kill(-owner.pid, "SIGKILL");
    await waitFor(() => owner.pids.filter(isAlive).length === 0, { what: "the end of the tree" });
    recordFigure("SIGKILL of the owner to the last exit", performance.now() - began, "ms", shell);
    await waitFor(() => !isAlive(owner.guard), { what: "the end of the guardian" });
    recordFigure(
      "processes left after killTree",
      owner.pids.filter(isAlive).length,
      "processes",
      `after kill -9 of the owner, ${shell}`,
    );
    expect(owner.pids.filter(isAlive)).toEqual([]);
  });

  it("of a worker inside a job is not killed when that job's processes are killed, and kills its own", async () => {
    const outer = newTag();
    const owner = await startOwner(newTag(), "/bin/sh", { [PROCESS_TAG]: outer });
    await killTree(outer);
    expect(isAlive(owner.pid)).toBe(false);
    await waitFor(() => owner.pids.filter(isAlive).length === 0, { what: "the end of the tree" });
    await waitFor(() => !isAlive(owner.guard), { what: "the end of the guardian" });
  });

  it("does not keep its owner alive, and exits with it", async () => {
    const tag = newTag();
    const run = await runNode(`console.log(startGuard("${tag}").pid)`);
    expect(run).toMatchObject({ code: 0, signal: null });
    await waitFor(() => !isAlive(Number(run.stdout)));
  });

  it("kills tagged processes when it is closed, but not its owner", async () => {
    const tag = newTag();
    const child = await startSleep(tag);
    const run = await runNode(`await startGuard("${tag}").close(); console.log("here")`, { [PROCESS_TAG]: tag });
    expect(run).toEqual({ code: 0, signal: null, stdout: "here\n" });
    expect(isAlive(child.pid!)).toBe(false);
  });

  it("inherits no file, directory, variable or session of its owner", async () => {
    const guard = startGuard(newTag());
    cleanUp(() => guard.close());
    const proc = `/proc/${guard.pid}`;
    await waitFor(() => fs.readFileSync(`${proc}/cmdline`, "utf8").startsWith("/bin/sh\0"));
    // Descriptors left open by the process that started the tests are inherited by every process.
    const inherited = fs.readdirSync(`/proc/${(await startSleep(undefined)).pid}/fd`).join();
    await waitFor(() => fs.readdirSync(`${proc}/fd`).join() === inherited);
    expect(fs.readlinkSync(`${proc}/fd/0`)).toMatch(/^(socket|pipe):/);
    expect([1, 2].map((fd) => fs.readlinkSync(`${proc}/fd/${fd}`))).toEqual(["/dev/null", "/dev/null"]);
    expect(fs.readlinkSync(`${proc}/cwd`)).toBe("/");
    const names = fs
      .readFileSync(`${proc}/environ`, "utf8")
      .split("\0")
      .map((each) => each.split("=")[0]);
    expect(names.sort()).toEqual(["", "LC_ALL", "PATH", "STILLWAKE_GUARDIAN"]);
    expect(Number(fs.readFileSync(`${proc}/stat`, "utf8").split(" ")[5])).toBe(guard.pid);
  });

  it("is optional: a start failure is ignored", async () => {
    const guard = startGuard(newTag(), { shell: "/nowhere/sh" });
    expect(guard.pid).toBeUndefined();
    await guard.close();
  });
});

let tags = 0;

function newTag(): string {
  return `test-${process.pid}-${Date.now()}-${++tags}.`;
}

function scratch(): string {
  const dir = temporaryDirectory("tree");
  return dir;
}

function start(command: string[], env: Record<string, string> = {}): ChildProcess {
  const { PATH = "" } = process.env;
  const child = spawn(command[0]!, command.slice(1), { env: { PATH, ...env }, detached: true, stdio: "ignore" });
  cleanUp(() => endQuietly(child.pid!));
  return child;
}

/** Resolves when the new program runs, with its environment readable. */
async function startSleep(tag: string | undefined, env: Record<string, string> = {}): Promise<ChildProcess> {
  const child = start(["sleep", "600"], { ...env, ...(tag && { [PROCESS_TAG]: tag }) });
  await waitFor(() => fs.readFileSync(`/proc/${child.pid}/cmdline`, "utf8") === "sleep\x00600\0");
  return child;
}

async function startTree(tag: string): Promise<number[]> {
  const file = path.join(scratch(), "pids");
  start(["sh", path.join(FIXTURES, "exec-tree.sh"), file], { [PROCESS_TAG]: tag });
  return await wholeTree(file);
}

async function wholeTree(file: string): Promise<number[]> {
  const pids = () => fs.readFileSync(file, "utf8").trim().split("\n").map(Number);
  await waitFor(() => pids().length === TREE, { what: "the whole tree" });
  cleanUp(() => pids().forEach(endQuietly));
  return pids();
}

interface Owner {
  pid: number;
  guard: number;
  pids: number[];
}

async function startOwner(tag: string, shell: string, env: Record<string, string> = {}): Promise<Owner> {
  const dir = scratch();
  const file = path.join(dir, "pids");
  const options = { tag, shell, scratch: dir, args: [path.join(FIXTURES, "exec-tree.sh"), file] };
  const child = spawn(process.execPath, [path.join(FIXTURES, "exec-owner.mjs"), JSON.stringify(options)], {
    env: { PATH: process.env.PATH, ...env },
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanUp(() => endQuietly(child.pid!));
  const [line] = await once(child.stdout!, "data");
  return { ...JSON.parse(line), pids: await wholeTree(file) };
}

/** busybox is a shell when it is called sh. */
function shellNamedSh(shell: string): string {
  if (!shell.endsWith("busybox")) return shell;
  const link = path.join(scratch(), "sh");
  fs.symlinkSync(shell, link);
  return link;
}

async function runNode(code: string, env: Record<string, string> = {}) {
  const program = `import { killTree, startGuard } from ${JSON.stringify(DIST)}; ${code}`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  cleanUp(() => endQuietly(child.pid!));
  let stdout = "";
  child.stdout.on("data", (data) => {
    stdout += data;
  });
  const [code_, signal] = await once(child, "close");
  return { code: code_, signal, stdout };
}

/** Zombies count as dead. */
function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

/** Running processes with the tag, found without the code under test. */
function tagged(tag: string): number[] {
  const pids = fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return fs
        .readFileSync(`/proc/${pid}/environ`, "utf8")
        .split("\0")
        .some((each) => each.startsWith(`${PROCESS_TAG}=${tag}`));
    } catch {
      return false;
    }
  });
}

function endQuietly(pid: number): void {
  for (const target of [-pid, pid]) {
    try {
      process.kill(target, "SIGKILL");
    } catch {
      // It has already exited.
    }
  }
}
