// The local provider, whose machines are processes: which processes survive, which are killed, and how exits are reported.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { ListedMachine, MachineRequest, Provider } from "../../src/orchestrator/provider.ts";
import { type LocalOptions, local } from "../../src/orchestrator/providers/local/local.ts";
import { waitFor } from "../../src/testing/index.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { FULL, isAlive } from "../support/processes/fault-checks.ts";
import {
  FLEET,
  findProcesses,
  localFixture,
  machineRequest,
  POOL,
  providerContext,
} from "../support/providers/provider-cases.ts";

let fixture: ReturnType<typeof localFixture>;
const made: { close?(): Promise<void> }[] = [];
const starters: ChildProcess[] = [];

beforeAll(() => buildPackage());
beforeEach(() => {
  fixture = localFixture();
  return async () => {
    for (const one of starters.splice(0)) one.kill("SIGKILL");
    for (const one of made.splice(0)) await one.close?.();
    for (const pid of alive()) process.kill(Number(pid), "SIGKILL");
    await fixture.close();
  };
});

/** A provider whose machines run this shell script. */
function machines(script: string, more: LocalOptions & { graceMs?: number } = {}): Provider {
  const { graceMs = 5000, ...options } = more;
  const provider = local({ command: "/bin/sh", args: ["-c", script], dir: fixture.dir, ...options })(
    providerContext({ graceMs }),
  );
  made.push(provider);
  return provider;
}

/** Another process that starts machines in the same registry. Resolves with their pids. */
async function startElsewhere(requests: MachineRequest[]): Promise<{ child: ChildProcess; ids: string[] }> {
  const options = {
    command: "/bin/sh",
    args: ["-c", "exec sleep 600"],
    dir: fixture.dir,
    env: { FIXTURE: fixture.dir },
  };
  const what = JSON.stringify({ options, context: { fleet: FLEET, pool: POOL, slots: 1, graceMs: 5000 }, requests });
  const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/local-starter.mjs"), what], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  starters.push(child);
  const [line] = await once(child.stdout!, "data");
  return { child, ids: JSON.parse(String(line)) };
}

/** A process that starts the same machines on request and prints their pids in one line. */
async function startRival(): Promise<(requests: MachineRequest[]) => Promise<string>> {
  const options = {
    command: "/bin/sh",
    args: ["-c", "exec sleep 600"],
    dir: fixture.dir,
    env: { FIXTURE: fixture.dir },
  };
  const what = JSON.stringify({ options, context: { fleet: FLEET, pool: POOL, slots: 1, graceMs: 5000 } });
  const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/local-rivals.mjs"), what], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  starters.push(child);
  const lines = readline.createInterface({ input: child.stdout! });
  const readLine = async () => String((await once(lines, "line"))[0]);
  await readLine();
  return (requests) => {
    const line = readLine();
    child.stdin!.write(`${JSON.stringify(requests)}\n`);
    return line;
  };
}

const alive = () => findProcesses(`FIXTURE=${fixture.dir}`).map(({ pid }) => String(pid));

describe("a killed orchestrator process", () => {
  it("leaves its machines running; the next one finds them, notices their exits, and stops them on close", async () => {
    const requests = [machineRequest(1, { burst: 1 }), machineRequest(2, { burst: 2 }), machineRequest(3)];
    const { child, ids } = await startElsewhere(requests);
    child.kill("SIGKILL");
    await once(child, "exit");
    const next = fixture.provider();
    const ends: ListedMachine[] = [];
    next.onEnded!((machine) => ends.push(machine));
    const listed = (await next.list()).toSorted((a, b) => a.name.localeCompare(b.name));
    expect(listed).toMatchObject(requests.map(({ name }, index) => ({ name, id: ids[index], state: "running" })));
    // Starting an existing machine creates no second one.
    expect(await next.start(requests[0]!)).toMatchObject({ id: ids[0] });
    process.kill(Number(ids[0]), "SIGKILL");
    await waitFor(() => ends.length > 0);
    const exit = { reason: "it exited while no orchestrator was running" };
    expect(ends).toMatchObject([{ name: requests[0]!.name, state: "gone", exit }]);
    await next.remove(listed[1]!);
    expect(isAlive(Number(ids[1]))).toBe(false);
    await next.close!();
    expect(alive()).toEqual([]);
  });

  it("unlike a live one, whose machines another process does not stop on close", async () => {
    const { child, ids } = await startElsewhere([machineRequest(1, { burst: 1 })]);
    const second = fixture.provider();
    expect(await second.list()).toMatchObject([{ id: ids[0], state: "running" }]);
    await second.close!();
    expect(alive()).toEqual(ids);
    child.kill("SIGTERM");
    await once(child, "exit");
    expect(alive()).toEqual([]);
  });

  it("two processes that start the same machine concurrently create one", async () => {
    const requests = [1, 2, 3].map((ordinal) => machineRequest(ordinal, { burst: ordinal }));
    const both = await Promise.all([startElsewhere(requests), startElsewhere(requests)]);
    expect(both[0].ids).toEqual(both[1].ids);
    expect(alive().toSorted()).toEqual(both[0].ids.toSorted());
  });

  it("several processes do so repeatedly, right after the last life of each name has ended", async () => {
    const rivals = await Promise.all([1, 2, 3, 4].map(() => startRival()));
    const requests = Array.from({ length: 8 }, (_, index) => machineRequest(index + 1));
    for (let life = 1; life <= (FULL ? 40 : 6); life++) {
      const results = await Promise.all(rivals.map((start) => start(requests)));
      expect(new Set(results).size, `life ${life}: ${results.join(" ")}`).toBe(1);
      expect(alive().toSorted(), `life ${life}`).toEqual((JSON.parse(results[0]!) as string[]).toSorted());
      for (const pid of alive()) process.kill(Number(pid), "SIGKILL");
      await waitFor(() => alive().length === 0);
    }
    // The number of files does not grow with the number of ended lives.
    expect(fs.readdirSync(fixture.dir).filter((file) => file.endsWith(".new"))).toEqual([]);
    expect(fs.readdirSync(fixture.dir).length).toBeLessThan(requests.length * 24);
  });
});

describe("a foreign process", () => {
  it("with the pid of an ended machine is not touched", async () => {
    const provider = machines("exec sleep 600");
    const request = machineRequest(1);
    await provider.start(request);
    // Start times differ by at least a hundredth of a second.
    const began = performance.now();
    await waitFor(() => performance.now() - began > 50);
    const innocent = spawn("sleep", ["600"], { detached: true });
    try {
      // As if the machine had exited unobserved and its pid had been reused.
      const file = path.join(fixture.dir, `${request.name}.00000001.pid`);
      const taken = fs.readFileSync(file, "utf8").replace(/^\d+/, String(innocent.pid));
      const later = machines("exec sleep 600");
      await provider.close!();
      fs.writeFileSync(file, taken);
      expect(await later.list()).toMatchObject([{ name: request.name, state: "stopped" }]);
      await later.remove({ name: request.name, id: String(innocent.pid) });
      expect(await later.list()).toEqual([]);
      expect(isAlive(innocent.pid!)).toBe(true);
    } finally {
      innocent.kill("SIGKILL");
    }
  });

  it("cannot be killed through a registry of another user, which is rejected", async () => {
    const isRoot = process.getuid!() === 0;
    if (isRoot) fs.mkdirSync(fixture.dir);
    if (isRoot) fs.chownSync(fixture.dir, 65_534, 65_534);
    const provider = local({ dir: isRoot ? fixture.dir : "/" })(providerContext());
    await expect(provider.list()).rejects.toMatchObject({ kind: "unreachable", certain: true });
  });

  it.each([
    ["to which others may write", (dir: string) => fs.chmodSync(dir, 0o777)],
    ["that stands where others may write", (dir: string) => fs.chmodSync(path.dirname(dir), 0o770)],
    ["that is a link to elsewhere", (dir: string) => fs.symlinkSync(`${dir}.away`, dir)],
  ])("nor through our registry %s", async (what, damage) => {
    const { TMPDIR } = process.env;
    process.env.TMPDIR = path.dirname(fixture.dir);
    try {
      const provider = local()(providerContext());
      expect(await provider.list()).toEqual([]);
      const root = path.join(process.env.TMPDIR, `stillwake-${process.getuid!()}`);
      const dir = path.join(root, `machines-${FLEET}`);
      if (what.includes("link")) fs.renameSync(dir, `${dir}.away`);
      damage(dir);
      await expect(provider.list()).rejects.toMatchObject({ kind: "unreachable", certain: true });
      await expect(provider.start(machineRequest(1))).rejects.toMatchObject({ kind: "unreachable", certain: true });
    } finally {
      if (TMPDIR === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = TMPDIR;
    }
  });
});

describe("the exit of a machine", () => {
  it("is requested, and after the grace the whole session is killed", async () => {
    const messages: string[] = [];
    const ignoresTerm = `trap '' TERM; sleep 600 & while :; do sleep 600 & wait $!; done`;
    const provider = local({
      command: "/bin/sh",
      args: ["-c", ignoresTerm],
      dir: fixture.dir,
      env: { FIXTURE: fixture.dir },
    })(providerContext({ graceMs: 200, report: (_level, message) => messages.push(message) }));
    const request = machineRequest(1, { burst: 1 });
    const { id } = await provider.start(request);
    await waitFor(() => alive().length >= 3);
    await provider.remove({ name: request.name, id });
    await waitFor(() => alive().length === 0, { what: "its session to exit" });
    expect(messages).toEqual([expect.stringContaining("did not exit within its grace")]);
    expect(await provider.list()).toEqual([]);
  });

  it("is reported with its code or signal, the end of its log, and whether it was requested", async () => {
    const failing = machines(`echo '{"level":"info","msg":"about to connect"}'; echo 'db is not there' >&2; exit 7`);
    const ends: ListedMachine[] = [];
    failing.onEnded!((machine) => ends.push(machine));
    await failing.start(machineRequest(1, { burst: 1 }));
    await waitFor(() => ends.length === 1);
    expect(ends[0]!.exit).toEqual({ code: 7, reason: "about to connect | db is not there" });

    const waiting = machines("exec sleep 600");
    waiting.onEnded!((machine) => ends.push(machine));
    const killed = await waiting.start(machineRequest(2, { burst: 2 }));
    process.kill(Number(killed.id), "SIGKILL");
    await waitFor(() => ends.length === 2);
    expect(ends[1]!.exit).toMatchObject({ signal: "SIGKILL" });
    expect(ends[1]!.exit!.requested).toBeUndefined();

    await waiting.start(machineRequest(3));
    await waiting.close!();
    expect(ends[2]).toMatchObject({ state: "stopped", exit: { signal: "SIGTERM", requested: true } });
  });

  it.each([
    ["the password of a URL", "cannot reach postgres://me:hush@db/x", "cannot reach postgres://***@db/x"],
    ["one with an @ in it", "cannot reach postgres://me:hu@sh@db/x", "cannot reach postgres://***@db/x"],
    ["what a setting calls a password", "host=db password=hush port=1", "host=db password=*** port=1"],
    ["one in quotes", `password='hu sh' {"apiKey":"hush","a":1}`, `password=*** {"apiKey":***,"a":1}`],
    ["a bearer", "Authorization: Bearer abc.def-1 was refused", "Authorization: Bearer *** was refused"],
    ["its own password, as it is", "no entry for n#1 p@ss/word", "no entry for ***"],
    ["its own password, encoded", "no entry for n%231%20p%40ss%2Fword", "no entry for ***"],
    ["its own secrets", "the key sk-5d1f is used up", "the key *** is used up"],
    ["nothing else", "password authentication failed for me@db", "password authentication failed for me@db"],
  ])("is reported without %s", async (_what, output, expected) => {
    const provider = machines('printf "%s\\n" "$OUTPUT"; exit 7', {
      env: {
        OUTPUT: output,
        STILLWAKE_DATABASE_URL: "postgres://me:n%231%20p%40ss%2Fword@db/x",
        STILLWAKE_SECRET_LLM: "sk-5d1f",
      },
    });
    const ends: ListedMachine[] = [];
    provider.onEnded!((machine) => ends.push(machine));
    await provider.start(machineRequest(1, { burst: 1 }));
    await waitFor(() => ends.length === 1);
    expect(ends[0]!.exit!.reason).toBe(expected);
  });

  it("is not requested for a machine that was listed as stopped and started since", async () => {
    const provider = machines("exec sleep 600", { env: { FIXTURE: fixture.dir } });
    const request = machineRequest(1);
    await provider.prepare!(request);
    const [stopped] = await provider.list();
    const first = await provider.start(request);
    await provider.remove(stopped!);
    expect(await provider.list()).toMatchObject([{ id: first.id, state: "running" }]);
    const [running] = await provider.list();
    process.kill(Number(first.id), "SIGKILL");
    await waitFor(async () => (await provider.list())[0]!.state === "stopped");
    const second = await provider.start(request);
    // Nor for its next life.
    await provider.remove(running!);
    expect(alive()).toEqual([second.id]);
    await provider.remove((await provider.list())[0]!);
    expect(alive()).toEqual([]);
    expect(await provider.list()).toEqual([]);
    // A machine created again under the name has no life yet.
    await provider.prepare!(request);
    expect(await provider.list()).toEqual([{ name: request.name, id: request.name, state: "stopped" }]);
  });

  it("is not requested on close with leave: the machines stay for the next process", async () => {
    const options = { env: { FIXTURE: fixture.dir } };
    const provider = machines("exec sleep 600", options);
    const { id } = await provider.start(machineRequest(1, { burst: 1 }));
    await provider.close!({ leave: true });
    expect(alive()).toEqual([id]);
    expect(await machines("exec sleep 600", options).list()).toMatchObject([{ id, state: "running" }]);
  });

  it("names a missing program; with a missing cwd nothing is started", async () => {
    const nothing = local({ command: "no-such-program", dir: fixture.dir })(providerContext());
    const ends: ListedMachine[] = [];
    nothing.onEnded!((machine) => ends.push(machine));
    await nothing.start(machineRequest(1, { burst: 1 }));
    await waitFor(() => ends.length === 1);
    expect(ends[0]!.exit).toMatchObject({ code: 127, reason: expect.stringContaining("no-such-program") });

    const nowhere = machines("exit 0", { cwd: path.join(fixture.dir, "nowhere") });
    await expect(nowhere.start(machineRequest(2, { burst: 2 }))).rejects.toMatchObject({
      kind: "refused",
      certain: true,
    });
    expect((await nowhere.list()).map(({ name }) => name)).not.toContain(machineRequest(2, { burst: 2 }).name);
  });
});

describe("a machine", () => {
  it("runs in a separate session, with the environment of this process without provider tokens", async () => {
    const withheld = {
      FLY_API_TOKEN: "one",
      KUBECONFIG: "two",
      GOOGLE_APPLICATION_CREDENTIALS: "three",
      STILLWAKE_TOKEN: "four",
      STILLWAKE_MACHINE: "five",
    };
    const shown = { STILLWAKE_DATABASE_URL: "postgres://there", STILLWAKE_SECRET_LLM: "for jobs", COLOUR: "blue" };
    Object.assign(process.env, withheld, shown);
    try {
      const provider = machines("exec sleep 600", { env: { FIXTURE: fixture.dir } });
      const request = machineRequest(1, { burst: 1 });
      await provider.start(request);
      const [machine] = await waitFor(() => {
        const found = findProcesses(`FIXTURE=${fixture.dir}`);
        return found.length === 1 && found;
      });
      expect(machine!.session).toBe(machine!.pid);
      expect(machine!.variables).toMatchObject({ ...shown, ...request.env });
      for (const [key, value] of Object.entries(withheld)) expect(machine!.variables[key]).not.toBe(value);
      expect(fs.statSync(fixture.dir).mode & 0o077).toBe(0);
    } finally {
      for (const key of Object.keys({ ...withheld, ...shown })) delete process.env[key];
    }
  });
});
