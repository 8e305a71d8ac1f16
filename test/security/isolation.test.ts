// Isolation: what user code can read of its worker and of other jobs, and redaction of everything a job writes.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Job } from "../../src/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { waitForEnd } from "../support/processes/fault-checks.ts";
import { otherUserUnavailable, skipReason } from "../support/processes/other-users.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { type StartWorkerOptions, startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();
const CONFINED = path.join(ROOT, "test/fixtures/pipelines/confined.mjs");
/** nobody and nogroup. */
const NOBODY = 65534;

describe("the credentials of the worker", () => {
  it("are in no variable of runners and commands, by name or by value, and in no argument, if DATABASE_URL and PG* are withheld", async () => {
    // A password that is encoded in a URL, and one that is too short to be searched inside other values.
    const main = await login(`Kanari/en ${hex()}@%`);
    const direct = await login("kurz7");
    const encoded = encodeURIComponent(main.password);
    const canaries: Record<string, string> = {
      STILLWAKE_DATABASE_URL: main.url,
      STILLWAKE_DIRECT_URL: direct.url,
      DATABASE_URL: main.url,
      PGPASSWORD: `pg-${hex()}`,
      FLY_API_TOKEN: `fly-${hex()}`,
      STILLWAKE_STORE_ACCESS_KEY_ID: `store-${hex()}`,
      STILLWAKE_STORE_SECRET_ACCESS_KEY: `store-${hex()}`,
      STILLWAKE_STORE_SESSION_TOKEN: `store-${hex()}`,
      AWS_SECRET_ACCESS_KEY: `aws-${hex()}`,
      KUBECONFIG: `/kube-${hex()}`,
      PASSWORD_OF_ANOTHER_NAME: main.password,
      URL_OF_ANOTHER_NAME: `postgres://someone:${encoded}@elsewhere/app`,
      LIBPQ: `host=elsewhere password='${main.password}'`,
      SHORT_PASSWORD_OF_ANOTHER_NAME: direct.password,
      URL_WITH_THE_SHORT_ONE: direct.url.replace("127.0.0.1", "elsewhere"),
      COPY_OF_THE_STORE_SECRET: "",
    };
    canaries.COPY_OF_THE_STORE_SECRET = `key=${canaries.STILLWAKE_STORE_SECRET_ACCESS_KEY}`;
    const config = { env: { withhold: ["DATABASE_URL", "PG*"] } };
    const worker = await start({ config, env: { ...canaries, HARMLESS: "shown", LANG: "C.UTF-8" } });
    const seen = await look();
    expect(seen.environment.HARMLESS).toBe("shown");
    expect(Object.keys(seen.environment).filter((name) => name in canaries)).toEqual([]);

    const family = [worker.pid, ...familyOf(worker.pid)];
    expect(family).toContain(seen.pid);
    const sinks = {
      "the runner's environment": JSON.stringify([seen.environment, seen.initial]),
      "the command's environment": seen.command.environment,
      "the arguments of runner and command": JSON.stringify([seen.argv, seen.command.arguments]),
      "the arguments of all processes of the worker": family.map((pid) => readProc(pid, "cmdline")).join("\n"),
      "the environment of all but the worker itself": family
        .filter((pid) => pid !== worker.pid)
        .map((pid) => readProc(pid, "environ"))
        .join("\n"),
    };
    const values = [...Object.values(canaries), main.password, encoded, `:${direct.password}@`];
    const leaks = Object.entries(sinks).flatMap(([sink, text]) =>
      values.filter((value) => text.includes(value)).map((value) => `${value} in ${sink}`),
    );
    expect(leaks).toEqual([]);
    recordFigure(
      "canaries found in runners, commands and arguments",
      leaks.length,
      "",
      `${values.length} canaries × 5`,
    );
    // Control: the worker itself has them.
    expect(readProc(worker.pid, "environ")).toContain(encoded);
    expect(sinks["the runner's environment"]).toContain("shown");
  });

  it("are removed from the arguments of the process", async () => {
    const { url, password } = await login(`Argument ${hex()}`);
    const worker = await start({ args: ["--url", url, "--direct-url", url] });
    const { keeper } = await look();
    expect(keeper).toBeDefined();
    for (const pid of [worker.pid, ...familyOf(worker.pid)]) {
      expect(readProc(pid, "cmdline")).not.toContain(encodeURIComponent(password));
    }
  });

  it("include a different DATABASE_URL only by that name, and not the worker's login", async () => {
    const runtime = await login(`Laufzeit ${hex()}`);
    const own = `postgres://app:${hex()}@elsewhere/app`;
    const env = { STILLWAKE_DATABASE_URL: runtime.url, COPY: runtime.url, PGPASSWORD: runtime.password };
    await start({ env: { ...env, DATABASE_URL: own } });
    const seen = await look();
    // The output of a job is redacted, like everything else that it writes for people.
    expect(seen.environment.DATABASE_URL).toBe("postgres://app:***@elsewhere/app");
    expect(Object.keys(seen.environment).filter((name) => name in env)).toEqual([]);
    expect(seen.command.environment).not.toContain(own);
  });

  it("include by default the DATABASE_URL that the worker itself uses, in all its variables, and the log names the rest", async () => {
    const { url, password } = await login(`Eigene ${hex()}@%`);
    const passed = { DATABASE_URL: url, POSTGRES_URL: url, PGHOST: "db", PGPASSWORD: password };
    const withheld = { AWS_SECRET_ACCESS_KEY: `aws-${hex()}`, STILLWAKE_SECRET_X: hex(), STILLWAKE_DATABASE_URL: "" };
    const worker = await start({ env: { ...passed, ...withheld } });
    const line = await worker.waitForLine("env.withheld");
    expect(line).toMatchObject({
      names: Object.keys(withheld).sort(),
    });
    const seen = await look();
    expect(Object.keys(seen.environment)).toEqual(expect.arrayContaining(Object.keys(passed)));
    expect(Object.keys(seen.environment).filter((name) => name in withheld)).toEqual([]);
    // Commands get what job.exec passes them.
    expect(seen.command.environment).not.toContain(url);
    expect(seen.environment).toMatchObject({ PGHOST: "db", PGPASSWORD: "***" });
    const rows = (await everyRow()).join("\n");
    expect([password, encodeURIComponent(password)].filter((text) => rows.includes(text))).toEqual([]);
  });

  it("are named in the failure of a job that cannot connect without them", async () => {
    const env = { DATABASE_URL: database.url, PGHOST: "127.0.0.1" };
    await start({ env, args: ["--withhold", "DATABASE_URL,PG*"] });
    const { id } = await stillwake.enqueue("connecting", {});
    const { failure } = await waitForEnd(stillwake, id);
    expect(failure?.message).toMatch(/\S\. Pipeline code does not get DATABASE_URL, PGHOST: change env of the worker/);
  });

  it("are named in it, with DATABASE_URL as the remedy, where only the runtime has a database", async () => {
    await start({});
    const { id } = await stillwake.enqueue("connecting", {});
    const { failure } = await waitForEnd(stillwake, id);
    expect(failure?.message).toMatch(/does not get STILLWAKE_DATABASE_URL: set DATABASE_URL for it/);
  });
});

describe.skipIf(otherUserUnavailable)(`runners that run as another user${skipReason(otherUserUnavailable)}`, () => {
  it("cannot read the worker, and own only their scratch directory", async () => {
    const worker = await start({ config: { runAs: { uid: NOBODY, gid: NOBODY } }, env: { CANARY: hex() } });
    const store = path.join(worker.scratch, "artifacts");
    fs.mkdirSync(store, { recursive: true, mode: 0o700 });
    const places = [worker.scratch, path.join(worker.scratch, "owners"), path.join(worker.scratch, "jobs"), store];
    const seen = await look({ places });
    expect(seen).toMatchObject({ uid: NOBODY, gid: NOBODY });
    // No group of root is left.
    expect(seen.groups.filter((group) => group !== NOBODY)).toEqual([]);
    expect(seen.command.status).toMatch(/^Uid:\s65534\s65534\s65534\s65534$/m);
    expect(seen.command.status).toMatch(/^CapEff:\s0+$/m);
    expect(seen.keeper).toEqual({ environ: "EACCES", memory: "EACCES", files: "EACCES", kill: "EPERM" });
    expect(seen.scratch).toMatchObject({ uid: NOBODY, mode: "700", list: "EACCES" });
    expect(seen.places).toEqual(["EACCES", "EACCES", "EACCES", "EACCES"]);
  });

  it("have their scratch directory removed, and exit cleanly with their worker", async () => {
    const worker = await start({ config: { runAs: { uid: NOBODY, gid: NOBODY } } });
    const { scratch } = await look();
    await expect.poll(() => fs.existsSync(scratch.path)).toBe(false);
    worker.signal("SIGTERM");
    expect(await worker.exited).toBe(0);
  });

  // A known limitation: two runners of one worker are the same user, so code that knows the path can read it.
  it.fails("cannot read the scratch directory of another job, even when they know where it is", async () => {
    await start({ config: { runAs: { uid: NOBODY, gid: NOBODY } }, args: ["--slots", "2"] });
    const { id } = await stillwake.enqueue("keeping", { observer: observer.url, gate: "kept" });
    const report = await observer.waitForReport(({ job, step }) => job === id && step === "kept");
    const { file } = report as unknown as { file: string };
    const seen = await look({ places: [file] }).finally(() => observer.openGate("kept"));
    await stillwake.wait(id, { timeout: "20s" });
    expect(seen.places).not.toEqual(["for this job only"]);
  });
});

describe("a secret that a job has registered", () => {
  const secret = `s3cr3t/Wört+${hex()} "quoted" & more`;
  const ways = [
    "in a line, in every form",
    "in progress",
    "in what a command prints",
    "in two halves of what a command prints",
    "where a long line is truncated",
    "in the progress a command reports",
    "in the error output of a command",
    "where the error output of a command is truncated",
    "in a custom sentence for a failed command",
    "in an error",
    "where the message of an error is truncated",
    "in an uncaught error",
    "in an unhandled rejection",
    "on the console",
    "as the last output of a process",
  ];

  it("is in no table and in no log of the worker, however user code writes it", {
    timeout: 60_000,
  }, async () => {
    const worker = await start({ env: { CONFINED_SECRET: secret } });
    let hits = 0;
    for (const how of ways) {
      const from = worker.lines.length;
      const { id } = await stillwake.enqueue("blurting", { how });
      await waitForEnd(stillwake, id);
      const rows = (await everyRow()).filter((row) => row.includes(id));
      if (!how.includes("process")) expect(rows.join("\n")).toContain("ordinary words stay");
      // Output and outcome of a runner arrive separately; a later line of output shows that the earlier ones have arrived.
      if (how.includes("console")) await worker.waitForLine(({ line }) => line === "and on", { from });
      const output = worker.lines.slice(from).map((line) => JSON.stringify(line));
      const found = [...rows, ...output, worker.stderr()].filter(hasSecret);
      hits += found.length;
      expect.soft(found, how).toEqual([]);
      expect.soft([...rows, ...output].join("\n"), `${how}: it is replaced by a mask`).toContain("***");
    }
    const { id } = await stillwake.enqueue("explained", {});
    const { failure } = await waitForEnd(stillwake, id);
    expect(JSON.stringify(failure)).toContain("explained with ***");
    expect((await everyRow()).filter((row) => row.includes(id)).filter(hasSecret)).toEqual([]);
    recordFigure("places with a registered secret, real runners", hits, "", `${ways.length} ways to let it out`);
  });

  const bytes = Buffer.from(secret);
  const forms = [
    encodeURIComponent(secret),
    // Escaped once or twice: rows are read as text, and log lines of the worker are JSON.
    JSON.stringify(secret).slice(1, -1),
    JSON.stringify(JSON.stringify(secret)).slice(3, -3),
    bytes.toString("hex").toUpperCase(),
    // In the middle of base64, at any offset.
    ...[0, 1, 2].map((offset) =>
      Buffer.concat([Buffer.alloc(offset), bytes])
        .toString("base64")
        .slice(4, -4),
    ),
    // Parts of it count too.
    secret.slice(0, 10),
    bytes.toString("hex").slice(0, 20),
  ];
  const urlSafe = (text: string) => text.replaceAll("+", "-").replaceAll("/", "_");
  const hasSecret = (text: string) => forms.some((form) => text.includes(form) || text.includes(urlSafe(form)));
});

type Looked = {
  pid: number;
  uid: number;
  gid: number;
  groups: number[];
  environment: Record<string, string>;
  initial: string;
  argv: string[];
  command: { environment: string; arguments: string; status: string };
  scratch: { path: string; uid: number; gid: number; mode: string; list: unknown };
  keeper: Record<string, unknown>;
  places: unknown[];
};

async function look(input: { places?: string[] } = {}): Promise<Looked> {
  const { id } = await stillwake.enqueue("looking", input);
  const { output } = (await stillwake.wait(id, { timeout: "20s" })) as Job;
  return output as Looked;
}

/** With `config`, as stillwake.config.mjs in a separate directory. */
async function start({
  config,
  args = [],
  ...options
}: Partial<StartWorkerOptions> & { config?: object }): Promise<WorkerProcess> {
  const flags = ["--slots", "1", ...args];
  if (config) {
    const dir = temporaryDirectory("config");
    const file = path.join(dir, "stillwake.config.mjs");
    fs.writeFileSync(file, `export default ${JSON.stringify(config)};`);
    flags.push("--config", file);
  }
  return startWorker({ url: database.url, pipelines: CONFINED, args: flags, ...options });
}

/** A separate login with this password, dropped after the test. */
async function login(password: string): Promise<{ url: string; password: string }> {
  const name = `canary_${hex()}`;
  await client.query(`create role ${name} superuser login password ${client.escapeLiteral(password)}`);
  onTestFinished(async () => {
    await client.query(`drop role ${name}`);
  });
  const url = new URL(database.url);
  url.username = name;
  url.password = encodeURIComponent(password);
  return { url: url.href, password };
}

/** Every row of every Stillwake table, as text. */
async function everyRow(): Promise<string[]> {
  const tables = await client.query<{ name: string }>(
    "select oid::regclass::text as name from pg_class where relnamespace = 'stillwake'::regnamespace and relkind in ('r', 'p') and not relispartition",
  );
  const parts = tables.rows.map(({ name }) => `select '${name}: ' || t::text as row from ${name} t`);
  return (await client.query<{ row: string }>(parts.join(" union all "))).rows.map(({ row }) => row);
}

/** All descendants of this process. */
function familyOf(pid: number): number[] {
  const children = readProc(pid, `task/${pid}/children`).split(" ").filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...familyOf(child)]);
}

function readProc(pid: number, file: string): string {
  try {
    return fs.readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return "";
  }
}

function hex(): string {
  return randomBytes(6).toString("hex");
}
