// Whole trees of real processes, which leave their group, their session and their parent, and must not be left over.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { GUARD, killTree, startGuard } from "../../../src/worker/runner/process-tree.ts";
import { recordFigure } from "../../support/figures.ts";

const FIXTURES = path.join(import.meta.dirname, "../../fixtures");
const DIST = path.join(import.meta.dirname, "../../../dist/worker/runner/process-tree.js");
/** As many as exec-tree.sh starts. */
const TREE = 8;
// Marks are read in /proc. Elsewhere only groups and descendants are found, and the guardian does nothing.
const hasProc = fs.existsSync("/proc/self/environ");
const shells = ["/bin/sh", "/bin/dash", "/bin/bash", "/bin/busybox"].filter((shell) => fs.existsSync(shell));

// Everything a test starts or makes is undone after it, the newest first.
const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

describe.skipIf(!hasProc)("killTree (needs /proc)", () => {
  it("T50: leaves nobody of a tree that ignores SIGTERM, daemonises and clears its environment", async () => {
    const mark = newMark();
    const pids = await startTree(mark);
    expect(pids.filter(isAlive)).toHaveLength(TREE);
    // The shell and what it started, each once; a subshell that is just ending may be among them.
    expect(await killTree(mark)).toBeGreaterThanOrEqual(TREE);
    expect(pids.filter(isAlive)).toEqual([]);
    recordFigure("T50: survivors", pids.filter(isAlive).length, "processes", "after killTree");
  });

  it("takes a mark as a prefix of whole levels, and leaves the others alone", async () => {
    const mark = newMark();
    const [own, below, sibling, above] = await Promise.all(
      [`${mark}1.`, `${mark}1.5.`, `${mark}10.`, mark].map((each) => startSleep(each)),
    );
    expect(await killTree(`${mark}1.`)).toBe(2);
    expect([own, below, sibling, above].map((child) => isAlive(child!.pid!))).toEqual([false, false, true, true]);
  });

  it("is not misled by the mark in another variable, in a name or inside of a value", async () => {
    const mark = newMark();
    const others = await Promise.all([
      startSleep(undefined, { OTHER: `${GUARD}=${mark}` }),
      startSleep(undefined, { [`X${GUARD}`]: mark }),
      startSleep(undefined, { LINES: `a\n${GUARD}=${mark}\n` }),
    ]);
    expect(await killTree(mark)).toBe(0);
    const guard = startGuard(mark);
    await guard.close();
    expect(others.map((child) => isAlive(child.pid!))).toEqual([true, true, true]);
  });

  it("spares those it is told to spare, and itself", async () => {
    const mark = newMark();
    const kept = await startSleep(mark);
    const killed = await startSleep(mark);
    expect(await killTree(mark, { except: [kept.pid!] })).toBe(1);
    expect([isAlive(kept.pid!), isAlive(killed.pid!)]).toEqual([true, false]);
    const run = await runNode(`console.log(await killTree("${mark}", { except: [${kept.pid}] }))`, { [GUARD]: mark });
    expect(run).toEqual({ code: 0, signal: null, stdout: "0\n" });
  });

  it("of many trees at once ends each one whole, and of each spares whom it is told to spare", async () => {
    const marks = Array.from({ length: 5 }, newMark);
    const trees = await Promise.all(
      marks.map(async (mark) => ({ mark, pids: await startTree(mark), kept: (await startSleep(mark)).pid! })),
    );
    const bystander = await startSleep(newMark());
    await Promise.all(trees.map(({ mark, kept }) => killTree(mark, { except: [kept] })));
    expect(trees.flatMap(({ pids }) => pids).filter(isAlive)).toEqual([]);
    expect([bystander.pid!, ...trees.map(({ kept }) => kept)].filter((pid) => !isAlive(pid))).toEqual([]);
  });

  it("finds by its session what has neither mark nor parent, when the root is named", async () => {
    const file = path.join(scratch(), "pid");
    const script = '(env -i sh -c "echo $$ >&3; exec sleep 600" 3>"$0" & echo "$!" >"$0.pid") ';
    const root = spawn("sh", ["-c", script, file], { detached: true, stdio: "ignore" });
    await once(root, "exit");
    const pid = await waitFor(() => Number(fs.readFileSync(`${file}.pid`, "utf8")));
    undo.push(() => endQuietly(pid));
    expect(await killTree(newMark())).toBe(0);
    expect(isAlive(pid)).toBe(true);
    expect(await killTree(newMark(), { roots: [root.pid!] })).toBe(1);
    expect(isAlive(pid)).toBe(false);
  });

  it("T50: catches a process that forks as fast as it can", async () => {
    const mark = newMark();
    const go = path.join(scratch(), "go");
    fs.writeFileSync(go, "");
    // At most 2000, should the test fail.
    const script = 'i=0; while [ -e "$0" ] && [ $i -lt 2000 ]; do sleep 600 & i=$((i + 1)); done; wait';
    start(["sh", "-c", script, go], { [GUARD]: mark });
    await waitFor(() => marked(mark).length > 50);
    const killed = await killTree(mark);
    expect(killed).toBeGreaterThan(50);
    expect(marked(mark)).toEqual([]);
  });

  it("T50: catches a process that hops: a new session, a new number, and the old one gone", async () => {
    const mark = newMark();
    const go = path.join(scratch(), "go");
    fs.writeFileSync(go, "");
    const HOP = 'echo $$ >>"$GO"; [ -e "$GO" ] && [ "$(wc -l <"$GO")" -lt 5000 ] && setsid sh -c "$HOP" &';
    start(["sh", "-c", HOP], { [GUARD]: mark, HOP, GO: go });
    const hops = () => fs.readFileSync(go, "utf8").split("\n").length;
    await waitFor(() => hops() > 20);
    expect(await killTree(mark)).toBeGreaterThan(0);
    const after = hops();
    expect(marked(mark)).toEqual([]);
    expect(hops()).toBe(after);
    expect(after).toBeLessThan(5000);
  });

  it("refuses a mark that could mean more than was meant", async () => {
    for (const mark of ["", ".", "worker", "worker.1", "wor ker.", "a..b."]) {
      await expect(killTree(mark)).rejects.toMatchObject({ code: "INVALID_INPUT", field: "mark" });
      expect(() => startGuard(mark)).toThrow(/mark/);
    }
  });
});

describe.skipIf(!hasProc)("the guardian (needs /proc)", () => {
  it.each(shells)(
    "T50: with %s, leaves nobody when its owner is killed outright, with the whole group",
    async (shell) => {
      const owner = await startOwner(newMark(), shellNamedSh(shell));
      // What a terminal or a service manager sends to everyone does not end it.
      for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"] as const) process.kill(owner.guard, signal);
      expect(owner.pids.filter(isAlive)).toHaveLength(TREE);
      const began = performance.now();
      process.kill(-owner.pid, "SIGKILL");
      await waitFor(() => owner.pids.filter(isAlive).length === 0, { what: "the end of the tree" });
      recordFigure("T50: kill -9 of the owner to nobody left", performance.now() - began, "ms", shell);
      await waitFor(() => !isAlive(owner.guard), { what: "the end of the guardian" });
      recordFigure(
        "T50: survivors",
        owner.pids.filter(isAlive).length,
        "processes",
        `after kill -9 of the owner, ${shell}`,
      );
      expect(owner.pids.filter(isAlive)).toEqual([]);
    },
  );

  it("T50: of a worker inside of a job is spared by the sweep of that job, and does its own", async () => {
    const outer = newMark();
    const owner = await startOwner(newMark(), "/bin/sh", { [GUARD]: outer });
    await killTree(outer);
    expect(isAlive(owner.pid)).toBe(false);
    await waitFor(() => owner.pids.filter(isAlive).length === 0, { what: "the end of the tree" });
    await waitFor(() => !isAlive(owner.guard), { what: "the end of the guardian" });
  });

  it("does not keep its owner alive, and goes with it", async () => {
    const mark = newMark();
    const run = await runNode(`console.log(startGuard("${mark}").pid)`);
    expect(run).toMatchObject({ code: 0, signal: null });
    await waitFor(() => !isAlive(Number(run.stdout)));
  });

  it("sweeps when it is closed, but spares its owner", async () => {
    const mark = newMark();
    const child = await startSleep(mark);
    const run = await runNode(`await startGuard("${mark}").close(); console.log("here")`, { [GUARD]: mark });
    expect(run).toEqual({ code: 0, signal: null, stdout: "here\n" });
    expect(isAlive(child.pid!)).toBe(false);
  });

  it("holds nothing of its owner: no file, no directory, no variable, no session", async () => {
    const guard = startGuard(newMark());
    undo.push(() => guard.close());
    const proc = `/proc/${guard.pid}`;
    await waitFor(() => fs.readFileSync(`${proc}/cmdline`, "utf8").startsWith("/bin/sh\0"));
    // What whoever started the tests has left open is inherited by every process, and no business of ours.
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

  it("that cannot be started is no reason to fail", async () => {
    const guard = startGuard(newMark(), { shell: "/nowhere/sh" });
    expect(guard.pid).toBeUndefined();
    await guard.close();
  });
});

let marks = 0;

function newMark(): string {
  return `test-${process.pid}-${Date.now()}-${++marks}.`;
}

function scratch(): string {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-tree-"));
  undo.push(() => fs.rmSync(dir, { recursive: true, force: true }));
  return dir;
}

function start(command: string[], env: Record<string, string> = {}): ChildProcess {
  const { PATH = "" } = process.env;
  const child = spawn(command[0]!, command.slice(1), { env: { PATH, ...env }, detached: true, stdio: "ignore" });
  undo.push(() => endQuietly(child.pid!));
  return child;
}

/** Resolves when the new program runs, with its environment readable. */
async function startSleep(mark: string | undefined, env: Record<string, string> = {}): Promise<ChildProcess> {
  const child = start(["sleep", "600"], { ...env, ...(mark && { [GUARD]: mark }) });
  await waitFor(() => fs.readFileSync(`/proc/${child.pid}/cmdline`, "utf8") === "sleep\x00600\0");
  return child;
}

async function startTree(mark: string): Promise<number[]> {
  const file = path.join(scratch(), "pids");
  start(["sh", path.join(FIXTURES, "exec-tree.sh"), file], { [GUARD]: mark });
  return await wholeTree(file);
}

async function wholeTree(file: string): Promise<number[]> {
  const pids = () => fs.readFileSync(file, "utf8").trim().split("\n").map(Number);
  await waitFor(() => pids().length === TREE, { what: "the whole tree" });
  undo.push(() => pids().forEach(endQuietly));
  return pids();
}

interface Owner {
  pid: number;
  guard: number;
  pids: number[];
}

async function startOwner(mark: string, shell: string, env: Record<string, string> = {}): Promise<Owner> {
  const dir = scratch();
  const file = path.join(dir, "pids");
  const options = { mark, shell, scratch: dir, args: [path.join(FIXTURES, "exec-tree.sh"), file] };
  const child = spawn(process.execPath, [path.join(FIXTURES, "exec-owner.mjs"), JSON.stringify(options)], {
    env: { PATH: process.env.PATH, ...env },
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  undo.push(() => endQuietly(child.pid!));
  const [line] = await once(child.stdout!, "data");
  return { ...JSON.parse(line), pids: await wholeTree(file) };
}

/** busybox is a shell when it is called so. */
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
  undo.push(() => endQuietly(child.pid!));
  let stdout = "";
  child.stdout.on("data", (data) => {
    stdout += data;
  });
  const [code_, signal] = await once(child, "close");
  return { code: code_, signal, stdout };
}

/** Zombies are dead: nobody can kill them further. */
function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

/** Everyone alive with the mark, found without the code under test. */
function marked(mark: string): number[] {
  const pids = fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return fs
        .readFileSync(`/proc/${pid}/environ`, "utf8")
        .split("\0")
        .some((each) => each.startsWith(`${GUARD}=${mark}`));
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
      // It has ended already.
    }
  }
}
