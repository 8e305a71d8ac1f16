// The commands that call the API, against a database and against a server with a token: same output, same errors.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { breaker, limit, pipeline, schedule } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { createWorker, Fatal, implement, openStore, type Worker } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { openStillwake } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { type CommandResult, runCommand, startCommand } from "../support/processes/cli-in-process.ts";

const database = await freshDatabase();
const stillwake = openStillwake(database.url);
/** Characters that a terminal interprets. */
const CONTROL = /(?!\n)\p{Cc}|\p{Cf}/u;
const secret = "a secret of at least thirty-two letters";
const store = `file:${temporaryDirectory("store")}`;
const server = createServer({ url: database.url, secret, store: openStore(store) });
const github = limit("github", { max: 100, per: "1h" });
const upstream = breaker("upstream");

const work = pipeline<{ message?: string; fail?: boolean; gate?: boolean; event?: string }>("work", {
  retry: { attempts: 1 },
  needs: [github, upstream],
});
/** No worker runs these. */
const waiting = pipeline("waiting", { pool: "unserved", retry: { attempts: 2 } });
let open = () => {};
const code = implement(work, async (job, { message, fail, gate, event }) => {
  if (event) await job.waitFor(event, undefined, { timeout: "2d" });
  job.log.info(message ?? "Nothing special");
  job.progress({ done: 1, total: 4 }, "a quarter");
  if (gate) await new Promise<void>((resolve) => (open = resolve));
  await job.step("only", { end: "Done with it" }, () => 1);
  job.progress({ done: 4, total: 4 });
  if (fail) throw new Fatal("It is broken", { code: "BROKEN" });
  return { echoed: message ?? null };
});

const child = implement(pipeline("child"), () => "done");
const parent = pipeline<{ artifact: string }>("parent");
const spawning = implement(parent, async (job, { artifact }) => {
  if (artifact) await job.artifact("a/b.txt", () => artifact);
  else await (await job.spawn(child.pipeline, [{}, {}])).done();
});

let worker: Worker;
let connections: Record<string, Record<string, string>>;
beforeAll(async () => {
  buildPackage();
  await stillwake.register(work, waiting);
  await stillwake.schedules.set(schedule("nightly", { cron: "0 3 * * *", pipeline: work, input: {} }));
  await stillwake.webhooks.set("crm", { url: "https://crm.example.com/hook" });
  worker = createWorker({
    url: database.url,
    pipelines: [code, child, spawning],
    slots: 2,
    name: "the-worker",
    webhooks: false,
    store,
  });
  await worker.start();
  const { url } = await server.listen({ port: 0 });
  const { token } = await stillwake.tokens.create({ name: "ann", role: "admin" });
  connections = {
    database: { DATABASE_URL: database.url, STILLWAKE_SECRET: secret },
    server: { STILLWAKE_SERVER: url, STILLWAKE_TOKEN: token },
  };
});
afterAll(async () => {
  await worker.stop();
  await server.close();
});

const json = ({ stdout }: CommandResult) => JSON.parse(stdout);
const ended = (id: string) =>
  waitFor(async () => /completed|failed|cancelled/.test((await stillwake.get(id)).state), { timeout: 20_000 });

describe.each(["database", "server"])("on a %s", (where) => {
  const call = (args: string[], extra: Record<string, string> = {}) =>
    runCommand(args, { ...connections[where], ...extra });

  it("enqueue prints the id, and with --follow exits with the outcome of the job", async () => {
    const plain = await call(["enqueue", "work", '{"message":"hello"}', "--key", `k-${where}`, "--tenant", "acme"]);
    expect(plain).toEqual({ code: 0, stdout: expect.stringMatching(/^[0-9a-f-]{36}\n$/), stderr: "" });
    const job = await stillwake.get(plain.stdout.trim());
    expect(job).toMatchObject({ pipeline: "work", input: { message: "hello" }, key: `k-${where}`, tenant: "acme" });

    const followed = await call(["enqueue", "work", '{"message":"watch me"}', "--follow"]);
    expect(followed.code).toBe(0);
    expect(followed.stdout).toMatch(
      /^[0-9a-f-]{36}\n[\s\S]*\d\d:\d\d:\d\d {4}watch me\n[\s\S]*✓ Done with it\n[\s\S]*completed in \S+\n\{"echoed":"watch me"\}\n$/,
    );
    // Not a terminal: no colours, no redrawn line.
    expect(followed.stdout).not.toContain("\x1b");

    const failed = await call(["enqueue", "work", '{"fail":true}', "--wait"]);
    expect(failed.code).toBe(1);
    expect(failed.stdout).toMatch(/^[0-9a-f-]{36}\nfailed in \S+: It is broken \(BROKEN\)\n$/);
    // Followed later, the output starts with the first line and not with the current state.
    const [id = ""] = failed.stdout.split("\n");
    const later = await call(["job", id, "--follow"]);
    expect(later.stdout).toMatch(/^\d\d:\d\d:\d\d {4}Nothing special\n/);
    expect(later.stdout.match(/\bfailed\b/g)).toHaveLength(1);
  });

  it("enqueue --json prints one event per line with --follow, and one document with --wait", async () => {
    const followed = await call(["enqueue", "work", '{"message":"for programs"}', "--follow", "--json"]);
    const lines = followed.stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    for (const line of lines) expect(Object.keys(line)).toEqual(["event", "id", "data"]);
    expect(lines[0]).toEqual({ event: "enqueued", id: null, data: { id: expect.any(String), existing: false } });
    expect(lines.at(-1)).toMatchObject({ event: "end", id: expect.any(String), data: { state: "completed" } });

    const waited = await call(["enqueue", "work", '{"fail":true}', "--wait", "--json"]);
    expect(waited.code).toBe(1);
    expect(json(waited)).toMatchObject({ id: expect.any(String), existing: false, state: "failed", output: null });
  });

  it("enqueue reads its input from a file, and reports a job that existed already", async () => {
    const dir = temporaryDirectory("cli-jobs");
    fs.writeFileSync(path.join(dir, "input.json"), '{"message":"from a file"}');
    const args = ["enqueue", "waiting", `@${dir}/input.json`, "--idempotency-key", `once-${where}`, "--json"];
    const first = json(
      await call([...args, "--priority", "7", "--delay", "1h", "--attempts", "5", "--pool", "default"]),
    );
    expect(await stillwake.get(first.id)).toMatchObject({
      input: { message: "from a file" },
      priority: 7,
      maxAttempts: 5,
      pool: "default",
      waitingFor: "time",
    });
    const second = await call(args);
    expect(json(second)).toEqual({ id: first.id, existing: true });
    expect(second.stderr).toBe("The job existed already.\n");
  });

  it("jobs filters and pages, as a table or as JSON", async () => {
    const tag = `tag-${where}`;
    for (let n = 0; n < 5; n++) await stillwake.enqueue(waiting, { n }, { key: `${tag}-${n}`, tenant: tag });
    const table = await call(["jobs", "--tenant", tag, "--limit", "3"]);
    const lines = table.stdout.trimEnd().split("\n");
    expect(lines[0]).toMatch(/^JOB +PIPELINE +STATE +ATTEMPT +CREATED +KEY +TENANT +NOTE$/);
    expect(lines).toHaveLength(4);
    expect(lines[1]).toMatch(new RegExp(`waiting +queued +0/2 +\\S+( ago)? +${tag}-4 +${tag} +waits for a worker`));
    const [, cursor] = /--all, or --cursor (\S+)\n$/.exec(table.stderr)!;
    const rest = json(await call(["jobs", "--tenant", tag, "--cursor", cursor!, "--json"]));
    expect(rest.jobs.map((job: { key: string }) => job.key)).toEqual([`${tag}-1`, `${tag}-0`]);
    expect(rest.cursor).toBeNull();
    expect(json(await call(["jobs", "--tenant", tag, "--all", "--json"])).jobs).toHaveLength(5);
    expect(
      json(await call(["jobs", "--text", `${tag}-2`, "--since", "2h", "--state", "queued", "--json"])).jobs,
    ).toHaveLength(1);
    expect(await call(["jobs", "--tenant", tag, "--until", "2h"])).toEqual({
      code: 0,
      stdout: "",
      stderr: "No jobs match.\n",
    });
  });

  it("job shows the state, the steps, the attempts and the lines", async () => {
    const { id } = await stillwake.enqueue(work, { message: "look at me" });
    await ended(id);
    const { stdout } = await call(["job", id, "--steps", "--attempts", "--logs", "--artifacts"]);
    expect(stdout).toMatch(/^job +[0-9a-f-]{36}$/m);
    expect(stdout).toMatch(/^state +completed$/m);
    expect(stdout).toMatch(/^ +1 +completed .* the-worker$/m);
    expect(stdout).toMatch(/^only +\S+/m);
    expect(stdout).toMatch(/^\d\d:\d\d:\d\d {4}look at me$/m);
    const all = json(await call(["job", id, "--steps", "--attempts", "--logs", "--json"]));
    expect(all).toMatchObject({ job: { id }, attempts: [{ outcome: "completed" }], steps: [{ name: "only" }] });
    expect(all.lines.map(({ message }: { message: string }) => message)).toEqual(["look at me", "Done with it"]);
    expect((await call(["job", id, "--follow"])).stdout).toMatch(/completed in \S+\n\{"echoed":"look at me"\}\n$/);
    const events = (await call(["job", id, "--follow", "--json"])).stdout.trimEnd().split("\n");
    expect(events.map((line) => JSON.parse(line).event)).toEqual(expect.arrayContaining(["state", "log", "end"]));
    expect(JSON.parse(events.at(-1)!)).toMatchObject({ event: "end", data: { state: "completed" } });
  });

  it("cancel, retry, pause, resume and signal print the new state", async () => {
    const ids = await Promise.all([1, 2, 3].map(async () => (await stillwake.enqueue(waiting, {})).id));
    expect((await call(["job", ids[0]!])).stdout).toContain("waits for a worker of pool unserved that runs waiting");
    expect((await call(["pause", ids[0]!, "--reason", "lunch"])).stdout).toBe(`${ids[0]}  paused\n`);
    expect((await call(["jobs", "--state", "paused", "--text", ids[0]!])).stdout).toContain("lunch");
    expect((await call(["resume", ids[0]!])).stdout).toBe(`${ids[0]}  queued\n`);
    expect(json(await call(["signal", ids[0]!, "approved", '{"by":"ann"}', "--json"]))).toEqual({
      id: ids[0],
      state: "queued",
      awaitedEvent: null,
    });
    expect((await call(["signal", ids[0]!, "aproval"])).stdout).toBe(
      `${ids[0]}  queued\nNo step of this job waits for "aproval" now. The signal is kept.\n`,
    );
    expect((await call(["cancel", ids[0]!, "--reason", "enough"])).stdout).toBe(`${ids[0]}  cancelled\n`);
    expect((await stillwake.get(ids[0]!)).cancel).toMatchObject({ reason: "enough" });
    // An unknown job does not prevent the others.
    const unknown = "01a1e107-2508-7182-ae66-db7bbe9aa49e";
    const many = await call(["cancel", ids[1]!, unknown, ids[2]!]);
    expect(many.code).toBe(1);
    expect(many.stdout).toBe(`${ids[1]}  cancelled\n${ids[2]}  cancelled\n`);
    expect(many.stderr).toMatch(new RegExp(`^JOB_NOT_FOUND: Job ${unknown} does not exist`));
    expect((await call(["retry", ...ids])).stdout).toBe(ids.map((id) => `${id}  queued\n`).join(""));
    expect((await call(["retry", ids[0]!, "--from-start"])).stderr).toMatch(/^NOT_ALLOWED: /);
    await call(["cancel", ...ids]);
  });

  it("jobs --parent lists the jobs that a job spawned", async () => {
    const { id } = await stillwake.enqueue(parent, { artifact: "" });
    await ended(id);
    const { jobs } = json(await call(["jobs", "--parent", id, "--json"]));
    expect(jobs).toMatchObject([{ parent: { id } }, { parent: { id } }]);
    expect(await call(["jobs", "--parent", "nothing"])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/is not a job id/),
    });
  });

  it("artifact downloads to a file and to a pipe, and not unasked to a terminal", async () => {
    const content = `\x1b[2J${where}\n`;
    const { id } = await stillwake.enqueue(parent, { artifact: content });
    await ended(id);
    const env = { STILLWAKE_STORE: store };
    expect(await call(["artifact", id, "a/b.txt"], env)).toEqual({ code: 0, stdout: content, stderr: "" });
    const file = path.join(temporaryDirectory("artifact"), "b.txt");
    const written = await call(["artifact", id, "a/b.txt", "-o", file], env);
    expect(written).toEqual({
      code: 0,
      stdout: "",
      stderr: expect.stringMatching(/^Wrote \d+ bytes to .*b\.txt\.\n$/),
    });
    expect(fs.readFileSync(file, "utf8")).toBe(content);
    const onTerminal = (args: string[]) => runCommand(args, { ...connections[where], ...env }, { columns: 80 });
    expect(await onTerminal(["artifact", id, "a/b.txt"])).toMatchObject({
      code: 2,
      stdout: "",
      stderr: expect.stringMatching(/not printed on a terminal\. Write it to a file: -o b\.txt; or print it with -o -/),
    });
    expect(await onTerminal(["artifact", id, "a/b.txt", "-o", "-"])).toMatchObject({ code: 0, stdout: content });
    expect(await call(["artifact", id, "none.txt"], env)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^ARTIFACT_MISSING: /),
    });
    expect(fs.readdirSync(path.dirname(file))).toEqual(["b.txt"]);
  });

  it("jobs, job and signal name the event that a job waits for", async () => {
    const { id } = await stillwake.enqueue(work, { event: "approval" });
    await waitFor(async () => (await stillwake.get(id)).awaitedEvent === "approval");
    expect((await call(["jobs", "--text", id])).stdout).toContain("waits for event approval");
    expect((await call(["job", id])).stdout).toContain("queued, waits for event approval");
    const { stdout } = await call(["job", id, "--steps", "--attempts"]);
    expect(stdout).toMatch(/^approval +waiting +1$/m);
    expect(stdout).toMatch(/^ +\d+ +waits for event approval /m);
    expect((await call(["signal", id, "aproval"])).stdout).toBe(
      `${id}  queued\nNo step of this job waits for "aproval" now; it waits for "approval". The signal is kept.\n`,
    );
    const following = startCommand(["job", id, "--follow"], connections.database);
    await waitFor(() => /waits for event approval until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n/.test(following.stdout()));
    expect((await call(["signal", id, "approval"])).stdout).toBe(`${id}  queued\n`);
    await stillwake.wait(id, { timeout: "20s" });
    expect((await call(["signal", id, "approval"])).stderr).toContain("has ended (completed) and takes no signals");
    const followed = await following.done;
    expect(followed.code).toBe(0);
    expect(followed.stdout).toMatch(/· waits for event approval\n/);
  });

  it("pools, limits, breakers and schedules are listed and changed", async () => {
    expect((await call(["pause", "--pool", "default", "--reason", "repairs"])).stdout).toBe(
      "Pool default is paused; running jobs finish.\n",
    );
    expect((await call(["pools"])).stdout).toMatch(/^default .*repairs$/m);
    expect((await call(["resume", "--pool", "default"])).stdout).toBe("Pool default is resumed.\n");
    expect((await call(["pools", "cap", "default", "3"])).stdout).toBe("Pool default: at most 3 concurrent jobs.\n");
    expect(json(await call(["pools", "--json"])).pools).toContainEqual(
      expect.objectContaining({ name: "default", concurrency: 3, paused: null }),
    );
    expect((await call(["pools", "cap", "default", "none"])).code).toBe(0);

    expect((await call(["limits"])).stdout).toMatch(/^github +100 per 1h +100/m);
    expect((await call(["limits", "reset", "github"])).stdout).toBe("Limit github is reset.\n");
    expect((await call(["limits", "reset", "gitlab"])).stderr).toMatch(/^UNKNOWN_LIMIT: /);

    expect((await call(["breakers", "open", "upstream", "--for", "30m", "--reason", "storm"])).code).toBe(0);
    expect((await call(["breakers"])).stdout).toMatch(/^upstream +open .*storm$/m);
    expect((await call(["breakers", "close", "upstream"])).stdout).toBe("Breaker upstream is closed.\n");
    expect((await call(["breakers"])).stdout).toMatch(/^upstream +closed/m);

    expect((await call(["schedules", "pause", "nightly"])).stdout).toBe("Schedule nightly is paused.\n");
    expect((await call(["schedules"])).stdout).toMatch(/^nightly +0 3 \* \* \* +UTC +work +paused/m);
    expect((await call(["schedules", "resume", "nightly"])).code).toBe(0);
    const { occurrences } = json(await call(["schedules", "upcoming", "nightly", "--count", "2", "--json"]));
    expect(occurrences).toHaveLength(2);
    expect((await call(["schedules", "upcoming", "nightly"])).stdout).toMatch(/T03:00.*in \d+[dhms]\n/);
    const set = [
      "schedules",
      "set",
      `gone-${where}`,
      "--cron",
      "@daily",
      "--pipeline",
      "work",
      "--input",
      '{"message":"x"}',
    ];
    expect((await call(set)).stdout).toBe(`Schedule gone-${where} is set.\n`);
    expect((await call([...set, "--overlap", "skip"])).stdout).toBe(`Schedule gone-${where} is unchanged.\n`);
    expect((await stillwake.schedules.list()).find(({ name }) => name === `gone-${where}`)).toMatchObject({
      cron: "@daily",
      zone: "UTC",
      input: { message: "x" },
    });
    expect(await call(set.slice(0, 5))).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/schedules set needs --pipeline/),
    });
    expect((await call(["schedules", "remove", `gone-${where}`])).code).toBe(0);
    expect(await call(["schedules", "remove", `gone-${where}`])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^NOT_FOUND: There is no such schedule\. List them with stillwake schedules, /),
    });
  });

  it("webhooks lists webhooks and endpoints, and resends one", async () => {
    const { id } = await stillwake.enqueue(waiting, {}, { webhook: { endpoint: "crm" } });
    await stillwake.cancel(id);
    const { webhooks } = json(await call(["webhooks", "--job", id, "--json"]));
    expect(webhooks).toMatchObject([{ jobId: id, endpoint: "crm", state: "pending" }]);
    expect((await call(["webhooks", "--job", id, "--state", "pending"])).stdout).toMatch(
      /^WEBHOOK +STATE[\s\S]*pending +0 /,
    );
    expect((await call(["webhooks", "resend", webhooks[0].id])).stdout).toMatch(/will be sent again/);
    expect((await call(["webhooks", "endpoints"])).stdout).toMatch(
      /^crm +https:\/\/crm\.example\.com\/hook +all final states/m,
    );
  });

  it("tokens creates, lists and revokes tokens; a new token is accepted by the server", async () => {
    const created = await call([
      "tokens",
      "create",
      "--name",
      `bob-${where}`,
      "--role",
      "reader",
      "--expires-in",
      "1d",
    ]);
    expect(created).toMatchObject({ code: 0, stdout: expect.stringMatching(/^swt_[\w-]{43}\n$/) });
    const bob = { ...connections.server, STILLWAKE_TOKEN: created.stdout.trim() };
    expect((await runCommand(["jobs", "--limit", "1"], bob)).code).toBe(0);
    const { tokens } = json(await call(["tokens", "--json"]));
    const { id } = tokens.find(({ name }: { name: string }) => name === `bob-${where}`);
    expect((await call(["tokens"])).stdout).toMatch(new RegExp(`^${id} +bob-${where} +reader +swt_.{4}…`, "m"));
    const limits = ["--pipeline", "scan, report", "--pool", "gpu", "--max-priority", "5"];
    expect((await call(["tokens", "create", "--name", `ci-${where}`, "--role", "operator", ...limits])).code).toBe(0);
    const limited = json(await call(["tokens", "--json"])).tokens.find(
      (token: { name: string }) => token.name === `ci-${where}`,
    );
    expect(limited).toMatchObject({ pipelines: ["report", "scan"], pools: ["gpu"], maxPriority: 5 });
    expect((await call(["tokens"])).stdout).toMatch(/operator +report, scan; in gpu; up to priority 5/);
    // A reader may not change anything.
    expect(await runCommand(["pause", "--pool", "default"], bob)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^FORBIDDEN: The role reader is not allowed to do this\. Ask an admin/),
    });
    expect((await call(["tokens", "revoke", id])).code).toBe(0);
    if (where === "server") {
      expect(await runCommand(["jobs"], bob)).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^UNAUTHORIZED: /),
      });
    }
  });

  it("read-token can read one job and nothing else", async () => {
    const { id } = await stillwake.enqueue(waiting, {});
    const { stdout } = await call(["read-token", "--job", id, "--expires-in", "5m"]);
    expect(stdout).toMatch(/^swr_/);
    const follower = { ...connections.server, STILLWAKE_TOKEN: stdout.trim() };
    expect((await runCommand(["job", id], follower)).stdout).toMatch(/^state +queued/m);
    expect((await runCommand(["cancel", id], follower)).stderr).toMatch(/^FORBIDDEN: /);
    await stillwake.cancel(id);
  });

  it("watchdog prints its actions", async () => {
    const acts = json(await call(["watchdog", "--json"]));
    expect(acts).toContainEqual({ act: "recovered", count: 0, note: expect.any(String) });
    expect((await call(["watchdog"])).stdout).toMatch(/^recovered +0 /m);
  });

  it.each([
    [
      ["job", "01a1e107-2508-7182-ae66-db7bbe9aa49e"],
      /^JOB_NOT_FOUND: Job 01a1e107\S+ does not exist\. It was never enqueued here/,
    ],
    [["job", "01a1e107-2508-7182-ae66-db7bbe9aa49e", "--follow"], /^JOB_NOT_FOUND: /],
    [
      ["enqueue", "nonsense"],
      /^UNKNOWN_PIPELINE: There is no pipeline "nonsense"\. Known pipelines: .*\bwaiting\b.*work\b.*\. Start a worker/,
    ],
    [["enqueue", "wrok"], /^UNKNOWN_PIPELINE: There is no pipeline "wrok"\. Did you mean work\? Start a worker/],
    [["pipelines", "nonsense"], /^UNKNOWN_PIPELINE: /],
    [["breakers", "close", "nonsense"], /^UNKNOWN_BREAKER: /],
    [["tokens", "revoke", "01a1e107-2508-7182-ae66-db7bbe9aa49e"], /^TOKEN_NOT_FOUND: /],
    [["stats", "--span", "10y"], /^INVALID_INPUT: /],
  ])("%j is refused with a code and a remedy, and exit code 1", async (args, error) => {
    const { code, stdout, stderr } = await call(args);
    expect(stderr).toMatch(error);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  });
});

describe("cancel of a running job", () => {
  it("prints that a cancel was requested", async () => {
    const { id } = await stillwake.enqueue(work, { gate: true });
    await waitFor(async () => (await stillwake.get(id)).state === "running", { timeout: 20_000 });
    const { stdout } = await runCommand(["cancel", id], connections.database);
    expect(stdout).toBe(`${id}  running, cancel requested\n`);
    open();
    await ended(id);
  });
});

describe("server and database", () => {
  beforeAll(async () => {
    for (const env of Object.values(connections)) {
      const { stdout } = await runCommand(["enqueue", "waiting", "--webhook", "crm"], env);
      expect((await runCommand(["cancel", stdout.trim()], env)).code).toBe(0);
    }
  });

  it.each([
    ["jobs", "--limit", "20"],
    ["pipelines"],
    ["pipelines", "work"],
    ["pools"],
    ["machines"],
    ["limits"],
    ["breakers"],
    ["schedules"],
    ["webhooks"],
    ["webhooks", "endpoints"],
    ["tokens"],
    ["audit"],
    ["stats"],
  ])("%s %s print the same text and the same JSON", async (...args) => {
    for (const form of [[], ["--json"]]) {
      const viaServer = await runCommand([...args, ...form], connections.server);
      const viaDatabase = await runCommand([...args, ...form], connections.database);
      expect(viaServer.code).toBe(0);
      expect(viaServer.stdout.length).toBeGreaterThan(10);
      expect(withoutTimes(viaDatabase)).toEqual(withoutTimes(viaServer));
    }
  });

  /** Without what changes between two calls. */
  const withoutTimes = ({ code, stdout, stderr }: CommandResult) => ({
    code,
    stdout: stdout.replaceAll(/ *\b(in )?\d+[smhd]( ago)?\b| *\bnow\b/g, " T").replaceAll(/"(at|lateMs)": .*/g, ""),
    stderr: stderr.replaceAll(/--cursor \S+/g, ""),
  });

  it("audit names the token, or local for actions directly on the database", async () => {
    const { stdout } = await runCommand(["audit", "--limit", "200"], connections.database);
    expect(stdout).toMatch(/^ *\S+( ago)? +ann +cancelJob +[0-9a-f-]{36}/m);
    expect(stdout).toMatch(/^ *\S+( ago)? +local +cancelJob +[0-9a-f-]{36}/m);
    expect(stdout).not.toMatch(/swt_[\w-]{10}/);
  });

  it("a server takes precedence over a database, a flag over both; --verbose prints the choice", async () => {
    const env = { ...connections.server, DATABASE_URL: "postgres://nobody@127.0.0.1:1/nothing" };
    const { code, stderr } = await runCommand(["jobs", "--verbose"], env as Record<string, string>);
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /Both a server and a database are configured; using the server\.\nUsing the server at http:\/\/127/,
    );
    const flag = await runCommand(["jobs", "--url", database.url, "--verbose"], {
      STILLWAKE_SERVER: "http://127.0.0.1:1",
    });
    expect(flag).toMatchObject({ code: 0, stderr: expect.stringMatching(/^Using the database directly\.\n/) });
  });

  it.each([
    ["pipelines", ".."],
    ["limits", "reset", "."],
    ["schedules", "remove", ""],
  ])("%s %s refuses a path segment as a name", async (...args) => {
    expect(await runCommand(args, connections.server)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/is neither an id nor a name/),
    });
  });

  it("prints a remedy for an unreachable server, another program, and an invalid token", async () => {
    const probe = await createServer({ url: database.url }).listen({ port: 0 });
    await probe.close();
    expect(await runCommand(["jobs", "--server", probe.url])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /^SERVER_UNAVAILABLE: http:\/\/127\.0\.0\.1:\d+ refused the connection\. Check that it is running/,
      ),
    });
    const { STILLWAKE_SERVER = "" } = connections.server!;
    const anonymous = await runCommand(["jobs", "--server", STILLWAKE_SERVER]);
    expect(anonymous.stderr).toMatch(
      /^UNAUTHORIZED: A token is required\. Set STILLWAKE_TOKEN \(.*stillwake tokens create\)\n$/,
    );
    const wrong = await runCommand(["jobs", "--server", STILLWAKE_SERVER], { STILLWAKE_TOKEN: "swt_wrong" });
    expect(wrong.stderr).toMatch(/^UNAUTHORIZED: Invalid or expired token\. Set STILLWAKE_TOKEN /);
    const closing = net.createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => closing.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void closing.close());
    const { port } = closing.address() as net.AddressInfo;
    expect((await runCommand(["jobs", "--server", `http://127.0.0.1:${port}`])).stderr).toMatch(
      new RegExp(`^SERVER_UNAVAILABLE: http://127.0.0.1:${port} closed the connection\\. `),
    );
    const elsewhere = await runCommand(["jobs", "--server", `${STILLWAKE_SERVER}/elsewhere`]);
    expect(elsewhere.stderr).toMatch(/^NOT_FOUND: /);
  });

  it("prints internal errors of a database that is used directly", async () => {
    const away = await runCommand(["jobs", "--url", "postgres://nobody:hidden@127.0.0.1:1/nothing"]);
    expect(away).toMatchObject({
      code: 1,
      stdout: "",
      stderr: expect.stringMatching(/^DATABASE_UNAVAILABLE: .*127\.0\.0\.1/),
    });
    expect(away.stderr).not.toContain("hidden");
    const short = await runCommand(["jobs"], { ...connections.database, STILLWAKE_SECRET: "too short" });
    expect(short).toMatchObject({ code: 2, stderr: expect.stringMatching(/: STILLWAKE_SECRET is shorter than 32/) });
    const elsewhere = await runCommand(["jobs", "--schema", "elsewhere"], connections.database);
    expect(elsewhere.stderr).toMatch(/^SCHEMA_MISSING: .*stillwake migrate/);
  });
});

describe("text output", () => {
  it("escapes untrusted text: no control sequence, no direction change, no forged line", async () => {
    const evil =
      "a\x1b[2J\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil\x1b\\b\rOVER\x9b31m\u202etxt\u2066x\u200b";
    const { id } = await stillwake.enqueue(
      work,
      { message: `${evil}\n12:00:00  ✓ all is well` },
      { key: evil.slice(0, 200) },
    );
    await ended(id);
    for (const [where, env] of Object.entries(connections)) {
      for (const args of [
        ["job", id],
        ["job", id, "--logs"],
        ["job", id, "--follow"],
        ["jobs", "--text", id],
      ]) {
        for (const form of [[], ["--json"]]) {
          const { stdout } = await runCommand([...args, ...form], env);
          expect(stdout, `${where} ${args}`).not.toMatch(CONTROL);
          // It cannot forge a log line.
          expect(stdout).not.toMatch(/^12:00:00 {2}✓/m);
        }
      }
    }
    const painted = await runCommand(["job", id, "--follow"], connections.database, { columns: 80 });
    // Only the colour and redraw sequences of the program itself.
    expect(stripVTControlCharacters(painted.stdout).replaceAll("\r", "")).not.toMatch(CONTROL);
    const { lines } = json(await runCommand(["job", id, "--logs", "--json"], connections.database));
    expect(lines[0].message).toBe(`${evil}\n12:00:00  ✓ all is well`);
  });

  it("has colours, a redrawn bar and fitting lines on a terminal, and none of them with NO_COLOR or in a pipe", async () => {
    const { id } = await stillwake.enqueue(work, { message: "in colour", gate: true });
    await waitFor(async () => (await stillwake.get(id)).progress !== null, { timeout: 20_000 });
    const following = startCommand(["job", id, "--follow"], connections.database, { columns: 60 });
    await waitFor(() => following.stdout().includes("25%"), { timeout: 20_000 });
    open();
    const { stdout, code } = await following.done;
    expect(code).toBe(0);
    expect(stdout).toContain("\x1b[32mcompleted");
    const rendered = stripVTControlCharacters(stdout).split(/\r|\n/);
    expect(rendered.filter((line) => [...line].length > 60)).toEqual([]);
    // The bar is gone at the end.
    expect(stdout.split("\n").some((line) => /░ \d+%/.test(line) && !line.includes("\x1b[2K"))).toBe(false);

    const plain = await runCommand(
      ["job", id, "--follow"],
      { ...connections.database, NO_COLOR: "1" },
      { columns: 60 },
    );
    expect(plain.stdout).toContain("completed");
    expect(plain.stdout).not.toContain("\x1b");

    const table = await runCommand(["jobs", "--limit", "20"], connections.database, { columns: 100 });
    const rows = table.stdout.trimEnd().split("\n").map(stripVTControlCharacters);
    expect(rows.length).toBeGreaterThan(5);
    expect(rows.filter((line) => [...line].length > 100)).toEqual([]);
    expect(rows.some((line) => line.includes("…"))).toBe(true);
  });

  it.each([
    ["jobs", /^[0-9a-f-]{36}( |$)/],
    ["tokens", /^[0-9a-f-]{36}( |$)/],
    ["webhooks", /^msg_[0-9a-f]{32}( |$)/],
  ])("%s never truncates an id, however narrow the terminal is", async (noun, id) => {
    for (const columns of [38, 60, 80, 100, 200]) {
      const { stdout } = await runCommand([noun], { ...connections.database, NO_COLOR: "1" }, { columns });
      const lines = stdout.trimEnd().split("\n");
      expect(lines.length).toBeGreaterThan(1);
      for (const line of lines.slice(1)) expect(line).toMatch(id);
      expect(lines.filter((line) => [...line].length > columns)).toEqual([]);
      // A column that may not be truncated is dropped instead.
      expect(stdout).not.toMatch(/\b[0-9a-f]{8}-[0-9a-f-]*…/);
    }
  });

  it("in a pipe nothing is truncated", async () => {
    const reason = "because of a reason that is much longer than a terminal is wide, ".repeat(4).trim();
    await runCommand(["pause", "--pool", "unserved", "--reason", reason], connections.database);
    await runCommand(["resume", "--pool", "unserved"], connections.database);
    const { stdout } = await runCommand(["audit", "--target", "unserved"], connections.database);
    expect(stdout).toContain(reason);
    expect(stdout).not.toContain("…");
  });
});

describe("as a process", () => {
  const start = (args: string[], env = connections.database!) => {
    const { PATH = "", HOME = "" } = process.env;
    const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), ...args], {
      env: { PATH, HOME, ...env },
    });
    const output = { stdout: "", stderr: "" };
    child.stdout.on("data", (data) => (output.stdout += data));
    child.stderr.on("data", (data) => (output.stderr += data));
    return { child, output, closed: once(child, "close") };
  };

  it("Ctrl-C while following exits 130 without a stack, and does not stop the job", async () => {
    const { id } = await stillwake.enqueue(waiting, {});
    const { child, output, closed } = start(["job", id, "--follow"]);
    await waitFor(() => output.stdout.includes("queued"), { timeout: 20_000 });
    child.kill("SIGINT");
    expect(await closed).toEqual([130, null]);
    expect(output.stderr).toBe("");
    expect((await stillwake.get(id)).state).toBe("queued");
    await stillwake.cancel(id);
  });

  it("exits 0 when the reader of the pipe has exited", async () => {
    const { child, output, closed } = start(["jobs", "--all", "--json"]);
    child.stdout.destroy();
    const [code] = await closed;
    expect(output.stderr).toBe("");
    expect(code).toBe(0);
  });

  it("server prints its URL in one line, responds, and exits 0 on SIGTERM", async () => {
    const { child, output, closed } = start(["server", "--port", "0", "--origin", "https://app.example.com"]);
    const [, url] = await waitFor(() => /^Stillwake serves (http:\/\/127\.0\.0\.1:\d+)\n$/.exec(output.stdout), {
      timeout: 20_000,
    });
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect((await fetch(`${url}/v1/jobs`)).status).toBe(401);
    const { stdout } = await runCommand(["jobs", "--limit", "1", "--json"], {
      ...connections.server,
      STILLWAKE_SERVER: url!,
    });
    expect(JSON.parse(stdout).jobs).toHaveLength(1);
    child.kill("SIGTERM");
    expect(await closed).toEqual([0, null]);
    expect(output.stderr).toBe("");
  });

  it("server reports a database without tables, and each internal error in one line", async () => {
    const env = { DATABASE_URL: database.url, STILLWAKE_SCHEMA: "elsewhere" };
    const { child, output, closed } = start(["server", "--port", "0", "--no-auth"], env);
    const [, url] = await waitFor(() => /^Stillwake serves (\S+),/.exec(output.stdout), { timeout: 20_000 });
    await waitFor(() => output.stderr.includes("SCHEMA_MISSING"), { timeout: 20_000 });
    expect(output.stderr).toMatch(/^STILLWAKE_SECRET is not set: .*\nSCHEMA_MISSING: .*stillwake migrate.*\n$/);
    const before = output.stderr.length;
    expect((await fetch(`${url}/v1/jobs`)).status).toBe(503);
    await waitFor(() => output.stderr.length > before, { timeout: 20_000 });
    expect(output.stderr.slice(before)).toMatch(/^SCHEMA_MISSING: .* \(GET \/v1\/jobs\)\n$/);
    child.kill("SIGTERM");
    expect(await closed).toEqual([0, null]);
  });

  it("a follower reconnects after the server was away, and misses no line", async () => {
    const first = createServer({ url: database.url });
    const listening = await first.listen({ port: 0, graceMs: 100 });
    const { id } = await stillwake.enqueue(work, { message: "before", gate: true });
    await waitFor(async () => (await stillwake.logs(id)).length > 0, { timeout: 20_000 });
    const env = { ...connections.server, STILLWAKE_SERVER: listening.url };
    const following = startCommand(["job", id, "--follow"], env);
    await waitFor(() => following.stdout().includes("before"), { timeout: 20_000 });
    await first.close();
    const second = createServer({ url: database.url });
    onTestFinished(() => second.close());
    await second.listen({ port: listening.port });
    open();
    const { code, stdout } = await following.done;
    expect(code).toBe(0);
    expect(stdout.match(/^\d\d:\d\d:\d\d {4}before$/gm)).toHaveLength(1);
    expect(stdout).toMatch(/✓ Done with it\n[\s\S]*completed in/);
  });
});
