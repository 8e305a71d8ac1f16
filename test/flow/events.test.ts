// A job waits for a word from outside: before it is said, after it was said, again and again, for days, through crashes, and not for ever.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { createStillwake, pipeline } from "../../src/index.ts";
import { travel } from "../../src/testing/index.ts";
import { EventTimeout, implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { rig } from "../support/processes/in-process.ts";

const database = await freshDatabase();
const { stillwake, run, start, until, query, attempts, logs, events, name } = rig(database);
const approval = z.object({ approved: z.boolean() });

describe("a job that waits for an event", () => {
  it("holds no slot, is charged no attempt, and goes on with the data", async () => {
    const { id, job } = await run(async (one) => one.waitFor("approval", approval), {
      until: ({ waitingFor }) => waitingFor === "event",
    });
    expect(job).toMatchObject({ state: "queued", attempt: 0, runAt: null });
    expect(await stillwake.signal(id, "approval", { approved: true }, { by: "ann" })).toBe("queued");
    expect(await until(id)).toMatchObject({ state: "completed", output: { approved: true }, attempt: 1 });
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["slept", "completed"]);
    expect(await events(id)).toContain("signalled");
  });

  it("finds what was said before it asked, and does not wait at all", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    await stillwake.signal(id, "approval", { approved: false });
    await start([implement(contract, (job) => job.waitFor("approval", approval))]);
    expect(await until(id)).toMatchObject({ output: { approved: false } });
    expect(await attempts(id)).toHaveLength(1);
  });

  it("takes one word for each wait, in the order they were said", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    for (const word of ["one", "two", "three"]) await stillwake.signal(id, "word", word);
    await start([
      implement(contract, async (job) => {
        const heard: string[] = [];
        for (const step of ["first", "second", "third"]) heard.push(await job.waitFor("word", z.string(), { step }));
        return heard;
      }),
    ]);
    expect(await until(id)).toMatchObject({ output: ["one", "two", "three"] });
  });

  it("may wait twice at once for one event: each wait gets a word of its own", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    for (const word of ["one", "two"]) await stillwake.signal(id, "word", word);
    await start([
      implement(contract, (job) => Promise.all(["a", "b"].map((step) => job.waitFor("word", z.string(), { step })))),
    ]);
    expect(((await until(id)).output as string[]).toSorted()).toEqual(["one", "two"]);
  });

  it("is not woken by another word, nor by data that do not fit, of which the log tells", async () => {
    const { id } = await run(async (one) => one.waitFor("approval", approval), {
      until: ({ waitingFor }) => waitingFor === "event",
    });
    await stillwake.signal(id, "something else", {});
    expect(await stillwake.get(id)).toMatchObject({ waitingFor: "event", runAt: null });
    await stillwake.signal(id, "approval", { approved: "maybe" });
    await until(id, (job) => job.waitingFor === "event" && Number(job.epoch) > 1);
    expect((await logs(id)).map(({ message }) => message).join()).toContain(
      'What was said of "approval" is not what was asked for',
    );
    await stillwake.signal(id, "approval", { approved: true });
    expect(await until(id)).toMatchObject({ output: { approved: true } });
  });

  it("keeps what it heard: an attempt that goes on does not wait again", async () => {
    let tries = 0;
    const { id } = await run(
      async (one) => {
        const heard = await one.waitFor("approval", approval);
        tries += 1;
        if (tries === 1) throw new Error("once more");
        return heard;
      },
      { until: ({ waitingFor }) => waitingFor === "event" },
    );
    await stillwake.signal(id, "approval", { approved: true });
    expect(await until(id)).toMatchObject({ output: { approved: true }, attempt: 2 });
  });

  it("gives up after its time by the database's clock, counted from the first wait, and an attempt that goes on gives up too", async () => {
    let tries = 0;
    const { id, job } = await run(
      async (one) => {
        try {
          await one.waitFor("approval", approval, { timeout: "3d" });
        } catch (error) {
          if (!(error instanceof EventTimeout)) throw error;
          tries += 1;
          if (tries === 1) throw new Error("once more", { cause: error });
          throw error;
        }
      },
      { until: ({ waitingFor }) => waitingFor === "event" },
    );
    const first = job.runAt!.getTime();
    await travel(database.url, "2d");
    await stillwake.signal(id, "approval", { approved: 1 });
    const again = await until(id, ({ waitingFor, epoch }) => waitingFor === "event" && Number(epoch) > 1);
    expect(again.runAt!.getTime()).toBe(first);
    await travel(database.url, "25h");
    const ended = await until(id);
    expect(ended).toMatchObject({ state: "failed", attempt: 2, failure: { code: "EVENT_TIMEOUT" } });
    expect(tries).toBe(2);
  });

  it("can be paused and resumed, cancelled, and is not spoken to once it has ended", async () => {
    const { id } = await run(async (one) => one.waitFor("approval"), {
      until: ({ waitingFor }) => waitingFor === "event",
    });
    await stillwake.pause(id, { reason: "lunch" });
    await stillwake.signal(id, "approval", { fine: true });
    expect((await stillwake.get(id)).state).toBe("paused");
    await stillwake.resume(id);
    expect(await until(id)).toMatchObject({ output: { fine: true } });
    await expect(stillwake.signal(id, "approval")).rejects.toMatchObject({ code: "NOT_ALLOWED" });
    await expect(stillwake.signal("01890000-0000-7000-8000-000000000000", "approval")).rejects.toMatchObject({
      code: "JOB_NOT_FOUND",
    });
    await expect(stillwake.signal(id, "")).rejects.toMatchObject({ code: "INVALID_INPUT", field: "event" });
    await expect(stillwake.signal(id, "big", "x".repeat(300_000))).rejects.toMatchObject({ code: "INVALID_INPUT" });
  });

  it("hears a word once that was sent twice because its answer was lost", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    const token = "3f0c1d8e-5b0f-4f8e-9d5a-111111111111";
    for (let n = 0; n < 2; n++) await query("select stillwake.signal($1, 'word', '1', null, $2)", [id, token]);
    expect(await query("select name from stillwake.signals where job_id = $1", [id])).toHaveLength(1);
  });

  it("and a word that arrives in the moment in which it falls asleep is not lost", async () => {
    const contract = pipeline(name());
    const others = Array.from({ length: 4 }, () => createStillwake({ url: database.url }));
    await start([implement(contract, (job) => job.waitFor("go", z.number()))], { slots: 10, poll: "50ms" });
    const jobs = await stillwake.enqueueMany(
      contract,
      Array.from({ length: 200 }, () => ({})),
    );
    await Promise.all(jobs.map(({ id }, n) => others[n % 4]!.signal(id, "go", n)));
    for (const { id } of jobs) expect((await until(id)).state).toBe("completed");
    await Promise.all(others.map((one) => one.close()));
  });
});
