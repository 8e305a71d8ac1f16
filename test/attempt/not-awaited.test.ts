// Calls that user code does not await: a completed job has no unfinished step.
import { describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import type { JobContext, StepHandle } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { deferred } from "../support/deferred.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { run, stillwake, until, attempts, checkpoints, logs: readLogs } = await inProcessFixture();
const twice = { retry: { attempts: 2, initial: "1ms", max: "1ms" } } as const;
const once = { retry: { attempts: 1 } };

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe("a call that is not awaited", () => {
  const store = `file:${temporaryDirectory("not-awaited")}`;
  const later = () => new Promise<void>((resolve) => setTimeout(resolve, 50));
  const calls: [kind: string, name: string, (job: JobContext) => Promise<unknown>][] = [
    ["Step", "late", (job) => job.step("late", later)],
    ["Step", "late", (job) => job.optional("late", later)],
    ["List", "late", (job) => job.each("late", [1], {}, later)],
    ["Artifact", "late.txt", (job) => job.artifact("late.txt", () => later().then(() => "text"))],
  ];
  it.each(calls)("is finished before the job completes, with a warning: %s %s", async (kind, called, call) => {
    const { job, id, logs } = await run({ worker: { store } }, (context) => {
      void call(context);
      return "returned";
    });
    expect(job).toMatchObject({ state: "completed", output: "returned", attempt: 1 });
    expect(logs.filter(({ level }) => level === "warning")).toMatchObject([
      {
        message: `${kind} "${called}" was still running when the function returned. The job waits for it; add the missing await`,
        data: { code: "NOT_AWAITED" },
      },
    ]);
    const saved = kind === "Artifact" ? await stillwake.artifacts(id) : await stillwake.steps(id);
    expect(saved.map(({ name }) => name)).toEqual([called]);
  });

  it("is finished also in a later attempt, where its checkpoints are read first, and so is what follows it", async () => {
    const ran: string[] = [];
    const { job, id } = await run({ pipeline: twice }, (context) => {
      if (context.attempt === 1) throw new Error("again");
      void context.step("a", later).then(() => context.step("b", () => void ran.push("b")));
    });
    expect(job).toMatchObject({ state: "completed", attempt: 2 });
    expect(ran).toEqual(["b"]);
    expect((await checkpoints(id)).map(({ step }) => step)).toEqual(["a", "b"]);
  });

  it("fails the attempt when it fails", async () => {
    const { job } = await run({ pipeline: once }, (context) => {
      // Handled, so that this process, which is also the test's, does not report it.
      void context.step("late", () => later().then(() => Promise.reject(new Error("too late")))).catch(() => {});
      return "returned";
    });
    expect(job).toMatchObject({ state: "failed", output: null });
    expect(JSON.stringify(job.failure)).toContain("too late");
  });

  it("makes the job wait when it is a wait", async () => {
    let runs = 0;
    const { job, id } = await run((context) => {
      runs += 1;
      void context.sleep("nap", "1ms").catch(() => {});
      return "returned";
    });
    expect(job).toMatchObject({ state: "completed", output: "returned" });
    expect(runs).toBe(2);
    expect(await attempts(id)).toMatchObject([{ outcome: "slept" }, { outcome: "completed" }]);
  });

  it("is not waited for after a cancel, and the job is cancelled", async () => {
    const { promise: begun, resolve: begin } = deferred();
    const { id } = await run({ until: ({ state }) => state === "running", worker: { lease: "1s" } }, (context) => {
      const endless = ({ signal }: StepHandle) => {
        begin();
        return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      };
      void context.step("endless", endless).catch(() => {});
      return "returned";
    });
    await begun;
    await stillwake.cancel(id);
    expect(await until(id)).toMatchObject({ state: "cancelled", output: null });
  });

  it("is reported and stopped when it is a command", async () => {
    const { job, logs } = await run(async (context) => {
      const serving = context.exec("sh", ["-c", "echo $$; exec sleep 1000"]);
      serving.catch(() => {});
      await waitFor(async () => (await readLogs(context.id)).length > 0);
      return "returned";
    });
    expect(job).toMatchObject({ state: "completed", output: "returned" });
    expect(logs.at(-1)).toMatchObject({
      level: "warning",
      message:
        "Command sh was still running when the function returned, and is stopped. Await job.exec() if its work matters",
    });
    await waitFor(() => !isAlive(Number(logs[0]!.message)));
  });

  it("is not reported when it was awaited, alone or with others", async () => {
    const { logs } = await run(async (context) => {
      await Promise.all([context.step("a", later), context.step("b", later), context.exec("true")]);
      for await (const _ of context.exec("yes", [], { log: "none" })) break;
    });
    expect(logs).toEqual([]);
  });
});
