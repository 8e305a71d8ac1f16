// Jobs that kill their runner. Each crash is recorded with its cause, the third fails the job, and other jobs are not
// affected. A drain does not count as a crash.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../support/figures.ts";
import { endedAttempts, FULL, isAlive, waitForEnd, waitForStartupGrace } from "../../support/processes/fault-checks.ts";
import { processFixture } from "../../support/processes/process-fixture.ts";
import { nothing } from "../../support/processes/script-steps.ts";
import { type StartWorkerOptions, startWorker } from "../../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();
const smallHeap = path.join(os.tmpdir(), `stillwake-small-heap-${process.pid}.config.mjs`);

beforeAll(async () => {
  fs.writeFileSync(smallHeap, "export default { heapMb: 48 };");
});
afterAll(async () => {
  fs.rmSync(smallHeap, { force: true });
});

interface Poison {
  name: string;
  steps: Record<string, unknown>[];
  code: string;
  words: RegExp;
}

const poisons: Poison[] = [
  {
    name: "heap full",
    steps: [{ name: "poison", act: "oom" }],
    code: "RUNNER_OOM",
    words: /ran out of memory: its JavaScript heap was full/,
  },
  {
    name: "heap full after much output",
    steps: [{ name: "poison", act: "complain", lines: 3000, text: "all is well", next: "oom" }],
    code: "RUNNER_OOM",
    words: /ran out of memory/,
  },
  {
    name: "process.abort()",
    steps: [{ name: "poison", act: "abort" }],
    code: "RUNNER_KILLED",
    words: /killed by SIGABRT/,
  },
  {
    name: "SIGSEGV",
    steps: [{ name: "poison", act: "signal", signal: "SIGSEGV" }],
    code: "RUNNER_KILLED",
    words: /killed by SIGSEGV/,
  },
  {
    name: "SIGKILL",
    steps: [{ name: "poison", act: "signal", signal: "SIGKILL" }],
    code: "RUNNER_KILLED",
    words: /killed by SIGKILL/,
  },
  {
    name: "exit(7)",
    steps: [{ name: "poison", act: "complain", lines: 1, text: "the disk is on fire", next: "exit", code: 7 }],
    code: "RUNNER_EXITED",
    words: /exited with code 7: the disk is on fire/,
  },
  {
    name: "exit(7) after much output",
    steps: [
      {
        name: "poison",
        act: "complain",
        lines: 3000,
        text: "all is well",
        last: "no, it NUL is not",
        next: "exit",
        code: 7,
      },
    ],
    code: "RUNNER_EXITED",
    words: /exited with code 7: no, it \u2400 is not/,
  },
  {
    name: "exit(0)",
    steps: [{ name: "poison", act: "exit", code: 0 }],
    code: "RUNNER_EXITED",
    words: /exited with code 0/,
  },
];

/** Runs poisonous jobs in a worker beside other jobs, and returns the results. */
async function runPoisons(options: StartWorkerOptions, given: Poison[]) {
  const worker = await startWorker(options);
  const neighbours: string[] = [];
  for (const act of ["turnstile", "stream"]) {
    const steps = [{ name: "beside", act, gate: `beside-${act}-${given[0]!.name.replaceAll(/\W/g, "")}` }];
    neighbours.push((await stillwake.enqueue("fragile", { observer: observer.url, steps })).id);
  }
  for (const id of neighbours) await observer.waitForReport(({ job, step }) => job === id && step === "beside");
  for (const { steps, code, words } of given) {
    const all = [{ name: "before", act: "nothing" }, ...steps];
    const { id } = await stillwake.enqueue("fragile", { observer: observer.url, steps: all });
    const quick = await stillwake.enqueue("fragile", {
      observer: observer.url,
      steps: [{ name: "one", act: "nothing" }],
    });
    const job = await waitForEnd(stillwake, id, 60_000);
    expect(job).toMatchObject({
      state: "failed",
      attempt: 3,
      crashes: 3,
      failure: { code: "POISONED", cause: { code } },
    });
    expect(job.failure!.message).toBe("Failed after 3 crashes: each attempt terminated its runner or worker");
    expect((job.failure!.cause as { message: string }).message).toMatch(words);
    const { rows } = await client.query("select outcome, failure from stillwake.ended_attempts where job_id = $1", [
      id,
    ]);
    expect(rows).toMatchObject(
      [1, 2].map(() => ({ outcome: "lost", failure: { code, message: expect.stringMatching(words) } })),
    );
    const { rows: words3 } = await client.query(
      "select message from stillwake.feed where job_id = $1 and level = 'error'",
      [id],
    );
    expect(words3.map(({ message }) => message)).toEqual([1, 2, 3].map(() => expect.stringMatching(words)));
    expect(observer.reportsOf(id).filter(({ step }) => step === "before")).toHaveLength(1);
    expect(observer.reportsOf(id).filter(({ step }) => step === "poison")).toHaveLength(3);
    neighbours.push(quick.id);
  }
  for (const act of ["turnstile", "stream"])
    observer.openGate(`beside-${act}-${given[0]!.name.replaceAll(/\W/g, "")}-1`);
  let failures = 0;
  for (const id of neighbours) {
    const { state, attempt, crashes } = await waitForEnd(stillwake, id);
    if (state !== "completed" || attempt !== 1 || crashes !== 0) failures += 1;
  }
  expect(failures).toBe(0);
  expect(worker.child.exitCode).toBe(null);
  worker.signal("SIGTERM");
  expect(await worker.exited).toBe(0);
  return { worker, neighbours: neighbours.length, failures };
}

describe("a job that kills its runner", () => {
  it("fails after three crashes, each with its cause, and does not affect other jobs", async () => {
    const { worker, neighbours, failures } = await runPoisons(
      { url: database.url, args: ["--slots", "3", "--config", smallHeap] },
      poisons,
    );
    const died = worker.lines.filter(({ event, job }) => event === "runner.died" && job).map(({ cause }) => cause);
    expect(died).toHaveLength(poisons.length * 3);
    recordFigure(
      "poisonous jobs failed after three crashes",
      poisons.length,
      "jobs",
      poisons.map(({ name }) => name).join(", "),
    );
    recordFigure("failures of their neighbours", failures, "jobs", `of ${neighbours}`);
    recordFigure("workers lost to them", 0, "workers", `${died.length} runners`);
  }, 300_000);

  it("fails with RUNNER_OOM if it exceeds the memory limit of its process", async () => {
    // Most of Node's address space is only reserved, so the effective limit is that of written memory.
    await runPoisons(
      { url: database.url, args: ["--slots", "3"], wrapper: ["prlimit", "--data=1000000000", "--core=0"] },
      [{ ...poisons[0]!, name: "limited", words: /ran out of memory/ }],
    );
  }, 300_000);

  it("is not explained by output of an earlier job", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const words = "FATAL ERROR: JavaScript heap out of memory";
    const first = await stillwake.enqueue("script", {
      observer: observer.url,
      steps: [{ name: "chat", act: "complain", lines: 1, text: words, next: "nothing" }],
    });
    await stillwake.wait(first.id, { timeout: "20s" });
    const steps = [{ name: "poison", act: "exit", code: 3 }];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps }, { attempts: 1 });
    const job = await waitForEnd(stillwake, id);
    expect(observer.reportsOf(id)[0]!.pid).toBe(observer.reportsOf(first.id)[0]!.pid);
    expect(job.failure).toMatchObject({
      cause: { code: "RUNNER_EXITED", message: "The runner exited with code 3" },
    });
    expect(await worker.waitForLine("runner.died")).toMatchObject({ cause: "exited" });
  });

  it("that kills its whole worker kills at most three workers", async () => {
    await waitForStartupGrace(client, "15s");
    const steps = [nothing("before"), { name: "poison", act: "parricide" }];
    const first = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const { id } = await stillwake.enqueue("fragile", { observer: observer.url, steps });
    expect(await first.exited).toBe("SIGKILL");
    let lost = 1;
    for (;;) {
      const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
      const outcome = await Promise.race([worker.exited, waitForEnd(stillwake, id, 60_000)]);
      if (outcome !== "SIGKILL") break;
      lost += 1;
    }
    const job = await stillwake.get(id);
    expect(job).toMatchObject({
      state: "failed",
      crashes: 3,
      failure: { code: "POISONED", cause: { code: "LEASE_EXPIRED" } },
    });
    expect(lost).toBe(3);
    expect(observer.reportsOf(id).filter(({ step }) => step === "before")).toHaveLength(1);
    recordFigure("workers lost to a job that kills its worker", lost, "workers");
  }, 300_000);
});

describe("a deploy", () => {
  it("charges no attempt, however often it happens, even if the job ignores the stop request", async () => {
    const deploys = FULL ? 10 : 3;
    const scripts = {
      listening: [{ name: "long", act: "wait", ms: 600_000 }],
      deaf: [{ name: "long", act: "wait", ms: 600_000, deaf: true }],
      blocked: [{ name: "long", act: "block", ms: 600_000 }],
    };
    const args = ["--slots", "3", "--drain-timeout", "0s", "--grace", "500ms"];
    const ids: string[] = [];
    for (let deploy = 1; deploy <= deploys; deploy++) {
      const worker = await startWorker({ url: database.url, args });
      if (deploy === 1) {
        for (const long of Object.values(scripts)) {
          const steps = [{ name: "before", act: "nothing" }, ...long];
          ids.push((await stillwake.enqueue("fragile", { observer: observer.url, steps })).id);
        }
      }
      for (const id of ids) {
        await observer.waitForReport(
          ({ job, step, epoch }) => job === id && step === "long" && epoch === String(deploy),
        );
      }
      const runners = worker.runners();
      worker.signal("SIGTERM");
      expect(await worker.exited).toBe(0);
      expect(runners.filter(isAlive)).toEqual([]);
      for (const id of ids) expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 0, crashes: 0 });
    }
    expect(await endedAttempts(client, ids)).toEqual({ released: deploys * ids.length });
    for (const id of ids) {
      expect(observer.reportsOf(id).filter(({ step }) => step === "before")).toHaveLength(1);
      await stillwake.cancel(id);
    }
    recordFigure("crashes counted by deploys", 0, "crashes", `${deploys * ids.length} jobs released`);
  }, 300_000);
});
