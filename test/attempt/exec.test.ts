// exec() with real commands: arguments and environment, failures, log lines, and that no process is left.
import fs from "node:fs";
import path from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { type Exec, ExecError, type ExecHost, type ExecOptions, exec } from "../../src/worker/exec/exec.ts";
import { killTree, PROCESS_TAG } from "../../src/worker/runner/process-tree.ts";
import { cleanUp, temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";

const MB = 1024 * 1024;
const LINE = "x".repeat(63);
const hasProc = fs.existsSync("/proc/self/environ");
const TREE_SCRIPT = path.join(import.meta.dirname, "../fixtures/exec-tree.sh");
/** The number of processes that exec-tree.sh starts. */
const TREE = 8;

// Cleans up everything a test starts or creates, the newest first.

describe("a command", () => {
  it("receives its arguments unchanged, and returns output, exit code and duration", async () => {
    const { host } = newHost();
    const args = ["%s|", "$(id)", "; rm -rf /", "a b", "*", ""];
    const result = await exec(host, "printf", args);
    expect(result).toMatchObject({ code: 0, stdout: "$(id)|; rm -rf /|a b|*||", stderr: "", linesOmitted: 0 });
    expect(result.bytesOut).toBe(result.stdout.length);
    expect(result.tookMs).toBeGreaterThanOrEqual(0);
  });

  it("returns its output exactly, NULs and line ends included", async () => {
    const { stdout, stderr } = await sh("printf 'a\\0b\\r\\n'; printf 'ü\\n\\n' >&2");
    expect([stdout, stderr]).toEqual(["a\0b\r\n", "ü\n\n"]);
  });

  it("receives only the listed variables, and no secret of the worker", async () => {
    const { host, scratch } = newHost();
    const env = {
      ...host.env,
      TZ: "UTC",
      DATABASE_URL: "postgres://canary",
      FLY_API_TOKEN: "canary",
      LD_PRELOAD: "canary",
    };
    const { stdout } = await exec({ ...host, env }, "env", [], {
      env: { EXTRA: "1", LANG: "C", [PROCESS_TAG]: "forged." },
    });
    const seen = Object.fromEntries(
      stdout
        .trim()
        .split("\n")
        .map((line) => line.split(/=(.*)/).slice(0, 2)),
    );
    expect(stdout).not.toContain("canary");
    expect(Object.keys(seen).sort()).toEqual(["EXTRA", "HOME", "LANG", "PATH", PROCESS_TAG, "TMPDIR", "TZ"]);
    expect(seen).toMatchObject({ HOME: scratch, TMPDIR: scratch, TZ: "UTC", LANG: "C" });
    expect(seen[PROCESS_TAG]).toMatch(new RegExp(`^${host.processTag}\\d+\\.$`));
    const again = await exec(host, "sh", ["-c", `echo $${PROCESS_TAG}`]);
    expect(again.stdout.trim()).not.toBe(seen[PROCESS_TAG]);
  });

  it("runs in the scratch directory, or in one relative to it", async () => {
    const { host, scratch } = newHost();
    fs.mkdirSync(path.join(scratch, "repo"));
    expect((await exec(host, "pwd")).stdout).toBe(`${scratch}\n`);
    expect((await exec(host, "pwd", [], { cwd: "repo" })).stdout).toBe(`${scratch}/repo\n`);
    expect((await exec(host, "pwd", [], { cwd: "/" })).stdout).toBe("/\n");
  });

  it.each<[string, unknown, unknown, unknown, RegExp]>([
    ["a command that is not a string", 7, [], {}, /command must be a string/],
    ["an empty command", "", [], {}, /command must be a string/],
    ["a NUL in the command", "ec\0ho", [], {}, /command must be/],
    ["a NUL in an argument", "echo", ["a", "b\0"], {}, /args\[1\] must be a string without NUL/],
    ["an argument that is a number", "echo", [7], {}, /args\[0\]/],
    ["arguments that are a string", "echo", "a b", {}, /args must be an array/],
    ["an unknown option", "echo", [], { tiemout: "1s" }, /"tiemout".*Known options: timeout, silence, cwd, env, on/],
    ["a timeout that is a number", "echo", [], { timeout: 5 }, /timeout 5 is not a duration/],
    ["a timeout of nothing", "echo", [], { timeout: "0s" }, /timeout must be a positive duration/],
    ["a directory that is missing", "echo", [], { cwd: "nowhere" }, /nowhere does not exist. Create it first/],
    ["a directory that is a file", "echo", [], { cwd: "/etc/passwd" }, /is not a directory/],
    ["a variable that is undefined", "echo", [], { env: { A: undefined } }, /env must be/],
    ["a variable with = in its name", "echo", [], { env: { "A=B": "" } }, /env must be/],
    ["a sentence for an unknown end", "echo", [], { on: { timout: "x" } }, /on must be/],
    ["a stdin that is a number", "echo", [], { stdin: 7 }, /stdin must be/],
    ["an unknown level", "echo", [], { level: "debug" }, /level must be/],
    ["arguments that are too long", "echo", ["x".repeat(3 * MB)], {}, /too long for the system/],
  ])("rejects %s", async (_, command, args, options, message) => {
    const { host } = newHost();
    const rejected = exec(host, command as string, args as string[], options as ExecOptions);
    await expect(rejected).rejects.toMatchObject({ code: "INVALID_INPUT", message: expect.stringMatching(message) });
    await expect(rejected).rejects.toHaveProperty("remedy", expect.any(String));
  });

  it("reads stdin from a text, bytes or a stream, or finds it empty", async () => {
    const { host } = newHost();
    const cat = async (stdin?: ExecOptions["stdin"]) =>
      (await exec(host, "cat", [], { log: "none", ...(stdin !== undefined && { stdin }) })).stdout;
    const pieces = async function* () {
      yield "ü";
      yield new Uint8Array([0x21, 0x0a]);
    };
    expect(await cat("text")).toBe("text");
    expect(await cat("")).toBe("");
    expect(await cat(new Uint8Array([0xe2, 0x82, 0xac]))).toBe("€");
    expect(await cat(pieces())).toBe("ü!\n");
    expect(await cat()).toBe("");
  });

  it("may leave its stdin unread, but fails when the source of stdin fails", async () => {
    const { host } = newHost();
    const much = "x".repeat(8 * MB);
    expect((await exec(host, "head", ["-c", "3"], { stdin: much })).stdout).toBe("xxx");
    expect((await exec(host, "true", [], { stdin: much })).code).toBe(0);
    const broken = Object.assign(new Error("download reset"), { code: "ECONNRESET" });
    const source = async function* () {
      yield "half";
      throw broken;
    };
    await expect(exec(host, "cat", [], { stdin: source() })).rejects.toBe(broken);
    const endless = async function* () {
      yield "one\n";
      await new Promise(() => {});
    };
    expect((await exec(host, "head", ["-n", "1"], { stdin: endless() })).stdout).toBe("one\n");
  });
});

describe("a failure", () => {
  const long = "é".repeat(400);
  it.each<[script: string, expected: object, message: string | RegExp, options?: ExecOptions]>([
    ["exit 3", { kind: "exit", code: "EXEC_FAILED", exitCode: 3, signal: null }, "sh failed with exit code 3"],
    [
      "echo; echo '  fatal: no such ref ' >&2; echo more >&2; exit 128",
      { exitCode: 128 },
      /^sh failed with exit code 128: fatal: no such ref$/,
    ],
    [`echo '\x1b[31mred\x1b[0m' >&2; exit 1`, {}, "sh failed with exit code 1: red"],
    [`echo ${long} >&2; exit 1`, {}, `sh failed with exit code 1: ${"é".repeat(299)}…`],
    ["printf 'a\\0b' >&2; exit 1", {}, "sh failed with exit code 1: a␀b"],
    [
      "exit 137",
      { kind: "oom", code: "EXEC_OOM", exitCode: 137 },
      /^sh was killed \(exit code 137\), most likely because memory ran out\. Use/,
    ],
    ["kill -9 $$", { kind: "oom", code: "EXEC_OOM", exitCode: null, signal: "SIGKILL" }, /^sh was killed \(SIGKILL\)/],
    ["kill -SEGV $$", { kind: "signal", code: "EXEC_SIGNAL", signal: "SIGSEGV" }, "sh was terminated by SIGSEGV"],
    ["kill -TERM $$", { kind: "signal", code: "EXEC_SIGNAL", signal: "SIGTERM" }, "sh was terminated by SIGTERM"],
    [
      "sleep 600",
      { kind: "timeout", code: "EXEC_TIMEOUT" },
      /^sh did not finish within 50ms and was stopped\. /,
      { timeout: "50ms" },
    ],
    [
      "echo a; sleep 600",
      { kind: "silence", code: "EXEC_SILENT" },
      /^sh wrote nothing for 50ms and was stopped\. /,
      { silence: "50ms" },
    ],
  ])("of `%s` has a code and a sentence", async (script, expected, message, options) => {
    const error = await failureOf(sh(script, options));
    expect(error).toBeInstanceOf(ExecError);
    expect(error).toMatchObject({ name: "ExecError", retryable: true, ...expected });
    if (typeof message === "string") expect(error.message).toBe(message);
    else expect(error.message).toMatch(message);
  });

  it("of a command that is missing or not executable is not retryable", async () => {
    const { host, scratch } = newHost();
    const missing = await failureOf(exec(host, "semgrep-not-installed"));
    expect(missing).toMatchObject({ kind: "missing", code: "EXEC_NOT_FOUND", retryable: false });
    expect(missing.message).toMatch(/^semgrep-not-installed is not installed: not found on PATH\. Install it/);
    fs.writeFileSync(path.join(scratch, "plain"), "#!/bin/sh\n", { mode: 0o644 });
    const plain = await failureOf(exec(host, path.join(scratch, "plain")));
    expect(plain).toMatchObject({ kind: "missing", code: "EXEC_NOT_FOUND", retryable: false });
    expect(plain.message).toMatch(/is not executable by this user/);
  });

  it.each<[string, ExecOptions["on"], string, object]>([
    ["exit 137", { 137: "Out of memory" }, "Out of memory", { code: "EXEC_OOM", retryable: true }],
    ["kill -9 $$", { 137: "Out of memory" }, "Out of memory", { code: "EXEC_OOM" }],
    ["kill -9 $$", { oom: "Out of memory" }, "Out of memory", {}],
    ["kill -9 $$", { SIGKILL: "Killed", 137: "x", oom: "x" }, "Killed", {}],
    ["kill -SEGV $$", { SIGSEGV: "Crashed" }, "Crashed", { code: "EXEC_SIGNAL" }],
    [
      "exit 4",
      { exit: "x", 4: { message: "Gone", code: "REPO_GONE", fatal: true } },
      "Gone",
      { code: "REPO_GONE", retryable: false },
    ],
    ["exit 4", { exit: "Any" }, "Any", { exitCode: 4 }],
    ["echo 404 >&2; exit 4", { 4: ({ stderr }) => `Not found: ${stderr.trim()}` }, "Not found: 404", {}],
    [
      "exit 4",
      ({ kind, exitCode }) => ({ message: `${kind} ${exitCode}`, fatal: true }),
      "exit 4",
      { retryable: false },
    ],
    ["exit 4", () => undefined, "sh failed with exit code 4", {}],
    ["exit 4", { 5: "x", timeout: "x" }, "sh failed with exit code 4", {}],
  ])("of `%s` has the sentence of %o", async (script, on, message, expected) => {
    const error = await failureOf(sh(script, on && { on }));
    expect(error.message).toBe(message);
    expect(error).toMatchObject(expected);
  });

  it("has custom sentences for timeouts and missing commands too", async () => {
    const { host } = newHost();
    const missing = exec(host, "semgrep-not-installed", [], { on: { missing: "Skipped (not installed)" } });
    expect(await failureOf(missing)).toMatchObject({ message: "Skipped (not installed)", retryable: false });
    // Killed by the timeout, so neither 137 nor SIGKILL matches.
    const on = { timeout: "Too slow", 137: "x", SIGKILL: "x", SIGTERM: "x" };
    expect((await failureOf(sh("trap '' TERM; sleep 600", { timeout: "50ms", on }))).message).toBe("Too slow");
  });

  it("contains the output without printing it with the error", async () => {
    const error = await failureOf(sh("echo secret-out; echo secret-err >&2; exit 1", { on: { 1: "No" } }));
    expect([error.stdout, error.stderr]).toEqual(["secret-out\n", "secret-err\n"]);
    expect(inspect(error) + JSON.stringify(error)).not.toContain("secret");
  });

  it("does not occur for exit codes in okCodes", async () => {
    expect((await sh("exit 3", { okCodes: [0, 3] })).code).toBe(3);
    await expect(sh("exit 0", { okCodes: [3] })).rejects.toMatchObject({ exitCode: 0 });
  });
});

describe("silence", () => {
  it("is reset by any output, also by a part of a line", async () => {
    const { stdout } = await sh("for i in 1 2 3 4 5 6; do sleep 0.2; printf .; done", { silence: "900ms" });
    expect(stdout).toBe("......");
  });

  it("does not count while this process is busy", async () => {
    const { host } = newHost();
    let blocked = false;
    const log = () => {
      const until = performance.now() + (blocked ? 0 : 700);
      blocked = true;
      while (performance.now() < until);
    };
    const script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.1; done";
    const { stdout } = await exec({ ...host, log }, "sh", ["-c", script], { silence: "500ms" });
    expect(stdout).toMatch(/10\n$/);
  });

  it("does not count while the command waits for a slow loop", async () => {
    const { host } = newHost();
    const running = exec(host, "sh", ["-c", `yes ${LINE} | head -n 50000`], { silence: "200ms", log: "none" });
    let lines = 0;
    for await (const _ of running) {
      const began = performance.now();
      if (++lines === 1) await waitFor(() => performance.now() - began > 600);
    }
    expect(lines).toBe(50_000);
  });
});

describe("stopping", () => {
  it.skipIf(!hasProc)(
    "by an abort leaves no process, not even those that ignore SIGTERM, daemonize or clear their environment (needs /proc)",
    async () => {
      const { host, scratch, stop } = newHost({ graceMs: 50 });
      const file = path.join(scratch, "pids");
      const running = exec(host, "sh", [TREE_SCRIPT, file]);
      const pids = () => fs.readFileSync(file, "utf8").trim().split("\n").map(Number);
      await waitFor(() => pids().length === TREE, { what: "the whole tree" });
      // Cleanup if the test fails: some of them have no tag.
      const whole = pids();
      cleanUp(() => whole.filter(isAlive).forEach((pid) => void process.kill(pid, "SIGKILL")));
      expect(pids().filter(isAlive)).toHaveLength(TREE);
      const reason = new Error("the lease was lost");
      stop.abort(reason);
      await expect(running).rejects.toBe(reason);
      recordFigure("survivors", pids().filter(isAlive).length, "processes", "after an abort of exec");
      expect(pids().filter(isAlive)).toEqual([]);
    },
  );

  it("by an abort sends SIGTERM first: the command can clean up, and its last output is kept", async () => {
    const { host, lines, stop } = newHost({ graceMs: 20_000 });
    const script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    const running = exec(host, "sh", ["-c", script]);
    await waitFor(() => lines.includes("ready"));
    stop.abort("drain");
    await expect(running).rejects.toBe("drain");
    // The shell reports the terminated sleep on the other pipe, before or after.
    expect(lines.filter((line) => line !== "Terminated").at(-1)).toBe("bye");
  });

  it("by an abort before the start does not start the command", async () => {
    const { host, scratch, stop } = newHost();
    const late = exec(host, "touch", ["made"]);
    stop.abort("late");
    await expect(late).rejects.toBe("late");
    await expect(exec(host, "touch", ["made"])).rejects.toBe("late");
    expect(fs.existsSync(path.join(scratch, "made"))).toBe(false);
  });

  it.each(["exit 0", "exit 1"])("by `%s` kills the rest of its process group", async (ending) => {
    const { host, scratch } = newHost();
    const script = `sh -c 'trap "" TERM; exec sleep 600' & echo $! >pid; ${ending}`;
    await exec(host, "sh", ["-c", script], { okCodes: [0, 1] });
    const pid = Number(fs.readFileSync(path.join(scratch, "pid"), "utf8"));
    await waitFor(() => !isAlive(pid));
  });

  it.skipIf(!hasProc)(
    "does not wait for a daemon that holds the pipes; the end of the attempt kills it (needs /proc)",
    async () => {
      // The second writes as fast as it can, so that neither silence nor the end of the stream occurs.
      for (const daemon of ["sleep 600", "yes"]) {
        const { host, scratch } = newHost();
        const script = `setsid sh -c 'echo $$ >pid; exec ${daemon}' & until [ -s pid ]; do sleep 0.01; done`;
        const { tookMs } = await exec(host, "sh", ["-c", script], { log: "none" });
        const pid = Number(fs.readFileSync(path.join(scratch, "pid"), "utf8"));
        recordFigure("exec: end of a command whose daemon holds the pipes", tookMs, "ms", daemon);
        // The process that writes into the closed pipe has exited by itself.
        if (daemon !== "yes") expect(isAlive(pid)).toBe(true);
        await killTree(host.processTag);
        expect(isAlive(pid)).toBe(false);
      }
    },
  );
});

describe("the log", () => {
  it("has the lines of both streams, of one, or of none, in the requested level; empty lines are omitted", async () => {
    const script = "echo out; echo; printf 'one\\rtwo\\r\\n'; echo err >&2";
    const logged = async (options: ExecOptions) => {
      const { host, log } = newHost();
      await exec(host, "sh", ["-c", script], options);
      return log.map(({ level, message }) => `${level} ${message}`).sort();
    };
    expect(await logged({})).toEqual(["info err", "info one", "info out", "info two"]);
    expect(await logged({ log: "stderr", level: "warning" })).toEqual(["warning err"]);
    expect(await logged({ log: "none" })).toEqual([]);
  });

  it("does not contain lines that are progress", async () => {
    const { host, lines, progress } = newHost();
    const read = (line: string) => {
      const percent = /^(\d+)%$/.exec(line)?.[1];
      return percent === undefined ? undefined : { fraction: Number(percent) / 100, sentence: `${percent} percent` };
    };
    await exec(host, "sh", ["-c", "echo start; printf '10%%\\r50%%\\r'; echo end"], { progress: read });
    expect(lines).toEqual(["start", "end"]);
    expect(progress).toEqual([
      { fraction: 0.1, sentence: "10 percent" },
      { fraction: 0.5, sentence: "50 percent" },
    ]);
  });

  it("fails the command when the progress function throws", async () => {
    const broken = new Error("no such column");
    const progress = () => {
      throw broken;
    };
    await expect(sh("echo $$; sleep 600", { progress })).rejects.toBe(broken);
  });

  it("reports activity with each chunk of output", async () => {
    const { host, counts } = newHost();
    await exec(host, "true");
    expect(counts.alive).toBe(0);
    await exec(host, "sh", ["-c", "printf a"], { log: "none" });
    expect(counts.alive).toBe(1);
    await exec(host, "sh", ["-c", "printf a >&2"], { log: "none" });
    expect(counts.alive).toBe(2);
  });

  it("is rate-limited, and counts the lines omitted at most once per second", async () => {
    const { host, lines } = newHost();
    const total = 300_000;
    const result = await exec(host, "sh", ["-c", `yes | head -n ${total}; echo why >&2`]);
    const seconds = result.tookMs / 1000;
    const notices = lines.filter((line) => /^… [\d,]+ lines? omitted$/.test(line));
    const omitted = notices.reduce((sum, line) => sum + Number(line.replaceAll(/\D/g, "")), 0);
    const shown = lines.filter((line) => line === "y").length;
    expect(shown).toBeGreaterThanOrEqual(1000);
    expect(shown).toBeLessThanOrEqual(1000 + 200 * (seconds + 1));
    expect(shown + omitted).toBe(total);
    expect(result.linesOmitted).toBe(omitted);
    expect(notices.length).toBeLessThanOrEqual(seconds + 1);
    // The flood on stdout does not hide the line on stderr.
    expect(lines).toContain("why");
  });

  it("1 GB on stdout uses little memory and does not block", { timeout: 120_000 }, async () => {
    const { host, log } = newHost();
    await sh("yes | head -c 30000000", {}, host);
    log.length = 0;
    const rss = watchRss();
    const delays = monitorEventLoopDelay({ resolution: 5 });
    delays.enable();
    const result = await exec(host, "sh", ["-c", "yes | head -c 1073741824"]);
    delays.disable();
    const growth = rss.growth();
    const speed = 1024 / (result.tookMs / 1000);
    const stored = log.reduce((sum, { message }) => sum + Buffer.byteLength(message), 0);
    recordFigure("1 GB of stdout", speed, "MB/s");
    recordFigure("lines stored of 1 GB", log.length, "lines", `${stored} bytes`);
    recordFigure("growth of memory at 1 GB", growth, "MB");
    recordFigure("delay of the event loop at 1 GB, p99", delays.percentile(99) / 1e6, "ms");
    expect(result.bytesOut).toBe(1024 * MB);
    expect(log.length).toBeLessThan(1000 + 200 * (result.tookMs / 1000 + 1) + result.tookMs / 1000 + 1);
    expect(result.stdout.length).toBeLessThan(MB + 100);
    expect(/…[^\n]*/.exec(result.stdout)?.[0]).toMatch(/^… \(536,346,62\d lines, 1,072,693,2\d\d bytes omitted\)$/);
    expect(result.stdout.replace(/….*\n/, "").replaceAll("y\n", "")).toBe("");
    expect(growth).toBeLessThan(150);
  });

  it("one line of 500 MB is stored within 16 KB, with the count of the rest", { timeout: 120_000 }, async () => {
    const { host, lines } = newHost();
    const rss = watchRss();
    const result = await exec(host, "sh", ["-c", "head -c 500000000 /dev/zero | tr '\\0' x; echo; echo next"]);
    recordFigure("growth of memory at a line of 500 MB", rss.growth(), "MB");
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/^x+… \(499983680 bytes omitted\)$/);
    expect(lines[0]!.length).toBeLessThanOrEqual(16 * 1024);
    expect(lines[1]).toBe("next");
    expect(result.stdout.endsWith("x\nnext\n")).toBe(true);
    expect(rss.growth()).toBeLessThan(150);
  });

  it("invalid UTF-8 arrives as text that Postgres can store", async () => {
    const { host, lines } = newHost();
    await exec(host, "sh", ["-c", "printf 'a\\0b\\377c\\n'; head -c 100000 /dev/zero; head -c 3000000 /dev/urandom"]);
    expect(lines[0]).toBe("a␀b\ufffdc");
    expect(lines[1]).toMatch(/^␀+… \(\d+ bytes omitted\)$/);
    for (const line of lines) {
      if (line.includes("\0") || Buffer.byteLength(line) > 16 * 1024) expect.unreachable(inspect(line));
    }
  });
});

describe("the loop over the lines", () => {
  it("receives every line of both streams, and the promise still has the result", async () => {
    const running = sh("echo a; echo b; printf c");
    expect(await collect(running)).toEqual(["a", "b", "c"]);
    expect((await running).stdout).toBe("a\nb\nc");
    expect(await collect(sh("echo e >&2"))).toEqual(["e"]);
  });

  it("throws the error of the promise after the last line, and leaves no unhandled rejection", async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on("unhandledRejection", note);
    cleanUp(() => process.off("unhandledRejection", note));
    const seen: string[] = [];
    const loop = async () => {
      for await (const line of sh("echo a; echo b; exit 9")) seen.push(line);
    };
    await expect(loop()).rejects.toMatchObject({ code: "EXEC_FAILED", exitCode: 9 });
    expect(seen).toEqual(["a", "b"]);
    await new Promise((resolve) => setImmediate(resolve));
    expect(unhandled).toEqual([]);
  });

  it("stops the command when it is left by break or by a throw, and waits until it is gone", async () => {
    const { host } = newHost({ graceMs: 50 });
    const script = "trap '' TERM; echo $$; while :; do echo more; sleep 0.01; done";
    const pids: number[] = [];
    const running = exec(host, "sh", ["-c", script]);
    for await (const line of running) {
      pids.push(Number(line));
      break;
    }
    expect(pids.filter(isAlive)).toEqual([]);
    await expect(running).rejects.toMatchObject({ kind: "aborted", code: "EXEC_ABORTED" });
    const loop = async () => {
      for await (const line of exec(host, "sh", ["-c", script])) {
        pids.push(Number(line));
        throw new Error("enough");
      }
    };
    await expect(loop()).rejects.toThrow("enough");
    expect(pids).toHaveLength(2);
    expect(pids.filter(isAlive)).toEqual([]);
  });

  it("pauses the command when it is slow, and loses nothing", async () => {
    const { host, scratch } = newHost();
    const rounds = 100;
    const script = `i=0; while [ $i -lt ${rounds} ]; do i=$((i + 1)); yes ${LINE} | head -n 1000; echo $i >count; done`;
    const written = () => Number(fs.readFileSync(path.join(scratch, "count"), "utf8"));
    let lines = 0;
    for await (const _ of exec(host, "sh", ["-c", script], { log: "none" })) {
      if (++lines > 1) continue;
      let looks = { at: -1, same: 0 };
      await waitFor(() => {
        const at = written();
        looks = { at, same: at === looks.at ? looks.same + 1 : 0 };
        return looks.same >= 30;
      });
      expect(written()).toBeLessThan(rounds / 2);
    }
    expect(lines).toBe(rounds * 1000);
  });

  it("that is blocked does not keep an aborted command from exiting", async () => {
    const { host, stop } = newHost({ graceMs: 60_000 });
    // It can write its last output and exit only while its pipe is read.
    const script = "trap 'head -c 3000000 /dev/zero; exit 0' TERM; echo ready; yes & wait";
    const running = exec(host, "sh", ["-c", script], { log: "none" });
    const loop = running[Symbol.asyncIterator]();
    expect(await loop.next()).toEqual({ done: false, value: "ready" });
    stop.abort("cancelled");
    await expect(running).rejects.toBe("cancelled");
  });

  it("is the only one", async () => {
    const running = sh("echo a");
    const lines = collect(running);
    expect(() => running[Symbol.asyncIterator]()).toThrow(/already being read/);
    expect(await lines).toEqual(["a"]);
  });
});

let marks = 0;

interface TestHost {
  host: ExecHost;
  scratch: string;
  stop: AbortController;
  log: { level: string; message: string }[];
  /** The messages of the log. */
  lines: string[];
  progress: object[];
  counts: { alive: number };
}

function newHost({ graceMs = 1000 }: { graceMs?: number } = {}): TestHost {
  const scratch = temporaryDirectory("exec");
  const mark = `exec-test-${process.pid}-${Date.now()}-${++marks}.`;
  cleanUp(() => killTree(mark));
  const test: Omit<TestHost, "host"> = {
    scratch,
    stop: new AbortController(),
    log: [],
    lines: [],
    progress: [],
    counts: { alive: 0 },
  };
  const host: ExecHost = {
    log(line) {
      test.log.push(line);
      test.lines.push(line.message);
    },
    progress: (value) => test.progress.push(value),
    alive: () => test.counts.alive++,
    signal: test.stop.signal,
    scratch: async () => scratch,
    processTag: mark,
    env: { PATH: process.env.PATH },
    graceMs,
  };
  return { host, ...test };
}

function sh(script: string, options: ExecOptions = {}, host: ExecHost = newHost({ graceMs: 50 }).host): Exec {
  return exec(host, "sh", ["-c", script], options);
}

async function failureOf(running: Exec): Promise<ExecError> {
  return await running.then(
    () => expect.unreachable("it was to fail"),
    (error) => error,
  );
}

async function collect(running: Exec): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of running) lines.push(line);
  return lines;
}

/** The highest resident memory since the call, above that at the call, in MB. */
function watchRss(): { growth(): number } {
  const before = process.memoryUsage.rss();
  let most = before;
  const look = () => {
    most = Math.max(most, process.memoryUsage.rss());
  };
  const timer = setInterval(look, 5);
  cleanUp(() => clearInterval(timer));
  return {
    growth() {
      look();
      return (most - before) / MB;
    },
  };
}

/** Zombies count as dead. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !hasProc || !/\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
