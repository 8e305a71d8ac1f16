// job.exec() in a pipeline: its lines in the job's log, its failures as failures of the job, what it can read, and
// cleanup. exec.test.ts covers the command itself.
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { ExecError, implement, type JobContext } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { turnstile } from "../support/processes/script-steps.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { startWorker } from "../support/processes/workers.ts";

const { database, run, start, stillwake, until, name, query, events, logs: readLogs } = await inProcessFixture();
const root = temporaryDirectory("job-exec");
const worker = { scratch: path.join(root, "scratch") };
const once = { retry: { attempts: 1 } };
const sh = (script: string) => ["sh", ["-c", script]] as const;

beforeAll(buildPackage);

const directories = (scratch = worker.scratch) => {
  const jobs = path.join(scratch, "jobs");
  return fs.existsSync(jobs) ? fs.readdirSync(jobs) : [];
};
const isAlive = (pid: number) =>
  fs.existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, "utf8"));

describe("the lines of a command", () => {
  it("are in the job's log, in order, with their step and level", async () => {
    const { logs } = await run({ worker }, async (job) => {
      await job.exec(...sh("echo outside"));
      await job.step("cloning", { start: "Cloning...", end: "Cloned" }, async (step) => {
        await step.exec(...sh("echo one; echo two; echo three"));
        await step.exec(...sh("echo careful"), { level: "warning" });
      });
    });
    expect(logs.map(({ level, step, message }) => [level, step, message])).toEqual([
      ["info", null, "outside"],
      ["info", "cloning", "Cloning..."],
      ["info", "cloning", "one"],
      ["info", "cloning", "two"],
      ["info", "cloning", "three"],
      ["warning", "cloning", "careful"],
      ["success", "cloning", "Cloned"],
    ]);
  });

  it("of two concurrent steps have their own step names", async () => {
    const both = await run({ worker }, (job) =>
      Promise.all(
        ["a", "b"].map((own) =>
          job.step(own, async (step) => void (await step.exec(...sh(`for i in 1 2 3; do echo ${own}; done`)))),
        ),
      ),
    );
    expect(both.logs).toHaveLength(6);
    expect(both.logs.every(({ step, message }) => step === message)).toBe(true);
  });

  it("can be read in a loop, and can be progress instead", async () => {
    const seen: string[] = [];
    const { job, logs } = await run({ worker }, (context) =>
      context.step("clip", async (step) => {
        const progress = (line: string) => {
          const done = /^out_time=(\d+)$/.exec(line)?.[1];
          return done === undefined ? undefined : { done: Number(done), total: 10 };
        };
        for await (const line of step.exec(...sh("echo starting; echo out_time=5; echo out_time=10"), { progress }))
          seen.push(line);
      }),
    );
    expect(seen).toEqual(["starting", "out_time=5", "out_time=10"]);
    expect(job.progress).toMatchObject({ done: 10, total: 10 });
    expect(logs.map(({ message }) => message)).toEqual(["starting"]);
  });

  it("reset the silence limit of a step", async () => {
    const { job } = await run({ worker, pipeline: once }, (context) =>
      context.step(
        "long",
        { silence: "300ms" },
        async (step) => void (await step.exec(...sh("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done"))),
      ),
    );
    expect(job.failure).toBeNull();
  });

  it("also come from a destructured handle", async () => {
    const { job, logs } = await run({ worker, pipeline: once }, (context) =>
      context.step("one", async ({ exec, log, progress, scratch }) => {
        progress(1);
        log.info(path.basename(await scratch()));
        return (await exec("echo", ["hello"])).stdout;
      }),
    );
    expect(job).toMatchObject({ failure: null, output: "hello\n", progress: { fraction: 1 } });
    expect(logs.map(({ step, message }) => [step, message])).toEqual([
      ["one", `${job.id}-1`],
      ["one", "hello"],
    ]);
  });
});

interface Failing {
  what: string;
  call: (job: JobContext) => Promise<unknown>;
  code: string;
  message: RegExp;
  fatal?: boolean;
}

const failing: Failing[] = [
  {
    what: "an exit code",
    call: (job) => job.exec(...sh("echo 'fatal: not found' >&2; echo more >&2; exit 128")),
    code: "EXEC_FAILED",
    message: /^sh failed with exit code 128: fatal: not found$/,
  },
  {
    what: "a signal",
    call: (job) => job.exec(...sh("kill -SEGV $$")),
    code: "EXEC_SIGNAL",
    message: /^sh was terminated by SIGSEGV$/,
  },
  {
    what: "a kill for want of memory",
    call: (job) => job.exec(...sh("kill -9 $$")),
    code: "EXEC_OOM",
    message: /memory ran out/,
  },
  {
    what: "exit code 137",
    call: (job) => job.exec(...sh("exit 137")),
    code: "EXEC_OOM",
    message: /exit code 137.*memory ran out/,
  },
  {
    what: "a timeout",
    call: (job) => job.exec("sleep", ["60"], { timeout: "50ms" }),
    code: "EXEC_TIMEOUT",
    message: /^sleep did not finish within 50ms/,
  },
  {
    what: "silence",
    call: (job) => job.exec("sleep", ["60"], { silence: "50ms" }),
    code: "EXEC_SILENT",
    message: /^sleep wrote nothing for 50ms/,
  },
  {
    what: "a program that is not installed",
    call: (job) => job.exec("dep-scan-not-installed"),
    code: "EXEC_NOT_FOUND",
    message: /is not installed: not found on PATH/,
    fatal: true,
  },
  {
    what: "a sentence for an exit code",
    call: (job) => job.exec(...sh("exit 137"), { on: { 137: "Static analysis ran out of memory - scanning skipped" } }),
    code: "EXEC_OOM",
    message: /^Static analysis ran out of memory - scanning skipped$/,
  },
  {
    what: "a sentence, a code and a verdict",
    call: (job) =>
      job.exec(...sh("exit 3"), { on: { 3: { message: "Repository not found", code: "REPO_GONE", fatal: true } } }),
    code: "REPO_GONE",
    message: /^Repository not found$/,
    fatal: true,
  },
];

describe("a command that fails", () => {
  it.each(failing)(
    "$what: it is the failure of the job, with its code, its step and a sentence",
    async ({ call, code, message, fatal = false }) => {
      const { job, logs } = await run({ worker, pipeline: once }, (context) =>
        context.step("scan", () => call(context)),
      );
      const failure = (fatal ? job.failure : job.failure!.cause) as NonNullable<typeof job.failure>;
      expect(failure).toMatchObject({ code, step: "scan", message: expect.stringMatching(message) });
      if (!fatal) expect(job.failure!.code).toBe("RETRIES_EXHAUSTED");
      expect(logs.at(-1)).toMatchObject({ level: "error", step: "scan", message: expect.stringMatching(message) });
    },
  );

  it("is classified by the failures of the pipeline, by code and by exit code", async () => {
    const fail = (script: string, failures: Record<string, "fatal" | "retry" | "pause">) =>
      run(
        {
          worker,
          pipeline: { retry: { attempts: 3, initial: "1h", max: "1h" }, failures },
          until: ({ state, epoch }) => epoch === "1" && state !== "running",
        },
        (context) => context.exec(...sh(script)),
      );
    expect((await fail("exit 2", { EXIT_2: "fatal" })).job).toMatchObject({ state: "failed", attempt: 1 });
    expect((await fail("exit 3", { EXIT_2: "fatal" })).job).toMatchObject({ state: "queued", waitingFor: "retry" });
    expect((await fail("exit 3", { EXEC_FAILED: "fatal" })).job).toMatchObject({ state: "failed", attempt: 1 });
    expect((await fail("exit 137", { EXIT_137: "pause" })).job).toMatchObject({ state: "paused", attempt: 0 });
  });

  it("in an optional step is a warning, and the job completes without it", async () => {
    const { job, logs } = await run({ worker }, (context) =>
      context.optional("semgrep", (step) =>
        step.exec(...sh("exit 137"), { on: { 137: "Static analysis ran out of memory - scanning skipped" } }),
      ),
    );
    expect(job).toMatchObject({ state: "completed", missing: ["semgrep"] });
    expect(logs).toMatchObject([
      {
        level: "warning",
        step: "semgrep",
        message: "Static analysis ran out of memory - scanning skipped",
        data: { code: "EXEC_OOM" },
      },
    ]);
  });

  it("can be caught and inspected", async () => {
    const { job } = await run({ worker, pipeline: once }, async (context) => {
      const error = await context.exec(...sh("echo out; echo err >&2; exit 9")).catch((thrown) => thrown);
      expect(error).toBeInstanceOf(ExecError);
      return { kind: error.kind, exitCode: error.exitCode, stdout: error.stdout, stderr: error.stderr };
    });
    expect(job.output).toEqual({ kind: "exit", exitCode: 9, stdout: "out\n", stderr: "err\n" });
  });

  it("shows no path of the worker in its failure except the scratch directory", async () => {
    const { job } = await run({ worker, pipeline: once }, (context) => context.exec("cat", ["missing.txt"]));
    expect(JSON.stringify(job.failure!.message)).not.toContain(root);
  });
});

describe("a command of a job that is stopped", () => {
  it("is killed with everything it started when the job is cancelled", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, null);
    const code = implement(contract, (job) =>
      job.step("long", (step) => step.exec(...sh("trap '' TERM; setsid sleep 1000 & echo $!; echo $$; sleep 1000"))),
    );
    await start([code], { ...worker, lease: "1s" });
    const pids = await waitFor(async () => {
      const lines = await readLogs(id);
      return lines.length === 2 && lines.map(({ message }) => Number(message));
    });
    expect(pids.every(isAlive)).toBe(true);
    await stillwake.cancel(id);
    expect(await until(id)).toMatchObject({ state: "cancelled" });
    expect(pids.filter(isAlive)).toEqual([]);
  });

  it("is killed by the timeout of its step, which is the failure", async () => {
    const { job, logs } = await run({ worker, pipeline: once }, (context) =>
      context.step(
        "slow",
        { timeout: "200ms" },
        async (step) => void (await step.exec(...sh("echo $$; exec sleep 1000"))),
      ),
    );
    expect(job.failure).toMatchObject({ cause: { code: "STEP_TIMEOUT", step: "slow" } });
    expect(isAlive(Number(logs[0]!.message))).toBe(false);
  });

  it("that was not awaited is killed with its job", async () => {
    const pids: number[] = [];
    const { job } = await run({ worker, pipeline: once }, async (context) => {
      const left = context.exec(...sh("echo $$; exec sleep 1000"));
      left.catch(() => {});
      for await (const line of left) {
        pids.push(Number(line));
        return "did not wait";
      }
    });
    expect(job.state).toBe("completed");
    await waitFor(() => !isAlive(pids[0]!));
  });
});

describe("the scratch directory", () => {
  it("is the cwd of commands, separate per attempt, private, and removed at the end of the attempt, however it ends", async () => {
    const seen: { dir: string; mode: number; cwd: string }[] = [];
    const { job } = await run({ worker, pipeline: { retry: { attempts: 2, initial: "1ms" } } }, async (context) => {
      const dir = await context.scratch();
      fs.mkdirSync(path.join(dir, "deep/er"), { recursive: true });
      fs.writeFileSync(path.join(dir, "deep/er/file"), "x");
      fs.chmodSync(path.join(dir, "deep"), 0o000);
      seen.push({
        dir,
        mode: fs.statSync(dir).mode & 0o777,
        cwd: (await context.exec("pwd", [], { log: "none" })).stdout.trim(),
      });
      if (context.attempt === 1) throw new Error("again");
    });
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(seen[0]!.dir).not.toBe(seen[1]!.dir);
    for (const { dir, mode, cwd } of seen) {
      expect({ mode, cwd }).toEqual({ mode: 0o700, cwd: dir });
      await waitFor(() => !fs.existsSync(dir), { what: `${dir} to be gone` });
    }
    expect(directories()).toEqual([]);
  });

  it("is not created for a job that does not use it", async () => {
    const before = fs.existsSync(worker.scratch)
      ? fs.statSync(path.join(worker.scratch, "jobs"), { throwIfNoEntry: false })?.mtimeMs
      : undefined;
    await run({ worker }, (context) => context.step("one", () => 1));
    const after = fs.statSync(path.join(worker.scratch, "jobs"), { throwIfNoEntry: false })?.mtimeMs;
    expect(after).toBe(before);
  });

  it("is removed after its runner is killed, and by the next worker after its worker is killed", async () => {
    const observer = await startStepObserver();
    const steps = [
      { name: "make", act: "exec", command: "sh", args: ["-c", "echo x > file; pwd"] },
      turnstile("wait", "scratch"),
    ];
    const first = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    const one = await observer.waitForReport(({ job, step, epoch }) => job === id && step === "wait" && epoch === "1");
    expect(directories(first.scratch)).toEqual([`${id}-1`]);
    process.kill(one.pid, "SIGKILL");
    await observer.waitForReport(({ job, step, epoch }) => job === id && step === "wait" && epoch === "2");
    await waitFor(() => !directories(first.scratch).includes(`${id}-1`));

    const steps2 = [{ ...steps[0]! }, { name: "wait", act: "turnstile", gate: "scratch2" }];
    observer.openGate("scratch-2");
    await until(id);
    const second = await stillwake.enqueue("script", { observer: observer.url, steps: steps2 });
    await observer.waitForReport(({ job, step }) => job === second.id && step === "wait");
    first.signal("SIGKILL");
    expect(await first.exited).toBe("SIGKILL");
    expect(directories(first.scratch)).toEqual([`${second.id}-1`]);
    const next = await startWorker({ url: database.url, args: ["--slots", "1", "--scratch", first.scratch] });
    expect(directories(first.scratch)).not.toContain(`${second.id}-1`);
    observer.openGate("scratch2-2");
    expect(await until(second.id)).toMatchObject({ state: "completed", crashes: 1 });
    recordFigure(
      "scratch directories left after a kill and the next start",
      directories(next.scratch).filter((one) => one === `${second.id}-1`).length,
    );
  });
});

describe("the environment of user code", () => {
  it("contains no credentials of the database, the store or the provider, in the runner and in commands", async () => {
    const canaries = {
      STILLWAKE_DATABASE_URL: database.url,
      STILLWAKE_DIRECT_URL: database.url,
      STILLWAKE_STORE_ACCESS_KEY_ID: "canary-store-key-id",
      STILLWAKE_STORE_SECRET_ACCESS_KEY: "canary-store-secret",
      STILLWAKE_STORE_SESSION_TOKEN: "canary-store-session",
      AWS_ACCESS_KEY_ID: "canary-aws-key-id",
      AWS_SECRET_ACCESS_KEY: "canary-aws-secret",
      AWS_SESSION_TOKEN: "canary-aws-session",
      FLY_API_TOKEN: "canary-fly-token",
      FLY_ACCESS_TOKEN: "canary-fly-access",
      GOOGLE_APPLICATION_CREDENTIALS: "/canary/google.json",
      KUBECONFIG: "/canary/kubeconfig",
      PGPASSWORD: "canary-pgpassword",
      PGPASSFILE: "/canary/pgpass",
      // The same database in a variable of the user.
      APP_DB: database.url,
      NESTED: JSON.stringify({ url: database.url }),
    };
    const one = await startWorker({
      url: database.url,
      pipelines: new URL("../fixtures/pipelines/environment.mjs", import.meta.url).pathname,
      args: ["--slots", "1", "--withhold", "DATABASE_URL,PG*"],
      env: { ...canaries, SHOWN_TO_JOBS: "a setting of the user's own", LANG: "C.UTF-8" },
    });
    const { id } = await stillwake.enqueue("environment", null);
    const job = await until(id);
    expect(job).toMatchObject({ state: "completed", output: { shown: "a setting of the user's own", home: true } });
    const { runner, own, command, commandLine } = job.output as Record<string, string>;
    const password = decodeURIComponent(new URL(database.url).password);
    const values = [...new Set(Object.values(canaries)), password].filter((value) => value !== "");
    let seen = 0;
    for (const [place, text] of Object.entries({ runner, own, command, commandLine })) {
      for (const value of values) {
        if (text!.includes(value)) seen += 1;
        expect({ place, seen: text!.includes(value) ? value : null }).toEqual({ place, seen: null });
      }
    }
    // A command does not inherit variables of the user either.
    expect(command).not.toContain("SHOWN_TO_JOBS");
    expect(
      command!
        .split("\n")
        .map((line) => line.split("=")[0])
        .filter(Boolean)
        .sort(),
    ).toEqual(expect.arrayContaining(["HOME", "LANG", "PATH", "STILLWAKE_PROCESS_TAG", "TMPDIR"]));
    recordFigure(
      "credentials of the worker seen by user code or its commands",
      seen,
      "",
      `${values.length} canaries × 4 places`,
    );
    expect(one.stderr()).toBe("");
  });

  it("a command receives exactly its arguments, and no shell interprets them", async () => {
    const { job } = await run({ worker, pipeline: once }, async (context) => {
      const { stdout } = await context.exec("sh", ["-c", 'printf "%s|%s" "$TOKEN" "$1"', "sh", "$(id); `id` && id"], {
        env: { TOKEN: "given" },
        log: "none",
      });
      return stdout;
    });
    expect(job.output).toBe("given|$(id); `id` && id");
  });
});

describe("the log of a command that writes too much", () => {
  it("is rate-limited and counts the lines omitted", async () => {
    const { job, logs, id } = await run(
      { worker, pipeline: once },
      async (context) => void (await context.exec(...sh("seq 1 200000"))),
    );
    expect(job.state).toBe("completed");
    expect(logs.length).toBeLessThan(5000);
    const omitted = logs.flatMap(
      ({ message }) => /^… ([\d,]+) lines omitted$/.exec(message)?.[1]?.replaceAll(",", "") ?? [],
    );
    expect(omitted.length).toBeGreaterThan(0);
    const shown = logs.length - omitted.length;
    expect(shown + omitted.reduce((sum, count) => sum + Number(count), 0)).toBe(200_000);
    expect(await events(id)).toEqual([]);
    const [size] = await query<{ bytes: string }>(
      "select sum(length(message)) as bytes from stillwake.logs where job_id = $1",
      [id],
    );
    recordFigure("log kept of 200,000 lines written at once", Number(size!.bytes), "bytes", `${logs.length} lines`);
  });
});
