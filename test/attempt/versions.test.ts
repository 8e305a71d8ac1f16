// Versions of pipelines: which worker continues a job that older or newer code has started, and from which checkpoints.
import { describe, expect, it } from "vitest";
import { type Job, type PipelineOptions, pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { implement, type JobContext, Retry } from "../../src/worker/index.ts";
import { recordFigure } from "../support/figures.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { start, stillwake, until, checkpoints, attempts, events, name, query } = await inProcessFixture();

type Code = (job: JobContext) => unknown;
type Policy = Pick<PipelineOptions<unknown, unknown>, "version" | "onOlder">;

/** One version of a pipeline's code. Retries come at once. */
function code(pipelineName: string, policy: Policy, run: Code) {
  return implement(pipeline(pipelineName, { retry: { attempts: 9, initial: "1ms", max: "1ms" }, ...policy }), run);
}

/** A job that this code has started and released; no worker runs it when this returns. */
async function begun(pipelineName: string, policy: Policy, run: Code): Promise<string> {
  const implementation = code(pipelineName, policy, async (job) => {
    await run(job);
    throw new Retry("the rest is for the next version");
  });
  const { id } = await stillwake.enqueue(implementation.pipeline, null);
  const { worker } = await start([implementation], { until: "once" });
  await worker.done;
  expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 1 });
  return id;
}

const versionOf = async (id: string) =>
  (await query<{ version: number }>("select version from stillwake.jobs where id = $1", [id]))[0]!.version;

const eventData = async (id: string, kind: string) =>
  (await query<{ data: unknown }>("select data from stillwake.events where job_id = $1 and kind = $2", [id, kind])).map(
    ({ data }) => data,
  );

/** Waits until the worker has polled several times without a job that it may claim. */
const inVain = (announced: { kind: string }[], times = 3) =>
  waitFor(() => announced.filter(({ kind }) => kind === "claim.empty").length >= times);

describe("a job started by an older version", () => {
  it("continues with its checkpoints by default, and the adoption is an event", async () => {
    const one = name();
    const calls: string[] = [];
    const id = await begun(one, {}, (job) => job.step("clone", () => void calls.push("clone of version 1")));
    expect(await versionOf(id)).toBe(1);
    await start([
      code(one, { version: 3 }, async (job) => {
        await job.step("clone", () => void calls.push("clone of version 3"));
        await job.step("scan", () => void calls.push("scan of version 3"));
        return "done";
      }),
    ]);
    expect(await until(id)).toMatchObject({ state: "completed", output: "done", attempt: 2 });
    expect(calls).toEqual(["clone of version 1", "scan of version 3"]);
    expect(await versionOf(id)).toBe(3);
    expect(await events(id)).toEqual(["failed", "adopted"]);
    expect(await eventData(id, "adopted")).toEqual([{ from: 1, to: 3 }]);
  });

  it("is adopted once, however many attempts the new version needs", async () => {
    const one = name();
    const id = await begun(one, { version: 1 }, () => {});
    await start([
      code(one, { version: 2 }, (job) => {
        if (job.attempt < 4) throw new Retry("again");
      }),
    ]);
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 4 });
    expect((await events(id)).filter((kind) => kind === "adopted")).toHaveLength(1);
  });

  it("starts again without them with onOlder: restart", async () => {
    const one = name();
    const calls: string[] = [];
    const id = await begun(one, {}, async (job) => {
      await job.step("clone", () => void calls.push("clone of version 1"));
      await query(
        "insert into stillwake.artifacts values ($1, 'old.txt', 1, 3, repeat('0', 64), 'text/plain', 'k', now())",
        [job.id],
      );
    });
    await start([
      code(one, { version: 2, onOlder: "restart" }, async (job) => {
        await job.step("clone", () => void calls.push("clone of version 2"));
        if (job.attempt === 2) throw new Retry("what version 2 has kept stays kept");
      }),
    ]);
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 3 });
    expect(calls).toEqual(["clone of version 1", "clone of version 2"]);
    expect(await eventData(id, "restarted")).toEqual([{ from: 1, to: 2 }]);
    expect(await query("select from stillwake.artifacts where job_id = $1", [id])).toEqual([]);
  });

  it("waits for a worker of its version with onOlder: wait, and continues there", async () => {
    const one = name();
    const id = await begun(one, { version: 1 }, (job) => job.step("clone", () => "by 1"));
    const { events: announced, worker } = await start([code(one, { version: 2, onOlder: "wait" }, () => "by 2")]);
    const fresh = await stillwake.enqueue(one, null);
    expect(await until(fresh.id)).toMatchObject({ output: "by 2" });
    await inVain(announced);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 1 });

    const old = await start([code(one, { version: 1 }, (job) => job.step("clone", () => "again by 1"))]);
    expect(await until(id)).toMatchObject({ output: "by 1", attempt: 2 });
    expect(await events(id)).toEqual(["failed"]);
    await old.worker.stop();
    await worker.stop();
  });
});

describe("a job started by a newer version", () => {
  it("is never claimed by an older worker, while new jobs are", async () => {
    const one = name();
    const id = await begun(one, { version: 2 }, (job) => job.step("clone", () => "by 2"));
    const { events: announced, worker } = await start([code(one, { version: 1 }, () => "by 1")]);
    const fresh = await stillwake.enqueueMany(one, [1, 2, 3]);
    for (const job of fresh) expect(await until(job.id)).toMatchObject({ output: "by 1" });
    await inVain(announced);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 1 });
    await worker.stop();
    await start([code(one, { version: 2 }, (job) => job.step("clone", () => "again"))]);
    expect(await until(id)).toMatchObject({ output: "by 2", attempt: 2 });
  });

  it.each(["continue", "restart", "wait"] as const)(
    "is not claimed by an older worker with onOlder: %s",
    async (onOlder) => {
      const one = name();
      const id = await begun(one, { version: 5 }, () => {});
      const { events: announced } = await start([code(one, { version: 4, onOlder }, () => "by 4")]);
      await inVain(announced);
      expect(await stillwake.get(id)).toMatchObject({ state: "queued", attempt: 1 });
    },
  );

  it("does not keep an older worker from exiting when it has no other job", async () => {
    const one = name();
    await begun(one, { version: 2 }, () => {});
    const { worker } = await start([code(one, { version: 1 }, () => "by 1")], { until: "empty" });
    expect(await worker.done).toBe("nothing is left to do");
  });

  it("does not make an older worker poll in a loop", async () => {
    const one = name();
    const id = await begun(one, { version: 2 }, () => {});
    const due = async (versions: number[] | null, oldest: number[] | null) => {
      const [row] = await query<{ due: Date | null }>("select stillwake.next_due('{default}', $1, $2, $3) as due", [
        [one],
        versions,
        oldest,
      ]);
      return row!.due;
    };
    expect(await due([1], [1])).toBeNull();
    expect(await due([3], [3])).toBeNull();
    expect(await due([2], [1])).toBeInstanceOf(Date);
    expect(await due(null, null)).toBeInstanceOf(Date);

    const looks: number[] = [];
    const { worker } = await start([code(one, { version: 1 }, () => "by 1")], { poll: "100ms" });
    worker.events.subscribe(({ kind }) => {
      if (kind === "claim.empty") looks.push(performance.now());
    });
    await waitFor(() => looks.length >= 6);
    const gaps = looks.slice(1).map((at, index) => at - looks[index]!);
    // The poll interval of 100 ms ± 10%; a busy loop would be 10 ms.
    expect(Math.min(...gaps)).toBeGreaterThan(70);
    recordFigure(
      "shortest poll interval of a worker with a job it may not claim",
      Math.round(Math.min(...gaps)),
      "ms",
      "poll 100ms",
    );
    expect(await stillwake.get(id)).toMatchObject({ state: "queued" });
  });
});

describe("a rolling deploy", () => {
  it("with two versions at once finishes every job, and none goes back to the older version", async () => {
    const one = name();
    const seen = new Map<string, number[]>();
    const at = (version: number) =>
      code(one, { version }, async (job) => {
        seen.set(job.id, [...(seen.get(job.id) ?? []), version]);
        await job.step(`${job.attempt}`, () => version);
        if (job.attempt < 4) throw new Retry("another worker may continue");
      });
    const jobs = await stillwake.enqueueMany(
      pipeline(one, { retry: { attempts: 9, initial: "1ms", max: "1ms" } }),
      new Array(10).fill(null),
    );
    await Promise.all([start([at(1)], { slots: 2, poll: "10ms" }), start([at(2)], { slots: 2, poll: "10ms" })]);
    for (const { id } of jobs) expect(await until(id)).toMatchObject({ state: "completed" });
    const backwards = [...seen.values()].filter((versions) =>
      versions.some((version, n) => n > 0 && version < versions[n - 1]!),
    );
    expect(backwards).toEqual([]);
    expect([...seen.values()].flat()).toContain(2);
  });
});

describe("a job that is retried manually", () => {
  const failOnce = (one: string, version: number) =>
    code(one, { version }, async (job) => {
      await job.step("clone", () => `by ${version}`);
      if (version === 1) throw Object.assign(new Error("no"), { code: "X" });
      return job.step("clone twice", () => version);
    });
  async function failed(one: string): Promise<Job> {
    const { id } = await stillwake.enqueue(pipeline(one, { retry: { attempts: 1 } }), null);
    const { worker } = await start([failOnce(one, 1)]);
    const job = await until(id);
    await worker.stop();
    return job;
  }

  it("continues under the new version, which adopts it", async () => {
    const one = name();
    const { id } = await failed(one);
    await stillwake.retry(id);
    await start([failOnce(one, 2)]);
    expect(await until(id)).toMatchObject({ state: "completed" });
    expect((await checkpoints(id)).map(({ step, output }) => [step, output])).toEqual([
      ["clone", "by 1"],
      ["clone twice", 2],
    ]);
    expect(await events(id)).toEqual(["retried", "adopted"]);
  });

  it("from the start has no version until it is claimed", async () => {
    const one = name();
    const { id } = await failed(one);
    await stillwake.retry(id, { fromStart: true });
    expect(await versionOf(id)).toBeNull();
    await start([failOnce(one, 2)]);
    expect(await until(id)).toMatchObject({ state: "completed" });
    expect((await checkpoints(id)).map(({ output }) => output)).toEqual(["by 2", 2]);
    expect(await events(id)).toEqual(["retried"]);
  });
});

describe("a change to the steps of a pipeline, for running jobs", () => {
  const steps = (...names: string[]): { run: Code; calls: string[] } => {
    const calls: string[] = [];
    const run: Code = async (job) => {
      const results: unknown[] = [];
      for (const step of names) {
        results.push(
          await job.step(step, () => {
            calls.push(step);
            return `${step} in attempt ${job.attempt}`;
          }),
        );
      }
      return results;
    };
    return { run, calls };
  };

  it.each([
    [
      "an added step runs, before saved steps or after",
      ["clone", "scan"],
      ["prepare", "clone", "scan", "report"],
      ["prepare", "report"],
    ],
    ["a removed step is not missed", ["clone", "lint", "scan"], ["clone", "scan"], []],
    ["a renamed step is run under its new name", ["clone", "scan"], ["clone", "analyse"], ["analyse"]],
    ["steps in another order are found by name", ["clone", "scan", "report"], ["report", "clone", "scan"], []],
    ["a step that became two is run as far as it is new", ["clone and scan"], ["clone", "scan"], ["clone", "scan"]],
  ])("%s", async (_, before, after, run) => {
    const one = name();
    const old = steps(...before);
    const id = await begun(one, {}, old.run);
    expect(old.calls).toEqual(before);
    const next = steps(...after);
    await start([code(one, {}, next.run)]);
    const job = await until(id);
    expect(next.calls).toEqual(run);
    expect(job.output).toEqual(after.map((step) => `${step} in attempt ${before.includes(step) ? 1 : 2}`));
    expect(await attempts(id)).toHaveLength(2);
  });
});

describe("an invalid version", () => {
  it.each([
    [{ version: 0 }, /^version 0 of pipeline "p" is not valid\. Use a whole number from 1/],
    [{ version: 1.5 }, /^version 1\.5 of/],
    [{ version: "2" as unknown as number }, /^version "2" of/],
    [{ version: 2 ** 31 }, /^version 2147483648 of/],
    [
      { onOlder: "ignore" as never },
      /^onOlder "ignore" of pipeline "p" is not valid\. Use "continue", "restart" or "wait"/,
    ],
  ])("%j is rejected when the pipeline is defined", (options, message) => {
    expect(() => pipeline("p", options)).toThrow(message);
  });
});
