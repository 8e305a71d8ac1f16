// The code of docs/move, run against the real queues: the old application enqueues, the jobs are imported, the new one runs them.
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import type { Stillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { findRedis, startRedis } from "../support/database/redis.ts";
import { buildPackage } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";
import { createGuideProject } from "./guide-project.ts";

interface Guide {
  source: string;
  /** JavaScript that calls the code of the page: it enqueues a ready job and one for later. */
  before: string;
  after: string;
  /** JavaScript that starts the old worker. */
  work: string;
  /** Arguments of the import. */
  args(redis: string): string[];
  /** The schedule, imported or declared. */
  schedule: { name: string; zone: string };
}

const later = "new Date(Date.now() + 3_600_000)";
const guides: Guide[] = [
  {
    source: "pg-boss",
    before: `import { boss, remind, start } from "./before.js";
      await start(); await remind("now", 0); await remind("later", 3600); await boss.stop();`,
    work: `import { start, work } from "./before.js"; await start(); await work();`,
    after: `import { remind, start, sw } from "./after.js"; await start(); await remind("new", 0); await sw.close();`,
    args: () => [],
    schedule: { name: "send-email", zone: "Europe/Berlin" },
  },
  {
    source: "graphile-worker",
    before: `import { remind } from "./before.js"; await remind("now", new Date()); await remind("later", ${later});`,
    work: `import { work } from "./before.js"; await work();`,
    after: `import { remind, start, sw } from "./after.js"; await start(); await remind("new", new Date()); await sw.close();`,
    args: () => [],
    schedule: { name: "morning", zone: "UTC" },
  },
  {
    source: "bullmq",
    before: `import { queue, remind, start } from "./before.js";
      await start(); await remind("now", 0); await remind("later", 3600); await queue.close();`,
    work: `import { work } from "./before.js"; work();`,
    after: `import { remind, start, sw } from "./after.js"; await start(); await remind("new", 0); await sw.close();`,
    args: (redis) => ["send-email", "--from", redis],
    schedule: { name: "send-email:morning", zone: "Europe/Berlin" },
  },
];
const missing = findRedis();

describe.each(guides)("docs/move/from-$source.md", ({ source, before, after, work, args, schedule }) => {
  beforeAll(buildPackage);

  it.skipIf(source === "bullmq" && missing !== undefined)(
    "runs before and after the move",
    async () => {
      const { database, stillwake, client } = await connectedDatabase();
      const redis = source === "bullmq" ? await startRedis() : "";
      const env = { DATABASE_URL: database.url, ...(redis && { REDIS_URL: redis }) };
      const project = createGuideProject([`docs/move/from-${source}.md`]);
      const home = path.join(project.dir, `from-${source}`);
      for (const [name, code] of Object.entries({ before, after, work })) {
        fs.writeFileSync(path.join(home, `run-${name}.js`), code);
      }
      const run = (name: string) => project.start(`from-${source}/run-${name}.js`, env);
      const finish = async (name: string) => {
        const started = run(name);
        expect(await started.exited, started.output()).toBe(0);
      };

      // The old worker runs what the old application enqueued, except the job for later.
      await finish("before");
      const old = run("work");
      await waitFor(() => old.output().includes("Sending to now"));
      old.child.kill("SIGTERM");
      await old.exited;

      await finish("before");
      await finish("after");
      const cli = (...given: string[]) => runCli(given, env, undefined, home);
      const imported = await cli("import", source, ...args(redis));
      expect({ code: imported.code, stderr: imported.stderr }).toEqual({ code: 0, stderr: "" });
      expect(imported.stdout).toContain("Moved 3 jobs");
      expect(await inputs(stillwake)).toEqual(["later", "later", "new", "now"]);
      expect(await stillwake.schedules.list()).toMatchObject([{ ...schedule, cron: "0 8 * * 1-5" }]);

      const worked = await cli("worker", "--pipelines", "pipelines", "--drain");
      expect(worked.stdout + worked.stderr).toContain("Sending to now");
      const { rows } = await client.query(
        "select input ->> 'to' as to from stillwake.jobs where state = 'completed' order by 1",
      );
      expect(rows.map(({ to }) => to)).toEqual(["new", "now"]);
    },
    120_000,
  );
});

async function inputs(stillwake: Stillwake): Promise<string[]> {
  const { jobs } = await stillwake.list({ limit: 50 });
  return jobs.map(({ input }) => (input as { to: string }).to).sort();
}
