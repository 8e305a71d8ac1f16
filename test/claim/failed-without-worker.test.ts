// A job that fails while none of its code runs, because its machine was lost or its time ran out too often: the sentence
// of its pipeline appears in the failure and as the last log line, whichever process notices the end.
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { travel } from "../../src/testing/index.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, run, stillwake, name, query, logs } = await inProcessFixture();
const SENTENCE = "Extraction failed after {attempts} attempts (machine crash or timeout)";

const claim = async (contract: string, worker: string) => {
  const [held] = await query<{ job: string; epoch: string; lease: string }>(
    "select job_id as job, epoch, lease_id as lease from stillwake.claim($1, $2, array[$2])",
    [worker, contract],
  );
  return held!;
};

/** A job whose machines die until it fails, with no process but a cron job that calls the watchdog. */
async function neverHeardOfAgain(settings: object, atEachLoss?: (id: string) => Promise<unknown>) {
  const contract = name();
  await query("select stillwake.register_pipeline($1, $2)", [contract, { pool: contract, ...settings }]);
  const { id } = await stillwake.enqueue(contract, null);
  for (let losses = 1; ; losses++) {
    const held = await claim(contract, `w${losses}`);
    expect(held.job).toBe(id);
    await query("select stillwake.append_logs($1)", [
      JSON.stringify([
        { job: id, epoch: held.epoch, lease: held.lease, lines: [{ message: `attempt ${losses} was here` }] },
      ]),
    ]);
    await atEachLoss?.(id);
    // The first call finds no valid lease at all, which may have been an outage, and waits for the length of a lease.
    for (let call = 0; call < 2; call++) {
      await travel(database.url, "5m");
      await query("select stillwake.watchdog()");
    }
    const job = await stillwake.get(id);
    if (job.endedAt !== null) return { id, job, losses, lines: await logs(id), held };
  }
}

describe("the sentence of a job that fails without its code", () => {
  it("is set when the watchdog finds the last crash, with no worker alive", async () => {
    const { id, job, losses, lines } = await neverHeardOfAgain({
      crash_limit: 3,
      max_attempts: 10,
      exhausted: SENTENCE,
    });
    const sentence = "Extraction failed after 3 attempts (machine crash or timeout)";
    expect(losses).toBe(3);
    expect(job).toMatchObject({
      state: "failed",
      crashes: 3,
      failure: {
        code: "POISONED",
        sentence,
        message: expect.stringMatching(/^Failed after 3 crashes/),
        cause: { code: "LEASE_EXPIRED" },
      },
    });
    expect(lines.map(({ level, message }) => `${level}: ${message}`)).toEqual([
      "info: attempt 1 was here",
      "info: attempt 2 was here",
      "info: attempt 3 was here",
      `error: ${sentence}`,
    ]);
    // As a follower receives it: a log line, and then the end.
    const told: unknown[] = [];
    for await (const event of stillwake.follow(id)) told.push(event);
    expect(told.at(-1)).toMatchObject({ kind: "end", state: "failed", failure: { sentence } });
    expect(told.filter((event) => (event as { kind: string }).kind === "log").at(-1)).toMatchObject({
      level: "error",
      message: sentence,
      step: null,
      data: { code: "POISONED" },
    });
  });

  it("is set when its last attempt is lost, and counts the attempts", async () => {
    const { job, lines } = await neverHeardOfAgain({ crash_limit: 9, max_attempts: 2, exhausted: SENTENCE });
    const sentence = "Extraction failed after 2 attempts (machine crash or timeout)";
    expect(job).toMatchObject({ state: "failed", attempt: 2, failure: { code: "RETRIES_EXHAUSTED", sentence } });
    expect(lines.at(-1)).toMatchObject({ level: "error", message: sentence });
  });

  it("is set when its time runs out for the last time", async () => {
    const { job, logs: lines } = await run(
      { pipeline: { timeout: "100ms", retry: { attempts: 2, initial: "1ms", max: "1ms", exhausted: SENTENCE } } },
      (context) =>
        new Promise((_, reject) => context.signal.addEventListener("abort", () => reject(context.signal.reason))),
    );
    const sentence = "Extraction failed after 2 attempts (machine crash or timeout)";
    expect(job.failure).toMatchObject({ code: "RETRIES_EXHAUSTED", sentence, cause: { code: "TIMEOUT" } });
    expect(lines.filter(({ message }) => message === sentence)).toMatchObject([{ level: "error" }]);
    expect(lines.at(-1)).toMatchObject({ message: sentence });
  });

  it.each([
    ["when it was silent", { name: "Stopped", code: "SILENT", message: "quiet" }, "Given up after 1"],
    [
      "but not for an error thrown by its code, whatever its code",
      { name: "Error", code: "TIMEOUT", message: "slow" },
      undefined,
    ],
    [
      "and does not replace a sentence of that error",
      { name: "Error", message: "x", sentence: "The disk is full" },
      "The disk is full",
    ],
  ])("is set %s", async (_, failure, sentence) => {
    const contract = name();
    await query("select stillwake.register_pipeline($1, $2)", [
      contract,
      { pool: contract, max_attempts: 1, exhausted: "Given up after {attempts}" },
    ]);
    const { id } = await stillwake.enqueue(contract, null);
    const held = await claim(contract, "w");
    await query("select stillwake.fail($1, $2, $3, $4)", [id, held.epoch, held.lease, failure]);
    expect((await stillwake.get(id)).failure?.sentence).toBe(sentence);
    expect(await logs(id)).toHaveLength(failure.name === "Stopped" ? 1 : 0);
  });

  it("is not set on a cancelled job, and no line is written for a pipeline without one", async () => {
    const cancelled = await neverHeardOfAgain({ crash_limit: 9, max_attempts: 9, exhausted: SENTENCE }, (id) =>
      stillwake.cancel(id),
    );
    expect(cancelled.job.state).toBe("cancelled");
    expect(cancelled.lines).toHaveLength(1);
    const without = await neverHeardOfAgain({ crash_limit: 1 });
    expect(without.job.failure).toMatchObject({ code: "POISONED" });
    expect(without.job.failure).not.toHaveProperty("sentence");
    expect(without.lines).toHaveLength(1);
  });

  it("is written once, though a worker that lost the response settles again", async () => {
    const { id, job, held } = await neverHeardOfAgain({ crash_limit: 1, exhausted: "Given up after {attempts}" });
    const again = {
      job: id,
      epoch: held.epoch,
      lease: held.lease,
      outcome: "lost",
      failure: { code: "RUNNER_OOM" },
    };
    expect(await query("select state from stillwake.settle($1)", [JSON.stringify([again])])).toEqual([
      { state: "failed" },
    ]);
    expect(await stillwake.get(id)).toEqual(job);
    expect((await logs(id)).filter(({ message }) => message === "Given up after 1")).toHaveLength(1);
  });

  it("comes from the contract, and is removed with it", async () => {
    const sentences = async (contract: string) =>
      (
        await query<{ exhausted: string | null }>("select exhausted from stillwake.pipelines where name = $1", [
          contract,
        ])
      )[0]!.exhausted;
    const one = name();
    await stillwake.register(pipeline(one, { retry: { exhausted: SENTENCE } }));
    expect(await sentences(one)).toBe(SENTENCE);
    // Registering without the setting changes nothing; a contract without a sentence removes it.
    await query(`select stillwake.register_pipeline($1, '{"priority": 3}')`, [one]);
    expect(await sentences(one)).toBe(SENTENCE);
    const { settings } = pipeline(one, { retry: { attempts: 2 } });
    await query("select stillwake.register_pipeline($1, $2)", [one, settings]);
    expect(await sentences(one)).toBeNull();
  });

  it.each(["", "x".repeat(301), "after {tries} tries", "after {attempts", "}", 3])("cannot be %j", async (bad) => {
    expect(() => pipeline("p", { retry: { exhausted: bad as string } })).toThrow(
      expect.objectContaining({
        code: "INVALID_INPUT",
        field: "retry.exhausted",
        remedy: expect.stringContaining("{attempts}"),
      }),
    );
    const refused = query("select stillwake.register_pipeline('p', $1)", [{ exhausted: bad }]);
    await expect(refused).rejects.toMatchObject({ code: "SW001", hint: expect.stringContaining("{attempts}") });
  });

  it("may have 300 characters of any kind", async () => {
    const long = `${"🐘".repeat(290)}{attempts}`;
    expect(pipeline("p", { retry: { exhausted: long } }).settings).toMatchObject({ exhausted: long });
    const { job } = await neverHeardOfAgain({ crash_limit: 1, exhausted: long });
    expect(job.failure?.sentence).toBe(`${"🐘".repeat(290)}1`);
  });
});
