// A reporter for scripts/vitest.mjs: kills the process of a test file in which no test has started or ended for a long time. Vitest's own timeouts need a running event
// loop, so a blocked or stopped process would keep the whole run waiting. What the process and its children are doing is printed first.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

/** Longer than the longest timeout of a test or hook, and than apt-get may take. */
const STALL_MS = Number(process.env.STILLWAKE_TEST_STALL_MS ?? 10 * 60_000);

export default class StalledFiles {
  #progress = new Map();
  #timer;

  onTestRunStart() {
    this.#timer = setInterval(() => this.#killStalled(), Math.min(10_000, STALL_MS / 4)).unref();
  }

  onTestModuleStart(module) {
    this.#record(module, "before the first test");
  }

  onTestCaseReady(test) {
    this.#record(test.module, `in the test "${test.fullName}"`);
  }

  onTestCaseResult(test) {
    this.#record(test.module, `after the test "${test.fullName}"`);
  }

  onTestRunEnd() {
    clearInterval(this.#timer);
  }

  #record(module, stage) {
    this.#progress.set(module.moduleId, { stage, since: Date.now() });
  }

  #killStalled() {
    for (const { pid, file, since: loaded } of registeredProcesses()) {
      const { stage, since } = this.#progress.get(file) ?? { stage: "while it was loaded", since: loaded };
      if (Date.now() - since < STALL_MS) continue;
      this.#progress.delete(file);
      const tree = processTree(pid);
      const lines = tree.map(({ line }) => line).join("\n");
      console.error(`\nKilled ${path.relative(process.cwd(), file)}, which stalled ${stage}:\n${lines}\n`);
      for (const one of tree) kill(one.pid);
    }
  }
}

/** The live processes that test/support/register-process.ts has registered. A pid may have been reused; ours are children of this process. */
function registeredProcesses() {
  const dir = process.env.STILLWAKE_TEST_PROCESSES;
  const children = listProcesses().filter(({ parent }) => parent === process.pid);
  return children
    .map(({ pid }) => ({ pid, record: path.join(dir, String(pid)) }))
    .filter(({ record }) => fs.existsSync(record))
    .map(({ pid, record }) => ({ pid, file: fs.readFileSync(record, "utf8"), since: fs.statSync(record).mtimeMs }));
}

function processTree(pid) {
  const all = listProcesses();
  const tree = all.filter((one) => one.pid === pid);
  for (const { pid: parent } of tree) tree.push(...all.filter((one) => one.parent === parent));
  return tree;
}

function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has exited.
  }
}

function listProcesses() {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,ppid=,stat=,etime=,time=,wchan=,args="], { encoding: "utf8" });
  return lines
    .trimEnd()
    .split("\n")
    .map((line) => {
      const [pid, parent] = line.trim().split(/\s+/).map(Number);
      return { pid, parent, line: line.slice(0, 240) };
    });
}
