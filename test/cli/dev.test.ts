// `stillwake dev` as a newcomer meets it, without pipelines: real processes, a Postgres of its own, Ctrl-C as a terminal sends it. The tests are one
// story in one folder: the first start, its two pipelines to look at, Ctrl-C in the middle, a start whose terminal is closed, the one that goes on.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readEvents, type Told } from "../../src/cli/sse.ts";
import { waitFor } from "../../src/testing/index.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-dev-")));
/** Found in the arguments of the program that the job starts. */
const harbour = `Harbour ${path.basename(dir)}`;
const LONG = 60_000;
const DEV = [process.execPath, path.join(ROOT, "dist/cli/index.js"), "dev"];
const told = path.join(dir, ".stillwake/dev.json");
/** Why there is no terminal to be had. That of other systems takes other words. */
const noTerminal = /util-linux/.test(String(spawnSync("script", ["--version"]).stdout))
  ? ""
  : "script of util-linux is not here";
let dev: Dev;
/** Both at once: they are there to take time. */
let survivor: ReturnType<typeof run>;
let report: ReturnType<typeof run>;

beforeAll(() => buildPackage());
afterAll(() => {
  for (const pid of processesOf(dir, harbour)) process.kill(pid, "SIGKILL");
  fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
});

describe("the first start", { timeout: 2 * LONG }, () => {
  it("says that a port is taken, and then in three lines where it is, what to press and how to stop", async () => {
    const holder = net.createServer().listen(0, "127.0.0.1");
    await once(holder, "listening");
    const { port } = holder.address() as net.AddressInfo;
    const began = performance.now();
    dev = await start(DEV, { STILLWAKE_PORT: String(port) });
    recordFigure(
      "dev: first start to the banner",
      (performance.now() - began) / 1000,
      "s",
      "a new Postgres, 5 runners",
    );
    holder.close();
    const taken = "( {2}Port \\d+ is taken, trying \\d+\\.\\n)+";
    const lines =
      " {2}Stillwake \\S+ is at \\S+\\n {2}Open it .* demo-survivor .* demo-report\\.\\n {2}Stop with Ctrl-C\\. .*\\n";
    expect(dev.output()).toMatch(new RegExp(`^${taken}\\n${lines}\\n$`));
    expect(dev.output()).toContain(`  Port ${port} is taken, trying ${port + 1}.\n`);
    expect(Number(new URL(dev.url).port)).toBeGreaterThan(port);
  });

  it("has one job on its way, so that the page is not empty", async () => {
    expect(await jobs("demo-survivor")).toHaveLength(1);
    expect(await jobs("demo-report")).toHaveLength(0);
    survivor = run("demo-survivor", { seconds: 2 });
    report = run("demo-report", { seconds: 2 });
    // Whoever waits for them says what is wrong.
    for (const one of [survivor, report]) one.catch(() => {});
  });

  it("is the only one in its folder: a second one is refused, and told where the first is", async () => {
    const { PATH = "", HOME = "" } = process.env;
    const [program = "", ...args] = DEV;
    const second = spawn(program, args, { cwd: dir, env: { PATH, HOME, STILLWAKE_PORT: "0" } });
    let said = "";
    for (const stream of [second.stdout, second.stderr]) stream.on("data", (data) => (said += data));
    expect(await once(second, "close"), said).toEqual([1, null]);
    expect(said).toMatch(
      /^DEV_RUNNING: A stillwake dev is running in \.stillwake already, at (\S+)\. Use that one, or /,
    );
    expect(said).toContain(`at ${dev.url}. `);
    expect(JSON.parse(fs.readFileSync(told, "utf8"))).toMatchObject({ pid: dev.pid, url: dev.url });
  });

  it("demo-survivor kills its runner once, and the next attempt goes on where it was", async () => {
    const { id, lines, end } = await survivor;
    expect(end).toMatchObject({ state: "completed", output: { miles: 10, attempts: 2 } });
    expect(end.output.castOffBy).not.toBe(end.output.mooredBy);
    const { attempts } = await ask(`/v1/jobs/${id}/attempts`);
    expect(attempts).toMatchObject([
      { outcome: "lost", failure: { code: "RUNNER_KILLED", message: "The runner was killed by SIGKILL" } },
      { outcome: "completed" },
    ]);
    const said = lines.map(({ message }) => message);
    const count = (words: RegExp) => said.filter((one) => words.test(one)).length;
    // What was kept before the kill was done once: the step, and each mile.
    expect(count(/^Cast off with logbook/)).toBe(1);
    for (let mile = 1; mile <= 10; mile++) expect(count(new RegExp(`^Mile ${mile} of 10 is done$`))).toBe(1);
    const order = [
      "Casting off for",
      `Cast off with logbook ${end.output.logbook}`,
      "Mile 5 of 10",
      "A storm at mile 6",
      "The runner was killed by SIGKILL",
      "Attempt 2 goes on",
      "Mile 6 of 10",
      "Moored after 2 attempts",
    ].map((words) => said.findIndex((one) => one.startsWith(words)));
    expect(order).toEqual(order.toSorted((a, b) => a - b));
    expect(order[0]).toBe(0);
  });

  it("demo-report needs nothing but to be pressed: steps, a program, a failure it can do without, progress, a file", async () => {
    const { pipelines } = await ask("/v1/pipelines");
    const { inputSchema } = pipelines.find(({ name }: { name: string }) => name === "demo-report");
    expect(inputSchema.required ?? []).toEqual([]);
    for (const field of Object.values<object>(inputSchema.properties)) {
      expect(field).toMatchObject({ title: expect.any(String), description: expect.any(String) });
      expect(field).toHaveProperty("default");
    }
    const { id, lines, end } = await report;
    expect(end).toMatchObject({ state: "completed", output: { harbour: "Stillwater", readings: 400 } });
    const job = await ask(`/v1/jobs/${id}`);
    expect(job).toMatchObject({ missing: ["weather"], attempt: 1, progress: { done: 400, total: 400 } });
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.objectContaining({
          level: "info",
          step: "gauge",
          message: expect.stringMatching(/^Day 17: 16 readings/),
        }),
        expect.objectContaining({ level: "warning", step: "weather", message: expect.stringMatching(/out of reach/) }),
        expect.objectContaining({ step: "checking", data: expect.objectContaining({ off_cm: expect.any(Number) }) }),
        expect.objectContaining({ level: "success", message: expect.stringMatching(/^Highest water: \d\.\d\d m/) }),
      ]),
    );
    const strays = lines.filter(({ message }) => /off the tide table/.test(message));
    expect(end.output.strays).toBe(strays.length);
    const page = await (await fetch(`${dev.url}/v1/jobs/${id}/artifacts/${end.output.report}`)).text();
    expect(page).toContain("<h1>Tides of Stillwater</h1>");
    expect(page.match(/<circle /g)).toHaveLength(strays.length);
    expect(page).toContain(`Highest water<td>${end.output.highest.toFixed(2)} m`);
  });
});

describe("the end", { timeout: 2 * LONG }, () => {
  let interrupted: string;
  let left: string;
  let ends = 0;

  it("T50: Ctrl-C in the middle of a job ends everything it has started, with somebody watching", async () => {
    left = fs.readFileSync(told, "utf8");
    ({ id: interrupted } = await ask("/v1/jobs", { pipeline: "demo-report", input: { harbour, seconds: 5 } }));
    const watching = follow(interrupted).catch(() => {});
    await waitFor(() => processesOf(harbour).length > 0, { timeout: LONG, what: "the program of the job" });
    const began = performance.now();
    dev.interrupt();
    expect(await dev.closed).toEqual([0, null]);
    recordFigure("dev: Ctrl-C to the prompt", performance.now() - began, "ms", "two jobs, a program and a stream open");
    expect(dev.output()).toMatch(/Handing back \d jobs?, which goe?s? on at the next start\.\n$/);
    expect(processesOf(harbour, `-${dev.pid}-`)).toEqual([]);
    // The shell that watched over Postgres may take a moment to notice.
    await waitFor(() => processesOf(dir).length === 0, { timeout: LONG, what: "everything to end" });
    expect(fs.existsSync(told)).toBe(false);
    await watching;
    ends++;
  });

  it.skipIf(noTerminal)(
    `T50: a closed terminal hands the jobs back too${noTerminal ? ` (${noTerminal})` : ""}`,
    async () => {
      // As one that was killed would have left it: nobody is there any more.
      fs.writeFileSync(told, left);
      // A shell passes on what it hears of its terminal, and waits.
      const shell = `trap 'kill -HUP $!' HUP; ${DEV.join(" ")} & wait $!; wait $!; echo $? > ended`;
      dev = await start(["script", "-q", "-f", "-c", shell, "/dev/null"], { STILLWAKE_PORT: "0" });
      const isRunning = async () => (await ask(`/v1/jobs/${interrupted}`)).state === "running";
      await waitFor(isRunning, { timeout: LONG, what: "the job to go on" });
      dev.closeTerminal();
      await waitFor(() => processesOf(dir, harbour).length === 0, { timeout: LONG, what: "everything to end" });
      expect(fs.readFileSync(path.join(dir, "ended"), "utf8")).toBe("0\n");
      expect(fs.existsSync(told)).toBe(false);
      ends++;
    },
  );

  it("loses nothing: npm start goes on with the job where it was, and enqueues none of its own", async () => {
    const survivors = 2;
    // Under npm, whose own Ctrl-C comes on top of the terminal's.
    dev = await start(["npm", "start"], { STILLWAKE_PORT: "0", STILLWAKE_DIR: path.join(dir, ".stillwake") }, ROOT);
    expect(dev.output()).toMatch(/\n {2}Open it, press Enqueue, and start demo-report or demo-survivor\.\n/);
    expect(await jobs("demo-survivor")).toHaveLength(survivors);
    const { lines, end } = await follow(interrupted);
    expect(end).toMatchObject({ state: "completed", output: { harbour } });
    const { attempts } = await ask(`/v1/jobs/${interrupted}/attempts`);
    expect(attempts).toMatchObject([
      ...Array.from({ length: ends }, () => ({ attempt: 1, outcome: "released" })),
      { attempt: 1, outcome: "completed" },
    ]);
    expect(lines.filter(({ message }) => /^The logbook is open/.test(message))).toHaveLength(1);
    dev.interrupt();
    // How npm ends is its own affair.
    await dev.closed;
    await waitFor(() => processesOf(dir, harbour, `-${dev.pid}-`).length === 0, { timeout: LONG, what: "its end" });
  });
});

interface Dev {
  url: string;
  /** Of the program itself, below npm and its shell. */
  pid: number;
  output(): string;
  closed: Promise<unknown[]>;
  /** To the whole group, as a terminal does it. */
  interrupt(): void;
  /** Of one that was started on a terminal. */
  closeTerminal(): void;
}

async function start([program = "", ...args]: string[], env: Record<string, string>, cwd = dir): Promise<Dev> {
  const { PATH = "", HOME = "" } = process.env;
  const child: ChildProcess = spawn(program, args, {
    cwd,
    env: { PATH, HOME, NO_COLOR: "1", ...env },
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const parts: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (data) => parts.push(data));
  // A terminal ends its lines in its own way.
  const output = () => Buffer.concat(parts).toString().replaceAll("\r\n", "\n");
  const closed = once(child, "close");
  await waitFor(() => /Stop with Ctrl-C.*\n\n$/.test(output()) || child.exitCode !== null, { timeout: LONG });
  const [, url = ""] = /is at (\S+)\n/.exec(output()) ?? [];
  expect(url, output()).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  const { pid, database } = JSON.parse(fs.readFileSync(told, "utf8"));
  expect(database).toMatch(/^postgres:\/\/postgres:[\w-]+@127\.0\.0\.1:\d+\/postgres$/);
  expect(fs.statSync(told).mode & 0o077).toBe(0);
  const interrupt = () => void process.kill(-child.pid!, "SIGINT");
  return { url, pid, output, closed, interrupt, closeTerminal: () => void child.kill("SIGKILL") };
}

// biome-ignore lint/suspicious/noExplicitAny: what the API answers.
async function ask(where: string, body?: object): Promise<any> {
  const post = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await fetch(`${dev.url}${where}`, post);
  expect(response.status, where).toBeLessThan(300);
  return response.json();
}

async function jobs(pipeline: string): Promise<object[]> {
  return (await ask(`/v1/jobs?pipeline=${pipeline}`)).jobs;
}

async function run(pipeline: string, input: object) {
  const { id } = await ask("/v1/jobs", { pipeline, input });
  return { id, ...(await follow(id)) };
}

/** The stream of a job to its end. */
async function follow(id: string): Promise<{ lines: Told["data"][]; end: Told["data"] }> {
  const response = await fetch(`${dev.url}/v1/jobs/${id}/stream`, { signal: AbortSignal.timeout(LONG) });
  const lines: Told["data"][] = [];
  for await (const { event, data } of readEvents(response.body as unknown as AsyncIterable<Uint8Array>)) {
    if (event === "log") lines.push(data);
    if (event === "end") return { lines, end: data };
  }
  throw new Error("The stream broke off");
}

/** Every process with one of the words in its working directory, its arguments or its environment. */
function processesOf(...words: string[]): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    const pid = Number(entry);
    if (!pid || pid === process.pid) return [];
    try {
      const told = ["cmdline", "environ"].map((file) => fs.readFileSync(`/proc/${pid}/${file}`, "latin1"));
      told.push(fs.readlinkSync(`/proc/${pid}/cwd`));
      return words.some((word) => told.some((text) => text.includes(word))) ? [pid] : [];
    } catch {
      return [];
    }
  });
}
