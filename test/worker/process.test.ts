// The worker as a user starts it: a keeper and runner processes, and what they do when one of them dies.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake, type Stillwake } from "../../src/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage } from "../support/processes/build.ts";
import { startWitness, type Witness } from "../support/processes/witness.ts";
import { startWorker } from "../support/processes/workers.ts";

const database = await freshDatabase();
let stillwake: Stillwake;
let witness: Witness;

beforeAll(async () => {
  buildPackage();
  stillwake = createStillwake({ url: database.url });
  witness = await startWitness();
});
afterAll(async () => {
  await stillwake.close();
  await witness.close();
});

describe("stillwake worker", () => {
  it("runs a job in a runner of its own and ends with 0 when it is told to", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "2"] });
    const { id } = await stillwake.enqueue("script", {
      witness: witness.url,
      steps: [{ name: "one", act: "nothing" }],
    });
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job.output).toBe("done");
    expect(witness.of(id).map(({ pid }) => pid)).not.toContain(worker.pid);
    worker.signal("SIGTERM");
    expect(await worker.ended).toBe(0);
  });

  it("goes on where it was when its runner is killed", async () => {
    const worker = await startWorker({ url: database.url, args: ["--slots", "1"] });
    const steps = [
      { name: "one", act: "nothing" },
      { name: "two", act: "gate", gate: "killed" },
    ];
    const { id } = await stillwake.enqueue("script", { witness: witness.url, steps });
    const first = await witness.see(({ job, step }) => job === id && step === "two");
    process.kill(first.pid, "SIGKILL");
    await witness.see(({ job, step, pid }) => job === id && step === "two" && pid !== first.pid);
    witness.open("killed");
    const job = await stillwake.wait(id, { timeout: "20s" });
    expect(job).toMatchObject({ state: "completed", attempt: 2, crashes: 1 });
    expect(witness.of(id).filter(({ step }) => step === "one")).toHaveLength(1);
    expect(await worker.says("runner.died")).toMatchObject({ signal: "SIGKILL", job: id });
  });
});
