// stillwake import bullmq as a process, in a project that has BullMQ 5 installed, and in one that has no BullMQ.
import fs from "node:fs";
import path from "node:path";
import { Queue } from "bullmq-5";
import { beforeAll, describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { cleanUp, temporaryDirectory } from "../support/cleanup.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { findRedis, startRedis } from "../support/database/redis.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";

const missing = findRedis();

describe.skipIf(missing !== undefined)(`stillwake import bullmq${missing === undefined ? "" : `: ${missing}`}`, () => {
  beforeAll(buildPackage);

  it("uses the BullMQ 5 of the project, and says where to run without one", async () => {
    const redis = await startRedis();
    const { database, stillwake, client } = await connectedDatabase();
    await stillwake.register(pipeline("email"));
    const queue = new Queue("email", { connection: { url: redis, maxRetriesPerRequest: null } });
    cleanUp(() => queue.close());
    await queue.add("welcome", { to: "a" });
    await queue.add("welcome", { to: "b" }, { delay: 600_000 });
    const args = ["import", "bullmq", "email", "--from", redis, "--url", database.url];

    const elsewhere = await runCli(args, {}, undefined, temporaryDirectory("without-bullmq"));
    expect(elsewhere.code).toBe(2);
    expect(elsewhere.stderr).toContain("Run the import in the project that uses BullMQ");

    const project = temporaryDirectory("bullmq");
    fs.mkdirSync(path.join(project, "node_modules"));
    fs.symlinkSync(path.join(ROOT, "node_modules/bullmq-5"), path.join(project, "node_modules/bullmq"));
    const { stdout, stderr } = await runCli(args, {}, undefined, project);
    expect(stderr).toBe("");
    expect(stdout).toContain("Moved 2 jobs.");
    const { rows } = await client.query("select input, waiting_for from stillwake.live_jobs order by run_at");
    expect(rows).toEqual([
      { input: { to: "a" }, waiting_for: null },
      { input: { to: "b" }, waiting_for: "time" },
    ]);
    expect(await queue.getJobCountByTypes("waiting", "paused", "delayed")).toBe(0);
    expect(await queue.isPaused()).toBe(false);
  });
});
