// Registration of pipelines before the first worker runs, from an empty database to a job on a machine. Real processes.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { openStillwake } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { findProcesses } from "../support/providers/provider-cases.ts";

const LONG = 60_000;
const database = await freshDatabase();
const stillwake = openStillwake(database.url);
const dir = temporaryDirectory("register");
const MARK = `REGISTER_OF_TEST=${dir}`;

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
  writeConfig(
    "stillwake.config.mjs",
    `provider: local({ dir: ${JSON.stringify(path.join(dir, "machines"))} }), idleExit: "300ms"`,
  );
  writeConfig("refused.config.mjs", `provider: refusing, max: 1`);
});
afterAll(async () => {
  for (const { pid } of findProcesses(MARK)) process.kill(pid, "SIGKILL");
});

/** Writes a configuration whose pool has these options. */
function writeConfig(file: string, pool: string): void {
  fs.writeFileSync(
    path.join(dir, file),
    `import { local, ProviderError } from "${ROOT}/dist/orchestrator/index.js";
const no = async () => { throw new ProviderError("auth", "The token is refused", { certain: true }); };
const refusing = () => ({ kind: "test", facts: {}, list: no, start: no, remove: no });
export default { pipelines: "./pipelines.mjs", pools: { heavy: { ${pool} } } };
`,
  );
}

interface StartedProcess {
  child: ChildProcess;
  /** stdout and stderr. */
  output(): string;
  ended: Promise<[number | null, string | null]>;
}

function start(args: string[], env: Record<string, string> = {}): StartedProcess {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), ...args], {
    cwd: dir,
    env: { PATH, HOME, NO_COLOR: "1", REGISTER_OF_TEST: dir, STILLWAKE_DATABASE_URL: database.url, ...env },
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (text += data));
  return { child, output: () => text, ended: once(child, "close") as StartedProcess["ended"] };
}

async function run(args: string[], env?: Record<string, string>): Promise<{ code: number | null; output: string }> {
  const { output, ended } = start(args, env);
  return { code: (await ended)[0], output: output() };
}

describe("a project and an empty database", { timeout: 3 * LONG }, () => {
  it("names a configuration file that cannot be parsed", async () => {
    fs.writeFileSync(path.join(dir, "broken.config.mjs"), "export default {\n  pools: {\n};\n");
    const { code, output } = await run(["register", "--config", "broken.config.mjs"]);
    expect(output).toMatch(/^INVALID_INPUT: \S+broken\.config\.mjs cannot be parsed: .* node --check/);
    expect(code).toBe(2);
  });

  it("the orchestrator registers the pipelines at its start, and a poke starts a machine for the first job", async () => {
    const orchestrator = start(["orchestrator", "--port", "0"]);
    await waitFor(() => /registered pipelines: greet, part/.test(orchestrator.output()), {
      timeout: LONG,
      what: "the registration",
    });
    const poke = await waitFor(() => /STILLWAKE_POKE_URL=([^\s"]+)/.exec(orchestrator.output())?.[1], {
      timeout: LONG,
    });
    const enqueued = await run(["enqueue", "greet", "--wait", "--json"], { STILLWAKE_POKE_URL: poke as string });
    expect(enqueued.output).toContain('"completed"');
    expect(enqueued.code).toBe(0);
    orchestrator.child.kill("SIGTERM");
    expect(await orchestrator.ended).toEqual([0, null]);

    // Without an orchestrator and without machines, enqueue prints a warning.
    await waitFor(() => findProcesses(MARK).length === 0, { timeout: LONG, what: "everything to end" });
    const { code, output } = await run(["enqueue", "greet"]);
    expect(output).toMatch(
      /^[0-9a-f-]{36}\nPool heavy has no running machine, and the orchestrator was not notified: set STILLWAKE_POKE_URL/,
    );
    expect(code).toBe(0);
  });

  it("orchestrator --once prints the refusal of the provider in the last line and exits 1", async () => {
    const { code, output } = await run(["orchestrator", "--once", "--config", "refused.config.mjs"]);
    expect(output.trimEnd().split("\n").at(-1)).toMatch(/^heavy: 0 of 1 machine, .*; .*The token is refused/);
    expect(code).toBe(1);
  });

  it("register registers pipelines, and fails without any", async () => {
    fs.writeFileSync(
      path.join(dir, "more.mjs"),
      fs.readFileSync(path.join(dir, "pipelines.mjs"), "utf8").replaceAll('("', '("more-'),
    );
    const { code, output } = await run(["register", "--pipelines", "more.mjs"]);
    expect(output).toBe("Registered more-greet, more-part.\n");
    expect(code).toBe(0);
    expect((await stillwake.pipelines()).map(({ name }) => name)).toEqual(
      expect.arrayContaining(["more-greet", "more-part"]),
    );
    expect(await stillwake.machines()).toEqual([]);
    fs.writeFileSync(path.join(dir, "empty.config.mjs"), "export default {};\n");
    expect(await run(["register", "--config", "empty.config.mjs"])).toMatchObject({
      code: 2,
      output: expect.stringMatching(/No pipelines are configured/),
    });
  });

  it("register sets the schedules of the configuration, once, and names those that it does not have", async () => {
    const config = (schedules: string) =>
      fs.writeFileSync(
        path.join(dir, "scheduled.config.mjs"),
        `import { schedule } from ${JSON.stringify(path.join(ROOT, "dist/index.js"))};
export default { pipelines: "./pipelines.mjs", schedules: ${schedules} };\n`,
      );
    const register = () => run(["register", "--config", "scheduled.config.mjs"]);
    const nightly = `schedule("nightly", { cron: "30 2 * * *", pipeline: "greet" })`;
    config(`[${nightly}]`);
    expect(await register()).toEqual({ code: 0, output: "Registered greet, part.\nschedule nightly is set\n" });
    expect(await register()).toEqual({ code: 0, output: "Registered greet, part.\n" });
    config(`[schedule("hourly", { cron: "@hourly", pipeline: "greet" })]`);
    const { output } = await register();
    expect(output).toMatch(/schedule hourly is set\n/);
    expect(output).toMatch(/schedules that stillwake\.config does not have, and that stay: nightly\. Remove one with/);
    expect((await stillwake.schedules.list()).map(({ name }) => name)).toEqual(["hourly", "nightly"]);

    config(`[{ name: "nightly" }]`);
    expect(await register()).toMatchObject({
      code: 2,
      output: expect.stringMatching(/is not a list of schedules\. Write/),
    });
    // A worker sets them at its start.
    config(`[schedule("by-worker", { cron: "@daily", pipeline: "greet" })]`);
    const worker = await run(["worker", "--config", "scheduled.config.mjs", "--drain"]);
    expect(worker).toMatchObject({ code: 0, output: expect.stringContaining("schedule by-worker is set") });
    for (const { name } of await stillwake.schedules.list()) await stillwake.schedules.remove(name);
  });

  it("the server starts machines and registers the pipelines", async () => {
    const { child, output, ended } = start(["server", "--port", "0", "--no-auth", "--verbose"]);
    const isRegistered = () => /Starting machines as fleet[\s\S]*registered pipelines: greet, part/.test(output());
    await waitFor(isRegistered, { timeout: LONG, what: "the registration" });
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  });

  it("the orchestrator reports at once that the database is away, and a signal stops it", async () => {
    const { child, output, ended } = start(["orchestrator"], {
      STILLWAKE_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
    });
    await waitFor(() => /The database cannot be reached/.test(output()), { timeout: 20_000, what: "the report" });
    child.kill("SIGTERM");
    expect(await ended).toEqual([0, null]);
  });
});
