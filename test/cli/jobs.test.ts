// The commands that read and steer, against a database and against a server with a token: the same words, the same answers, the same refusals.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { breaker, createStillwake, limit, pipeline, schedule } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { createWorker, Fatal, implement, type Worker } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { type Called, command, startCommand } from "../support/processes/cli-in-process.ts";

const database = await freshDatabase();
/** What a terminal might obey. */
const ACTIVE = /(?!\n)\p{Cc}|\p{Cf}/u;
const secret = "a secret of at least thirty-two letters";
const stillwake = createStillwake({ url: database.url });
const server = createServer({ url: database.url, secret });
const github = limit("github", { max: 100, per: "1h" });
const upstream = breaker("upstream");

const work = pipeline<{ say?: string; fail?: boolean; gate?: boolean }>("work", {
  retry: { attempts: 1 },
  needs: [github, upstream],
});
/** Nobody runs these. */
const waiting = pipeline("waiting", { pool: "nobody", retry: { attempts: 2 } });
let open = () => {};
const code = implement(work, async (job, { say, fail, gate }) => {
  job.log.info(say ?? "Nothing special");
  job.progress({ done: 1, total: 4 }, "a quarter");
  if (gate) await new Promise<void>((resolve) => (open = resolve));
  await job.step("only", { end: "Done with it" }, () => 1);
  job.progress({ done: 4, total: 4 });
  if (fail) throw new Fatal("It is broken", { code: "BROKEN" });
  return { said: say ?? null };
});

let worker: Worker;
let doors: Record<string, Record<string, string>>;
beforeAll(async () => {
  buildPackage();
  await stillwake.register(work, waiting);
  await stillwake.schedules.set(schedule("nightly", { cron: "0 3 * * *", pipeline: work, input: {} }));
  await stillwake.webhooks.set("crm", { url: "https://crm.example.com/hook" });
  worker = createWorker({ url: database.url, pipelines: [code], slots: 2, name: "the-worker", webhooks: false });
  await worker.start();
  const { url } = await server.listen({ port: 0 });
  const { token } = await stillwake.tokens.create({ name: "ann", role: "admin" });
  doors = {
    database: { DATABASE_URL: database.url, STILLWAKE_SECRET: secret },
    server: { STILLWAKE_SERVER: url, STILLWAKE_TOKEN: token },
  };
});
afterAll(async () => {
  await worker.stop();
  await server.close();
  await stillwake.close();
});

const json = ({ stdout }: Called) => JSON.parse(stdout);
const ended = (id: string) =>
  waitFor(async () => /completed|failed|cancelled/.test((await stillwake.get(id)).state), { timeout: 20_000 });

describe.each(["database", "server"])("on a %s", (where) => {
  const call = (args: string[], extra: Record<string, string> = {}) => command(args, { ...doors[where], ...extra });

  it("enqueue prints the id, and follows to the end with the exit code of it", async () => {
    const plain = await call(["enqueue", "work", '{"say":"hello"}', "--key", `k-${where}`, "--tenant", "acme"]);
    expect(plain).toEqual({ code: 0, stdout: expect.stringMatching(/^[0-9a-f-]{36}\n$/), stderr: "" });
    const job = await stillwake.get(plain.stdout.trim());
    expect(job).toMatchObject({ pipeline: "work", input: { say: "hello" }, key: `k-${where}`, tenant: "acme" });

    const followed = await call(["enqueue", "work", '{"say":"watch me"}', "--follow"]);
    expect(followed.code).toBe(0);
    expect(followed.stdout).toMatch(
      /^[0-9a-f-]{36}\n[\s\S]*\d\d:\d\d:\d\d {4}watch me\n[\s\S]*✓ Done with it\n[\s\S]*completed in \S+\n\{"said":"watch me"\}\n$/,
    );
    // Nobody looks on: nothing is redrawn, nothing is painted.
    expect(followed.stdout).not.toContain("\x1b");

    const failed = await call(["enqueue", "work", '{"fail":true}', "--wait"]);
    expect(failed.code).toBe(1);
    expect(failed.stdout).toMatch(/^[0-9a-f-]{36}\nfailed in \S+: It is broken \(BROKEN\)\n$/);
    // Looked at later, it begins with what happened then and not with how it stands now.
    const [id = ""] = failed.stdout.split("\n");
    const later = await call(["job", id, "--follow"]);
    expect(later.stdout).toMatch(/^\d\d:\d\d:\d\d {4}Nothing special\n/);
    expect(later.stdout.match(/\bfailed\b/g)).toHaveLength(1);
  });

  it("enqueue tells programs each event on a line, and one document to who only waits", async () => {
    const followed = await call(["enqueue", "work", '{"say":"for programs"}', "--follow", "--json"]);
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

  it("enqueue takes its input from a file, and says when the job was there before", async () => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-cli-jobs-"));
    onTestFinished(() => fs.rmSync(dir, { recursive: true }));
    fs.writeFileSync(path.join(dir, "input.json"), '{"say":"from a file"}');
    const args = ["enqueue", "waiting", `@${dir}/input.json`, "--idempotency-key", `once-${where}`, "--json"];
    const first = json(
      await call([...args, "--priority", "7", "--delay", "1h", "--attempts", "5", "--pool", "default"]),
    );
    expect(await stillwake.get(first.id)).toMatchObject({
      input: { say: "from a file" },
      priority: 7,
      maxAttempts: 5,
      pool: "default",
      waitingFor: "time",
    });
    const second = await call(args);
    expect(json(second)).toEqual({ id: first.id, existing: true });
    expect(second.stderr).toBe("It was there before.\n");
  });

  it("jobs finds what was asked for, page by page, in a table or as the API says it", async () => {
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
      stderr: "There are no such jobs.\n",
    });
  });

  it("job shows where one stands and what it did", async () => {
    const { id } = await stillwake.enqueue(work, { say: "look at me" });
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
    expect((await call(["job", id, "--follow"])).stdout).toMatch(/completed in \S+\n\{"said":"look at me"\}\n$/);
    const events = (await call(["job", id, "--follow", "--json"])).stdout.trimEnd().split("\n");
    expect(events.map((line) => JSON.parse(line).event)).toEqual(expect.arrayContaining(["state", "log", "end"]));
    expect(JSON.parse(events.at(-1)!)).toMatchObject({ event: "end", data: { state: "completed" } });
  });

  it("cancel, retry, pause, resume and signal do it and say the state", async () => {
    const ids = await Promise.all([1, 2, 3].map(async () => (await stillwake.enqueue(waiting, {})).id));
    expect((await call(["pause", ids[0]!, "--reason", "lunch"])).stdout).toBe(`${ids[0]}  paused\n`);
    expect((await call(["jobs", "--state", "paused", "--text", ids[0]!])).stdout).toContain("lunch");
    expect((await call(["resume", ids[0]!])).stdout).toBe(`${ids[0]}  queued\n`);
    expect(json(await call(["signal", ids[0]!, "approved", '{"by":"ann"}', "--json"]))).toEqual({
      id: ids[0],
      state: "queued",
    });
    expect((await call(["cancel", ids[0]!, "--reason", "enough"])).stdout).toBe(`${ids[0]}  cancelled\n`);
    expect((await stillwake.get(ids[0]!)).cancel).toMatchObject({ reason: "enough" });
    // One that cannot be does not keep the others from it.
    const nobody = "01a1e107-2508-7182-ae66-db7bbe9aa49e";
    const many = await call(["cancel", ids[1]!, nobody, ids[2]!]);
    expect(many.code).toBe(1);
    expect(many.stdout).toBe(`${ids[1]}  cancelled\n${ids[2]}  cancelled\n`);
    expect(many.stderr).toMatch(new RegExp(`^JOB_NOT_FOUND: Job ${nobody} does not exist`));
    expect((await call(["retry", ...ids])).stdout).toBe(ids.map((id) => `${id}  queued\n`).join(""));
    expect((await call(["retry", ids[0]!, "--from-start"])).stderr).toMatch(/^NOT_ALLOWED: /);
    await call(["cancel", ...ids]);
  });

  it("pools, limits, breakers and schedules are seen and steered", async () => {
    expect((await call(["pause", "--pool", "default", "--reason", "repairs"])).stdout).toBe(
      "Pool default is paused; what runs goes on.\n",
    );
    expect((await call(["pools"])).stdout).toMatch(/^default .*repairs$/m);
    expect((await call(["resume", "--pool", "default"])).stdout).toBe("Pool default is open.\n");
    expect((await call(["pools", "cap", "default", "3"])).stdout).toBe("Pool default: at most 3 jobs at once.\n");
    expect(json(await call(["pools", "--json"])).pools).toContainEqual(
      expect.objectContaining({ name: "default", concurrency: 3, paused: null }),
    );
    expect((await call(["pools", "cap", "default", "none"])).code).toBe(0);

    expect((await call(["limits"])).stdout).toMatch(/^github +100 per 1h +100/m);
    expect((await call(["limits", "reset", "github"])).stdout).toBe("Limit github has forgotten what it learned.\n");
    expect((await call(["limits", "reset", "gitlab"])).stderr).toMatch(/^UNKNOWN_LIMIT: /);

    expect((await call(["breakers", "open", "upstream", "--for", "30m", "--reason", "storm"])).code).toBe(0);
    expect((await call(["breakers"])).stdout).toMatch(/^upstream +open .*storm$/m);
    expect((await call(["breakers", "close", "upstream"])).stdout).toBe("Breaker upstream is closed.\n");
    expect((await call(["breakers"])).stdout).toMatch(/^upstream +closed/m);

    expect((await call(["schedules", "pause", "nightly"])).stdout).toBe("Schedule nightly is paused.\n");
    expect((await call(["schedules"])).stdout).toMatch(/^nightly +0 3 \* \* \* +UTC +work +paused/m);
    expect((await call(["schedules", "resume", "nightly"])).code).toBe(0);
    const { slots } = json(await call(["schedules", "upcoming", "nightly", "--count", "2", "--json"]));
    expect(slots).toHaveLength(2);
    expect((await call(["schedules", "upcoming", "nightly"])).stdout).toMatch(/T03:00.*in \d+[dhms]\n/);
    await stillwake.schedules.set(schedule(`gone-${where}`, { cron: "@daily", pipeline: work, input: {} }));
    expect((await call(["schedules", "remove", `gone-${where}`])).code).toBe(0);
    expect(await call(["schedules", "remove", `gone-${where}`])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^NOT_FOUND: There is no such schedule\. /),
    });
  });

  it("webhooks lists what was told and to whom, and sends one again", async () => {
    const { id } = await stillwake.enqueue(waiting, {}, { webhook: { endpoint: "crm" } });
    await stillwake.cancel(id);
    const { webhooks } = json(await call(["webhooks", "--job", id, "--json"]));
    expect(webhooks).toMatchObject([{ jobId: id, endpoint: "crm", state: "pending" }]);
    expect((await call(["webhooks", "--job", id, "--state", "pending"])).stdout).toMatch(
      /^WEBHOOK +STATE[\s\S]*pending +0 /,
    );
    expect((await call(["webhooks", "resend", webhooks[0].id])).stdout).toMatch(/will be sent again/);
    expect((await call(["webhooks", "endpoints"])).stdout).toMatch(
      /^crm +https:\/\/crm\.example\.com\/hook +every end/m,
    );
  });

  it("tokens are made, listed and revoked; the word is shown once and opens the server", async () => {
    const made = await call(["tokens", "create", "--name", `bob-${where}`, "--role", "reader", "--expires-in", "1d"]);
    expect(made).toMatchObject({ code: 0, stdout: expect.stringMatching(/^swt_[\w-]{43}\n$/) });
    const bob = { ...doors.server, STILLWAKE_TOKEN: made.stdout.trim() };
    expect((await command(["jobs", "--limit", "1"], bob)).code).toBe(0);
    const { tokens } = json(await call(["tokens", "--json"]));
    const { id } = tokens.find(({ name }: { name: string }) => name === `bob-${where}`);
    expect((await call(["tokens"])).stdout).toMatch(new RegExp(`^${id} +bob-${where} +reader +swt_.{4}…`, "m"));
    // A reader steers nothing.
    expect(await command(["pause", "--pool", "default"], bob)).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^FORBIDDEN: A token of role reader may not do this\. Ask an admin/),
    });
    expect((await call(["tokens", "revoke", id])).code).toBe(0);
    if (where === "server") {
      expect(await command(["jobs"], bob)).toMatchObject({ code: 1, stderr: expect.stringMatching(/^UNAUTHORIZED: /) });
    }
  });

  it("read-token opens one job and nothing else", async () => {
    const { id } = await stillwake.enqueue(waiting, {});
    const { stdout } = await call(["read-token", "--job", id, "--expires-in", "5m"]);
    expect(stdout).toMatch(/^swr_/);
    const follower = { ...doors.server, STILLWAKE_TOKEN: stdout.trim() };
    expect((await command(["job", id], follower)).stdout).toMatch(/^state +queued/m);
    expect((await command(["cancel", id], follower)).stderr).toMatch(/^FORBIDDEN: /);
    await stillwake.cancel(id);
  });

  it("watchdog does its round", async () => {
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
    [["enqueue", "nonsense"], /^UNKNOWN_PIPELINE: There is no pipeline "nonsense"/],
    [["pipelines", "nonsense"], /^UNKNOWN_PIPELINE: /],
    [["breakers", "close", "nonsense"], /^UNKNOWN_BREAKER: /],
    [["tokens", "revoke", "01a1e107-2508-7182-ae66-db7bbe9aa49e"], /^TOKEN_NOT_FOUND: /],
    [["stats", "--span", "10y"], /^INVALID_INPUT: /],
  ])("%j is refused with a code and a remedy, and exit code 1", async (args, says) => {
    const { code, stdout, stderr } = await call(args);
    expect(stderr).toMatch(says);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  });
});

describe("cancel of a job that runs", () => {
  it("says that it was asked to stop", async () => {
    const { id } = await stillwake.enqueue(work, { gate: true });
    await waitFor(async () => (await stillwake.get(id)).state === "running", { timeout: 20_000 });
    const { stdout } = await command(["cancel", id], doors.database);
    expect(stdout).toBe(`${id}  running, was asked to stop\n`);
    open();
    await ended(id);
  });
});

describe("both ways", () => {
  beforeAll(async () => {
    for (const env of Object.values(doors)) {
      const { stdout } = await command(["enqueue", "waiting", "--webhook", "crm"], env);
      expect((await command(["cancel", stdout.trim()], env)).code).toBe(0);
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
  ])("%s %s says the same to people and to programs", async (...args) => {
    for (const form of [[], ["--json"]]) {
      const viaServer = await command([...args, ...form], doors.server);
      const viaDatabase = await command([...args, ...form], doors.database);
      expect(viaServer.code).toBe(0);
      expect(viaServer.stdout.length).toBeGreaterThan(10);
      expect(steady(viaDatabase)).toEqual(steady(viaServer));
    }
  });

  /** What moves by itself between two looks. */
  const steady = ({ code, stdout, stderr }: Called) => ({
    code,
    stdout: stdout.replaceAll(/ *\b(in )?\d+[smhd]( ago)?\b| *\bnow\b/g, " T").replaceAll(/"(at|lateMs)": .*/g, ""),
    stderr: stderr.replaceAll(/--cursor \S+/g, ""),
  });

  it("audit tells who it was: by a token its name, on the database itself nobody in particular", async () => {
    const { stdout } = await command(["audit", "--limit", "200"], doors.database);
    expect(stdout).toMatch(/^ *\S+( ago)? +ann +cancelJob +[0-9a-f-]{36}/m);
    expect(stdout).toMatch(/^ *\S+( ago)? +local +cancelJob +[0-9a-f-]{36}/m);
    expect(stdout).not.toMatch(/swt_[\w-]{10}/);
  });

  it("the server goes before the database, a flag before both, and --verbose says which", async () => {
    const env = { ...doors.server, DATABASE_URL: "postgres://nobody@127.0.0.1:1/nothing" };
    const { code, stderr } = await command(["jobs", "--verbose"], env as Record<string, string>);
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /Both a server and a database are named; the server is asked\.\nAsking the server at http:\/\/127/,
    );
    const flag = await command(["jobs", "--url", database.url, "--verbose"], {
      STILLWAKE_SERVER: "http://127.0.0.1:1",
    });
    expect(flag).toMatchObject({ code: 0, stderr: expect.stringMatching(/^Asking the database itself\.\n/) });
  });

  it.each([
    ["pipelines", ".."],
    ["limits", "reset", "."],
    ["schedules", "remove", ""],
  ])("%s %s takes no step in a path for a name", async (...args) => {
    expect(await command(args, doors.server)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/is neither an id nor a name/),
    });
  });

  it("says what to do about a server that is not there, that is another, or that knows no such token", async () => {
    const probe = await createServer({ url: database.url }).listen({ port: 0 });
    await probe.close();
    expect(await command(["jobs", "--server", probe.url])).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /^SERVER_UNAVAILABLE: The connection was refused by http:\/\/127\.0\.0\.1:\d+\. Check that it is running/,
      ),
    });
    const { STILLWAKE_SERVER = "" } = doors.server!;
    const stranger = await command(["jobs", "--server", STILLWAKE_SERVER]);
    expect(stranger.stderr).toMatch(
      /^UNAUTHORIZED: This needs a token\. Set STILLWAKE_TOKEN \(.*stillwake tokens create\)\n$/,
    );
    const wrong = await command(["jobs", "--server", STILLWAKE_SERVER], { STILLWAKE_TOKEN: "swt_wrong" });
    expect(wrong.stderr).toMatch(/^UNAUTHORIZED: The token opens nothing\. Set STILLWAKE_TOKEN /);
    const rude = net.createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => rude.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void rude.close());
    const { port } = rude.address() as net.AddressInfo;
    expect((await command(["jobs", "--server", `http://127.0.0.1:${port}`])).stderr).toMatch(
      new RegExp(`^SERVER_UNAVAILABLE: The connection was closed by http://127.0.0.1:${port}\\. `),
    );
    const lost = await command(["jobs", "--server", `${STILLWAKE_SERVER}/elsewhere`]);
    expect(lost.stderr).toMatch(/^NOT_FOUND: /);
  });

  it("says what is wrong with a database inside, where nobody is a stranger", async () => {
    const away = await command(["jobs", "--url", "postgres://nobody:hidden@127.0.0.1:1/nothing"]);
    expect(away).toMatchObject({
      code: 1,
      stdout: "",
      stderr: expect.stringMatching(/^DATABASE_UNAVAILABLE: .*127\.0\.0\.1/),
    });
    expect(away.stderr).not.toContain("hidden");
    const short = await command(["jobs"], { ...doors.database, STILLWAKE_SECRET: "too short" });
    expect(short).toMatchObject({ code: 2, stderr: expect.stringMatching(/: STILLWAKE_SECRET is shorter than 32/) });
    const elsewhere = await command(["jobs", "--schema", "elsewhere"], doors.database);
    expect(elsewhere.stderr).toMatch(/^SCHEMA_MISSING: .*stillwake migrate/);
  });
});

describe("for people", () => {
  it("T58: what strangers wrote reaches the terminal as text: no sequence, no direction, no forged line", async () => {
    const evil =
      "a\x1b[2J\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil\x1b\\b\rOVER\x9b31m\u202etxt\u2066x\u200b";
    const { id } = await stillwake.enqueue(
      work,
      { say: `${evil}\n12:00:00  ✓ all is well` },
      { key: evil.slice(0, 200) },
    );
    await ended(id);
    for (const [where, env] of Object.entries(doors)) {
      for (const args of [
        ["job", id],
        ["job", id, "--logs"],
        ["job", id, "--follow"],
        ["jobs", "--text", id],
      ]) {
        for (const form of [[], ["--json"]]) {
          const { stdout } = await command([...args, ...form], env);
          expect(stdout, `${where} ${args}`).not.toMatch(ACTIVE);
          // It does not look like a line of ours.
          expect(stdout).not.toMatch(/^12:00:00 {2}✓/m);
        }
      }
    }
    const painted = await command(["job", id, "--follow"], doors.database, { columns: 80 });
    // Of our own sequences only those that paint and redraw.
    expect(stripVTControlCharacters(painted.stdout).replaceAll("\r", "")).not.toMatch(ACTIVE);
    const { lines } = json(await command(["job", id, "--logs", "--json"], doors.database));
    expect(lines[0].message).toBe(`${evil}\n12:00:00  ✓ all is well`);
  });

  it("a terminal gets colours, a bar that is redrawn, and lines that fit; NO_COLOR and pipes get neither", async () => {
    const { id } = await stillwake.enqueue(work, { say: "in colour", gate: true });
    await waitFor(async () => (await stillwake.get(id)).progress !== null, { timeout: 20_000 });
    const following = startCommand(["job", id, "--follow"], doors.database, { columns: 60 });
    await waitFor(() => following.stdout().includes("25%"), { timeout: 20_000 });
    open();
    const { stdout, code } = await following.done;
    expect(code).toBe(0);
    expect(stdout).toContain("\x1b[32mcompleted");
    const drawn = stripVTControlCharacters(stdout).split(/\r|\n/);
    expect(drawn.filter((line) => [...line].length > 60)).toEqual([]);
    // The bar is gone at the end.
    expect(stdout.split("\n").some((line) => /░ \d+%/.test(line) && !line.includes("\x1b[2K"))).toBe(false);

    const plain = await command(["job", id, "--follow"], { ...doors.database, NO_COLOR: "1" }, { columns: 60 });
    expect(plain.stdout).toContain("completed");
    expect(plain.stdout).not.toContain("\x1b");

    const table = await command(["jobs", "--limit", "20"], doors.database, { columns: 100 });
    const rows = table.stdout.trimEnd().split("\n").map(stripVTControlCharacters);
    expect(rows.length).toBeGreaterThan(5);
    expect(rows.filter((line) => [...line].length > 100)).toEqual([]);
    expect(rows.some((line) => line.includes("…"))).toBe(true);
  });

  it.each([
    ["jobs", /^[0-9a-f-]{36}( |$)/],
    ["tokens", /^[0-9a-f-]{36}( |$)/],
    ["webhooks", /^msg_[0-9a-f]{32}( |$)/],
  ])("%s shows every id whole, however narrow the terminal is", async (noun, id) => {
    for (const columns of [38, 60, 80, 100, 200]) {
      const { stdout } = await command([noun], { ...doors.database, NO_COLOR: "1" }, { columns });
      const lines = stdout.trimEnd().split("\n");
      expect(lines.length).toBeGreaterThan(1);
      for (const line of lines.slice(1)) expect(line).toMatch(id);
      expect(lines.filter((line) => [...line].length > columns)).toEqual([]);
      // What is named and may not be cut is there whole.
      expect(stdout).not.toMatch(/\b[0-9a-f]{8}-[0-9a-f-]*…/);
    }
  });

  it("in a pipe nothing is cut", async () => {
    const reason = "because of a reason that is much longer than a terminal is wide, ".repeat(4).trim();
    await command(["pause", "--pool", "nobody", "--reason", reason], doors.database);
    await command(["resume", "--pool", "nobody"], doors.database);
    const { stdout } = await command(["audit", "--target", "nobody"], doors.database);
    expect(stdout).toContain(reason);
    expect(stdout).not.toContain("…");
  });
});

describe("as a process", () => {
  const start = (args: string[], env = doors.database!) => {
    const { PATH = "", HOME = "" } = process.env;
    const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), ...args], {
      env: { PATH, HOME, ...env },
    });
    const said = { stdout: "", stderr: "" };
    child.stdout.on("data", (data) => (said.stdout += data));
    child.stderr.on("data", (data) => (said.stderr += data));
    return { child, said, closed: once(child, "close") };
  };

  it("Ctrl-C leaves a job alone that was followed, with 130 and without a stack", async () => {
    const { id } = await stillwake.enqueue(waiting, {});
    const { child, said, closed } = start(["job", id, "--follow"]);
    await waitFor(() => said.stdout.includes("queued"), { timeout: 20_000 });
    child.kill("SIGINT");
    expect(await closed).toEqual([130, null]);
    expect(said.stderr).toBe("");
    expect((await stillwake.get(id)).state).toBe("queued");
    await stillwake.cancel(id);
  });

  it("who reads no further is not troubled", async () => {
    const { child, said, closed } = start(["jobs", "--all", "--json"]);
    child.stdout.destroy();
    const [code] = await closed;
    expect(said.stderr).toBe("");
    expect(code).toBe(0);
  });

  it("server says where it is in one line, answers, and ends with 0 when it is told to", async () => {
    const { child, said, closed } = start(["server", "--port", "0", "--origin", "https://app.example.com"]);
    const [, url] = await waitFor(() => /^Stillwake serves (http:\/\/127\.0\.0\.1:\d+)\n$/.exec(said.stdout), {
      timeout: 20_000,
    });
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect((await fetch(`${url}/v1/jobs`)).status).toBe(401);
    const { stdout } = await command(["jobs", "--limit", "1", "--json"], { ...doors.server, STILLWAKE_SERVER: url! });
    expect(JSON.parse(stdout).jobs).toHaveLength(1);
    child.kill("SIGTERM");
    expect(await closed).toEqual([0, null]);
    expect(said.stderr).toBe("");
  });

  it("server on a database without tables says so, and says each trouble inside in one line", async () => {
    const env = { DATABASE_URL: database.url, STILLWAKE_SCHEMA: "elsewhere" };
    const { child, said, closed } = start(["server", "--port", "0", "--no-auth"], env);
    const [, url] = await waitFor(() => /^Stillwake serves (\S+),/.exec(said.stdout), { timeout: 20_000 });
    await waitFor(() => said.stderr.includes("SCHEMA_MISSING"), { timeout: 20_000 });
    expect(said.stderr).toMatch(/^STILLWAKE_SECRET is not set: .*\nSCHEMA_MISSING: .*stillwake migrate.*\n$/);
    const before = said.stderr.length;
    expect((await fetch(`${url}/v1/jobs`)).status).toBe(503);
    await waitFor(() => said.stderr.length > before, { timeout: 20_000 });
    expect(said.stderr.slice(before)).toMatch(/^SCHEMA_MISSING: .* \(GET \/v1\/jobs\)\n$/);
    child.kill("SIGTERM");
    expect(await closed).toEqual([0, null]);
  });

  it("a follower comes back when the server was away, and misses no line", async () => {
    const first = createServer({ url: database.url });
    const listening = await first.listen({ port: 0, graceMs: 100 });
    const { id } = await stillwake.enqueue(work, { say: "before", gate: true });
    await waitFor(async () => (await stillwake.logs(id)).length > 0, { timeout: 20_000 });
    const env = { ...doors.server, STILLWAKE_SERVER: listening.url };
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
