// Worker and client under Bun. In the full run Bun is installed into a temporary directory if it is missing.
import { execFile, spawnSync } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryDirectory } from "../support/cleanup.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { skipReason } from "../support/processes/other-users.ts";

const bun = findBun();
const unavailable = bun === undefined ? "bun is not installed" : "";
const run = promisify(execFile);

beforeAll(buildPackage);

describe.skipIf(unavailable)(`under Bun${skipReason(unavailable)}`, { timeout: 90_000 }, () => {
  it("a worker runs jobs in runner processes, resumes the job of one that died, and drains; a client enqueues and waits", async () => {
    const { url } = await freshDatabase();
    const { PATH = "", HOME = "" } = process.env;
    const env = { PATH, HOME, DATABASE_URL: url, STILLWAKE_DIR: temporaryDirectory("bun") };
    const worker = (flag: string) => [
      path.join(ROOT, "dist/cli/index.js"),
      "worker",
      ...["--pipelines", path.join(ROOT, "test/fixtures/pipelines/bun.mjs"), "--slots", "2", ...flag.split(" ")],
    ];
    // Registers the pipeline.
    await run(bun!, worker("--drain"), { env });
    const working = run(bun!, worker("--idle-exit 5s"), { env });
    const client = await run(bun!, [path.join(ROOT, "test/fixtures/bun-client.mjs"), url], { env });
    expect(JSON.parse(client.stdout)).toEqual([
      { runtime: "bun", said: "said", resumed: false },
      { runtime: "bun", said: "said", resumed: true },
    ]);
    const { stdout, stderr } = await working;
    expect(stderr).toBe("");
    expect(stdout).toMatch(/"event":"runner\.died".*"cause":"killed"/);
    expect(stdout).toMatch(/"event":"worker\.stopped","reason":"idle"/);
  });
});

function findBun(): string | undefined {
  if (spawnSync("bun", ["--version"]).status === 0) return "bun";
  if (!FULL) return undefined;
  const dir = temporaryDirectory("bun-package");
  const installed = spawnSync("npm", ["install", "--prefix", dir, "--no-audit", "--no-fund", "bun"]);
  return installed.status === 0 ? path.join(dir, "node_modules/.bin/bun") : undefined;
}
