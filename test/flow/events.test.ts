// job.waitFor: signals sent before and after the wait, repeatedly, for days, through crashes, and with a timeout.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { createStillwake, EventTimeout, pipeline } from "../../src/index.ts";
import { travel } from "../../src/testing/index.ts";
import { implement } from "../../src/worker/index.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { database, stillwake, run, start, until, query, attempts, logs, events, name } = await inProcessFixture();
const approval = z.object({ approved: z.boolean() });

describe("a job that waits for an event", () => {
  it("occupies no slot, does not count the attempt, and continues with the data", async () => {
    const { id, job } = await run({ until: ({ waitingFor }) => waitingFor === "event" }, async (job) =>
      job.waitFor("approval", approval),
    );
    expect(job).toMatchObject({ state: "queued", attempt: 0, runAt: null, awaitedEvent: "approval" });
    expect(await stillwake.signal(id, "approval", { approved: true }, { by: "ann" })).toEqual({
      state: "queued",
      awaitedEvent: "approval",
    });
    expect(await until(id)).toMatchObject({ state: "completed", output: { approved: true }, attempt: 1 });
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["slept", "completed"]);
    expect(await events(id)).toContain("signalled");
  });

  it("finds a signal sent before it waits, and does not wait at all", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    expect(await stillwake.signal(id, "approval", { approved: false })).toEqual({
      state: "queued",
      awaitedEvent: null,
    });
    await start([implement(contract, (job) => job.waitFor("approval", approval))]);
    expect(await until(id)).toMatchObject({ output: { approved: false } });
    expect(await attempts(id)).toHaveLength(1);
  });

  it("takes one signal for each wait, in the order they were sent", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    for (const word of ["one", "two", "three"]) await stillwake.signal(id, "word", word);
    await start([
      implement(contract, async (job) => {
        const received: string[] = [];
        for (const step of ["first", "second", "third"]) received.push(await job.waitFor("word", z.string(), { step }));
        return received;
      }),
    ]);
    expect(await until(id)).toMatchObject({ output: ["one", "two", "three"] });
  });

  it("may wait twice for one event at the same time: each wait gets its own signal", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    for (const word of ["one", "two"]) await stillwake.signal(id, "word", word);
    await start([
      implement(contract, (job) => Promise.all(["a", "b"].map((step) => job.waitFor("word", z.string(), { step })))),
    ]);
    expect(((await until(id)).output as string[]).toSorted()).toEqual(["one", "two"]);
  });

  it("is not resumed by another event, nor by invalid data, which are logged", async () => {
    const { id } = await run({ until: ({ waitingFor }) => waitingFor === "event" }, async (job) =>
      job.waitFor("approval", approval),
    );
    expect(await stillwake.signal(id, "something else", {})).toEqual({ state: "queued", awaitedEvent: "approval" });
    expect(await stillwake.get(id)).toMatchObject({ waitingFor: "event", runAt: null });
    await stillwake.signal(id, "approval", { approved: "maybe" });
    await until(id, (job) => job.waitingFor === "event" && Number(job.epoch) > 1);
    expect((await logs(id)).map(({ message }) => message).join()).toContain(
      'The data of signal "approval" does not match the schema',
    );
    await stillwake.signal(id, "approval", { approved: true });
    expect(await until(id)).toMatchObject({ output: { approved: true } });
  });

  it("stores the received data: the next attempt does not wait again", async () => {
    let tries = 0;
    const { id } = await run({ until: ({ waitingFor }) => waitingFor === "event" }, async (job) => {
      const received = await job.waitFor("approval", approval);
      tries += 1;
      if (tries === 1) throw new Error("once more");
      return received;
    });
    await stillwake.signal(id, "approval", { approved: true });
    expect(await until(id)).toMatchObject({ output: { approved: true }, attempt: 2 });
  });

  it("times out by the database's clock, counted from the first wait, also in the next attempt", async () => {
    let tries = 0;
    const { id, job } = await run({ until: ({ waitingFor }) => waitingFor === "event" }, async (job) => {
      try {
        await job.waitFor("approval", approval, { timeout: "3d" });
      } catch (error) {
        if (!(error instanceof EventTimeout)) throw error;
        tries += 1;
        if (tries === 1) throw new Error("once more", { cause: error });
        throw error;
      }
    });
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

  it("can be paused, resumed and cancelled, and accepts no signal once it has ended", async () => {
    const { id } = await run({ until: ({ waitingFor }) => waitingFor === "event" }, async (job) =>
      job.waitFor("approval"),
    );
    await stillwake.pause(id, { reason: "lunch" });
    expect(await stillwake.get(id)).toMatchObject({ state: "paused", awaitedEvent: "approval" });
    await stillwake.signal(id, "approval", { fine: true });
    expect((await stillwake.get(id)).state).toBe("paused");
    await stillwake.resume(id);
    expect(await until(id)).toMatchObject({ output: { fine: true } });
    expect((await stillwake.get(id)).awaitedEvent).toBeNull();
    await expect(stillwake.signal(id, "approval")).rejects.toMatchObject({
      code: "NOT_ALLOWED",
      message: expect.stringContaining(`Job ${id} has ended (completed) and takes no signals`),
    });
    await expect(stillwake.signal("01890000-0000-7000-8000-000000000000", "approval")).rejects.toMatchObject({
      code: "JOB_NOT_FOUND",
    });
    await expect(stillwake.signal(id, "")).rejects.toMatchObject({ code: "INVALID_INPUT", field: "event" });
    await expect(stillwake.signal(id, "big", "x".repeat(300_000))).rejects.toMatchObject({ code: "INVALID_INPUT" });
  });

  it("receives a signal once if it was sent twice because its response was lost", async () => {
    const contract = pipeline(name());
    const { id } = await stillwake.enqueue(contract, {});
    const token = "3f0c1d8e-5b0f-4f8e-9d5a-111111111111";
    for (let n = 0; n < 2; n++) await query("select stillwake.signal($1, 'word', '1', null, $2)", [id, token]);
    expect(await query("select name from stillwake.signals where job_id = $1", [id])).toHaveLength(1);
  });

  it("does not lose a signal that arrives while it goes to sleep", async () => {
    const contract = pipeline(name());
    const others = Array.from({ length: 4 }, () => createStillwake({ url: database.url }));
    await start([implement(contract, (job) => job.waitFor("go", z.number()))], { slots: 10, poll: "50ms" });
    const jobs = await stillwake.enqueueMany(contract, new Array(200).fill({}));
    await Promise.all(jobs.map(({ id }, n) => others[n % 4]!.signal(id, "go", n)));
    for (const { id } of jobs) expect((await until(id)).state).toBe("completed");
    await Promise.all(others.map((job) => job.close()));
  });
});
