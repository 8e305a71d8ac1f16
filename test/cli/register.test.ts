// From an empty database to a job that is done on a machine: pipelines are known before anybody has worked, and what keeps work waiting is said. Real processes.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { processesWith } from "../support/providers/provider-cases.ts";

const LONG = 60_000;
const database = await freshDatabase();
const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-register-")));
const MARK = `REGISTER_OF_TEST=${dir}`;
const stillwake = createStillwake({ url: database.url });

beforeAll(() => {
  buildPackage();
  fs.writeFileSync(
    path.join(dir, "pipelines.mjs"),
    `import { pipeline } from "${ROOT}/dist/index.js";
import { implement } from "${ROOT}/dist/worker/index.js";
export const greet = implement(pipeline("greet", { pool: "heavy" }), async () => "done");
export const part = implement(pipeline("part"), async () => "done");
`,
  );
  write(
    "stillwake.config.mjs",
    `provider: local({ dir: ${JSON.stringify(path.join(dir, "machines"))} }), idleExit: "300ms"`,
  );
  write("refused.config.mjs", `provider: refusing, max: 1`);
});
afterAll(async () => {
  await stillwake.close();
  for (const { pid } of processesWith(MARK)) process.kill(pid, "SIGKILL");
  fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
});

/** A project whose pool has these machines. */
function write(file: string, pool: string): void {
  fs.writeFileSync(
    path.join(dir, file),
    `import { local, ProviderError } from "${ROOT}/dist/orchestrator/index.js";
const no = async () => { throw new ProviderError("auth", "The token is refused", { certain: true }); };
const refusing = () => ({ kind: "test", facts: {}, list: no, start: no, remove: no });
export default { pipelines: "./pipelines.mjs", pools: { heavy: { ${pool} } } };
`,
  );
}

interface Started {
  child: ChildProcess;
  /** What it has said, to whichever output. */
  said(): string;
  ended: Promise<[number | null, string | null]>;
}

function start(args: string[], env: Record<string, string> = {}): Started {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), ...args], {
    cwd: dir,
    env: { PATH, HOME, NO_COLOR: "1", REGISTER_OF_TEST: dir, STILLWAKE_DATABASE_URL: database.url, ...env },
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (text += data));
  return { child, said: () => text, ended: once(child, "close") as Started["ended"] };
}

async function run(args: string[], env?: Record<string, string>): Promise<{ code: number | null; said: string }> {
  const { said, ended } = start(args, env);
  return { code: (await ended)[0], said: said() };
}

describe("a project and an empty database", { timeout: 3 * LONG }, () => {
  it("says which file cannot be read", async () => {
    fs.writeFileSync(path.join(dir, "broken.config.mjs"), "export default {\n  pools: {\n};\n");
    const { code, said } = await run(["register", "--config", "broken.config.mjs"]);
    expect(said).toMatch(/^INVALID_INPUT: \S+broken\.config\.mjs cannot be read: .* node --check/);
    expect(code).toBe(2);
  });

  it("knows its pipelines once the orchestrator has started, and a poke makes a machine for the first job", async () => {
    const orchestrator = start(["orchestrator", "--port", "0"]);
    await waitFor(() => /the database knows its pipelines: greet, part/.test(orchestrator.said()), {
      timeout: LONG,
      what: "the pipelines to be known",
    });
    const poke = await waitFor(() => /STILLWAKE_POKE_URL=([^\s"]+)/.exec(orchestrator.said())?.[1], { timeout: LONG });
    const enqueued = await run(["enqueue", "greet", "--wait", "--json"], { STILLWAKE_POKE_URL: poke as string });
    expect(enqueued.said).toContain('"completed"');
    expect(enqueued.code).toBe(0);
    orchestrator.child.kill("SIGTERM");
    expect(await orchestrator.ended).toEqual([0, null]);

    // Nobody is there to be told, and none of its machines is.
    await waitFor(() => processesWith(MARK).length === 0, { timeout: LONG, what: "everything to end" });
    const { code, said } = await run(["enqueue", "greet"]);
    expect(said).toMatch(
      /^[0-9a-f-]{36}\nNo machine of pool heavy is up, and nobody was told of the job: set STILLWAKE_POKE_URL/,
    );
    expect(code).toBe(0);
  });

  it("takes one look in vain: what the provider refused is in the last line, and it exits 1", async () => {
    const { code, said } = await run(["orchestrator", "--once", "--config", "refused.config.mjs"]);
    expect(said.trimEnd().split("\n").at(-1)).toMatch(/^heavy: has 0, wants 1: .*; .*The token is refused/);
    expect(code).toBe(1);
  });

  it("can be told of them by a command, and needs some", async () => {
    fs.writeFileSync(
      path.join(dir, "more.mjs"),
      fs.readFileSync(path.join(dir, "pipelines.mjs"), "utf8").replaceAll('("', '("more-'),
    );
    const { code, said } = await run(["register", "--pipelines", "more.mjs"]);
    expect(said).toBe("The database knows more-greet, more-part.\n");
    expect(code).toBe(0);
    expect((await stillwake.pipelines()).map(({ name }) => name)).toEqual(
      expect.arrayContaining(["more-greet", "more-part"]),
    );
    expect(await stillwake.machines()).toEqual([]);
    fs.writeFileSync(path.join(dir, "empty.config.mjs"), "export default {};\n");
    expect(await run(["register", "--config", "empty.config.mjs"])).toMatchObject({
      code: 2,
      said: expect.stringMatching(/No pipelines are given/),
    });
  });

  it("has a server that says that it starts machines too", async () => {
    const { child, said, ended } = start(["server", "--port", "0", "--no-auth", "--verbose"]);
    const isKnown = () => /starts machines too[\s\S]*the database knows its pipelines: greet, part/.test(said());
    await waitFor(isKnown, { timeout: LONG, what: "what it says" });
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  });

  it("has an orchestrator that says at once that the database is away, and ends when it is told to", async () => {
    const { child, said, ended } = start(["orchestrator"], {
      STILLWAKE_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
    });
    await waitFor(() => /The database cannot be reached/.test(said()), { timeout: 20_000, what: "a word" });
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  });
});
