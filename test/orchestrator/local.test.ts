// What is the local provider's alone: machines that are processes. Who survives whom, whose processes are ended, and what is told of an end.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Order, Provider, SeenMachine } from "../../src/orchestrator/provider.ts";
import { type LocalOptions, local } from "../../src/orchestrator/providers/local/local.ts";
import { waitFor } from "../../src/testing/index.ts";
import { FULL, isAlive } from "../support/processes/aftermath.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { contextOf, FLEET, localStage, orderOf, POOL, processesWith } from "../support/providers/provider-cases.ts";

let stage: ReturnType<typeof localStage>;
const made: { close?(): Promise<void> }[] = [];
const starters: ChildProcess[] = [];

beforeAll(() => buildPackage());
beforeEach(() => {
  stage = localStage();
  return async () => {
    for (const one of starters.splice(0)) one.kill("SIGKILL");
    for (const one of made.splice(0)) await one.close?.();
    for (const pid of there()) process.kill(Number(pid), "SIGKILL");
    await stage.close();
  };
});

/** A machine that is this shell script. */
function machines(script: string, more: LocalOptions & { graceMs?: number } = {}): Provider {
  const { graceMs = 5000, ...options } = more;
  const provider = local({ command: "/bin/sh", args: ["-c", script], dir: stage.dir, ...options })(
    contextOf({ graceMs }),
  );
  made.push(provider);
  return provider;
}

/** Another process that starts machines in the same registry. Resolves with their numbers. */
async function startElsewhere(orders: Order[]): Promise<{ child: ChildProcess; ids: string[] }> {
  const options = { command: "/bin/sh", args: ["-c", "exec sleep 600"], dir: stage.dir, env: { STAGE: stage.dir } };
  const what = JSON.stringify({ options, context: { fleet: FLEET, pool: POOL, slots: 1, graceMs: 5000 }, orders });
  const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/local-starter.mjs"), what], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  starters.push(child);
  const [line] = await once(child.stdout!, "data");
  return { child, ids: JSON.parse(String(line)) };
}

/** A process that starts the same machines whenever it is asked; answers their numbers in one line. */
async function startRival(): Promise<(orders: Order[]) => Promise<string>> {
  const options = { command: "/bin/sh", args: ["-c", "exec sleep 600"], dir: stage.dir, env: { STAGE: stage.dir } };
  const what = JSON.stringify({ options, context: { fleet: FLEET, pool: POOL, slots: 1, graceMs: 5000 } });
  const child = spawn(process.execPath, [path.join(ROOT, "test/fixtures/local-rivals.mjs"), what], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  starters.push(child);
  const lines = readline.createInterface({ input: child.stdout! });
  const answer = async () => String((await once(lines, "line"))[0]);
  await answer();
  return (orders) => {
    const answered = answer();
    child.stdin!.write(`${JSON.stringify(orders)}\n`);
    return answered;
  };
}

const there = () => processesWith(`STAGE=${stage.dir}`).map(({ pid }) => String(pid));

describe("a process that starts machines and is killed", () => {
  it("leaves its machines alive; the next one finds them, is told when they end, and ends them when it is closed", async () => {
    const orders = [orderOf(1, { burst: 1 }), orderOf(2, { burst: 2 }), orderOf(3)];
    const { child, ids } = await startElsewhere(orders);
    child.kill("SIGKILL");
    await once(child, "exit");
    const next = stage.provider();
    const ends: SeenMachine[] = [];
    next.onEnded!((machine) => ends.push(machine));
    const seen = (await next.list()).toSorted((a, b) => a.name.localeCompare(b.name));
    expect(seen).toMatchObject(orders.map(({ name }, place) => ({ name, id: ids[place], state: "running" })));
    // To ask for one that is there makes no second.
    expect(await next.start(orders[0]!)).toMatchObject({ id: ids[0] });
    process.kill(Number(ids[0]), "SIGKILL");
    await waitFor(() => ends.length > 0);
    const exit = { reason: "it ended while nobody was watching" };
    expect(ends).toMatchObject([{ name: orders[0]!.name, state: "gone", exit }]);
    await next.remove(seen[1]!);
    expect(isAlive(Number(ids[1]))).toBe(false);
    await next.close!();
    expect(there()).toEqual([]);
  });

  it("and one that lives keeps its own: another that is closed leaves them alone", async () => {
    const { child, ids } = await startElsewhere([orderOf(1, { burst: 1 })]);
    const second = stage.provider();
    expect(await second.list()).toMatchObject([{ id: ids[0], state: "running" }]);
    await second.close!();
    expect(there()).toEqual(ids);
    child.kill("SIGTERM");
    await once(child, "exit");
    expect(there()).toEqual([]);
  });

  it("T44: two that start the same machine at the same moment make one", async () => {
    const orders = [1, 2, 3].map((slot) => orderOf(slot, { burst: slot }));
    const both = await Promise.all([startElsewhere(orders), startElsewhere(orders)]);
    expect(both[0].ids).toEqual(both[1].ids);
    expect(there().toSorted()).toEqual(both[0].ids.toSorted());
  });

  it("T44: as do several, again and again, when the last life of each name has ended this moment", async () => {
    const rivals = await Promise.all([1, 2, 3, 4].map(() => startRival()));
    const orders = Array.from({ length: 8 }, (_, index) => orderOf(index + 1));
    for (let life = 1; life <= (FULL ? 40 : 6); life++) {
      const answers = await Promise.all(rivals.map((ask) => ask(orders)));
      expect(new Set(answers).size, `life ${life}: ${answers.join(" ")}`).toBe(1);
      expect(there().toSorted(), `life ${life}`).toEqual((JSON.parse(answers[0]!) as string[]).toSorted());
      for (const pid of there()) process.kill(Number(pid), "SIGKILL");
      await waitFor(() => there().length === 0);
    }
    // What is kept of lives that are over does not grow with their number.
    expect(fs.readdirSync(stage.dir).filter((file) => file.endsWith(".new"))).toEqual([]);
    expect(fs.readdirSync(stage.dir).length).toBeLessThan(orders.length * 24);
  });
});

describe("a process of somebody else", () => {
  it("is not touched though it has the number of a machine of ours", async () => {
    const provider = machines("exec sleep 600");
    const order = orderOf(1);
    await provider.start(order);
    // Births are told apart by hundredths of a second.
    const began = performance.now();
    await waitFor(() => performance.now() - began > 50);
    const innocent = spawn("sleep", ["600"], { detached: true });
    try {
      // As it is when the machine has ended unseen and its number was given to the next process.
      const file = path.join(stage.dir, `${order.name}.00000001.pid`);
      const taken = fs.readFileSync(file, "utf8").replace(/^\d+/, String(innocent.pid));
      const later = machines("exec sleep 600");
      await provider.close!();
      fs.writeFileSync(file, taken);
      expect(await later.list()).toMatchObject([{ name: order.name, state: "stopped" }]);
      await later.remove({ name: order.name, id: String(innocent.pid) });
      expect(await later.list()).toEqual([]);
      expect(isAlive(innocent.pid!)).toBe(true);
    } finally {
      innocent.kill("SIGKILL");
    }
  });

  it("does not decide what is ended: a registry of another user is refused", async () => {
    const isRoot = process.getuid!() === 0;
    if (isRoot) fs.mkdirSync(stage.dir);
    if (isRoot) fs.chownSync(stage.dir, 65_534, 65_534);
    const provider = local({ dir: isRoot ? stage.dir : "/" })(contextOf());
    await expect(provider.list()).rejects.toMatchObject({ trouble: "unreachable", certain: true });
  });

  it.each([
    ["to which others may write", (dir: string) => fs.chmodSync(dir, 0o777)],
    ["that stands where others may write", (dir: string) => fs.chmodSync(path.dirname(dir), 0o770)],
    ["that is a link to elsewhere", (dir: string) => fs.symlinkSync(`${dir}.away`, dir)],
  ])("nor one of ours %s", async (what, spoil) => {
    const { TMPDIR } = process.env;
    process.env.TMPDIR = path.dirname(stage.dir);
    try {
      const provider = local()(contextOf());
      expect(await provider.list()).toEqual([]);
      const root = path.join(process.env.TMPDIR, `stillwake-${process.getuid!()}`);
      const dir = path.join(root, `machines-${FLEET}`);
      if (what.includes("link")) fs.renameSync(dir, `${dir}.away`);
      spoil(dir);
      await expect(provider.list()).rejects.toMatchObject({ trouble: "unreachable", certain: true });
      await expect(provider.start(orderOf(1))).rejects.toMatchObject({ trouble: "unreachable", certain: true });
    } finally {
      if (TMPDIR === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = TMPDIR;
    }
  });
});

describe("the end of a machine", () => {
  it("is asked for, and taken with all it has started when it does not come within the grace", async () => {
    const said: string[] = [];
    const deaf = `trap '' TERM; sleep 600 & while :; do sleep 600 & wait $!; done`;
    const provider = local({ command: "/bin/sh", args: ["-c", deaf], dir: stage.dir, env: { STAGE: stage.dir } })(
      contextOf({ graceMs: 200, say: (_level, message) => said.push(message) }),
    );
    const order = orderOf(1, { burst: 1 });
    const { id } = await provider.start(order);
    await waitFor(() => there().length >= 3);
    await provider.remove({ name: order.name, id });
    await waitFor(() => there().length === 0, { what: "all of its session to end" });
    expect(said).toEqual([expect.stringContaining("has not ended within its grace")]);
    expect(await provider.list()).toEqual([]);
  });

  it("says which code or signal, what it said last, and whether somebody asked for it", async () => {
    const failing = machines(`echo '{"level":"info","msg":"about to connect"}'; echo 'db is not there' >&2; exit 7`);
    const ends: SeenMachine[] = [];
    failing.onEnded!((machine) => ends.push(machine));
    await failing.start(orderOf(1, { burst: 1 }));
    await waitFor(() => ends.length === 1);
    expect(ends[0]!.exit).toEqual({ code: 7, reason: "about to connect | db is not there" });

    const waiting = machines("exec sleep 600");
    waiting.onEnded!((machine) => ends.push(machine));
    const killed = await waiting.start(orderOf(2, { burst: 2 }));
    process.kill(Number(killed.id), "SIGKILL");
    await waitFor(() => ends.length === 2);
    expect(ends[1]!.exit).toMatchObject({ signal: "SIGKILL" });
    expect(ends[1]!.exit!.requested).toBeUndefined();

    await waiting.start(orderOf(3));
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
  ])("keeps to itself %s", async (_what, said, told) => {
    const provider = machines('printf "%s\\n" "$SAID"; exit 7', {
      env: {
        SAID: said,
        STILLWAKE_DATABASE_URL: "postgres://me:n%231%20p%40ss%2Fword@db/x",
        STILLWAKE_SECRET_LLM: "sk-5d1f",
      },
    });
    const ends: SeenMachine[] = [];
    provider.onEnded!((machine) => ends.push(machine));
    await provider.start(orderOf(1, { burst: 1 }));
    await waitFor(() => ends.length === 1);
    expect(ends[0]!.exit!.reason).toBe(told);
  });

  it("does not come to one that was seen stopped and that somebody has started since", async () => {
    const provider = machines("exec sleep 600", { env: { STAGE: stage.dir } });
    const order = orderOf(1);
    await provider.prepare!(order);
    const [stopped] = await provider.list();
    const first = await provider.start(order);
    await provider.remove(stopped!);
    expect(await provider.list()).toMatchObject([{ id: first.id, state: "running" }]);
    const [running] = await provider.list();
    process.kill(Number(first.id), "SIGKILL");
    await waitFor(async () => (await provider.list())[0]!.state === "stopped");
    const second = await provider.start(order);
    // Nor to its next life.
    await provider.remove(running!);
    expect(there()).toEqual([second.id]);
    await provider.remove((await provider.list())[0]!);
    expect(there()).toEqual([]);
    expect(await provider.list()).toEqual([]);
    // A machine that is made again under the name has not lived yet.
    await provider.prepare!(order);
    expect(await provider.list()).toEqual([{ name: order.name, id: order.name, state: "stopped" }]);
  });

  it("comes to none of them when they are to be left: they are there for the next", async () => {
    const options = { env: { STAGE: stage.dir } };
    const provider = machines("exec sleep 600", options);
    const { id } = await provider.start(orderOf(1, { burst: 1 }));
    await provider.close!({ leave: true });
    expect(there()).toEqual([id]);
    expect(await machines("exec sleep 600", options).list()).toMatchObject([{ id, state: "running" }]);
  });

  it("comes at once when there is no such program, with its name; without its directory nothing is started", async () => {
    const nothing = local({ command: "no-such-program", dir: stage.dir })(contextOf());
    const ends: SeenMachine[] = [];
    nothing.onEnded!((machine) => ends.push(machine));
    await nothing.start(orderOf(1, { burst: 1 }));
    await waitFor(() => ends.length === 1);
    expect(ends[0]!.exit).toMatchObject({ code: 127, reason: expect.stringContaining("no-such-program") });

    const nowhere = machines("exit 0", { cwd: path.join(stage.dir, "nowhere") });
    await expect(nowhere.start(orderOf(2, { burst: 2 }))).rejects.toMatchObject({ trouble: "refused", certain: true });
    expect((await nowhere.list()).map(({ name }) => name)).not.toContain(orderOf(2, { burst: 2 }).name);
  });
});

describe("a machine", () => {
  it("is in a session of its own, with what this process knows but for what starts machines", async () => {
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
      const provider = machines("exec sleep 600", { env: { STAGE: stage.dir } });
      const order = orderOf(1, { burst: 1 });
      await provider.start(order);
      const [machine] = await waitFor(() => {
        const found = processesWith(`STAGE=${stage.dir}`);
        return found.length === 1 && found;
      });
      expect(machine!.session).toBe(machine!.pid);
      expect(machine!.variables).toMatchObject({ ...shown, ...order.env });
      for (const [key, value] of Object.entries(withheld)) expect(machine!.variables[key]).not.toBe(value);
      expect(fs.statSync(stage.dir).mode & 0o077).toBe(0);
    } finally {
      for (const key of Object.keys({ ...withheld, ...shown })) delete process.env[key];
    }
  });
});
