// `stillwake dev` without pipelines, as real processes with the embedded Postgres. The tests share one directory and run
// in order: first start, the two demo pipelines, Ctrl-C during a job, a closed terminal, the start that resumes.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { readEvents, type SseEvent } from "../../src/text/sse.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const dir = temporaryDirectory("dev");
/** Identifies the child process of the job by its arguments. */
const harbour = `Harbour ${path.basename(dir)}`;
const LONG = 60_000;
const DEV = [process.execPath, path.join(ROOT, "dist/cli/index.js"), "dev"];
const addressFile = path.join(dir, ".stillwake/dev.json");
/** The reason to skip tests that need a terminal; `script` of other systems has other options. */
const noTerminal = /util-linux/.test(String(spawnSync("script", ["--version"]).stdout))
  ? ""
  : "script of util-linux is not installed";
let dev: Dev;
/** Run concurrently, because they take long. */
let survivor: ReturnType<typeof run>;
let report: ReturnType<typeof run>;

beforeAll(() => buildPackage());
afterAll(() => {
  for (const pid of processesOf(dir, harbour)) process.kill(pid, "SIGKILL");
});

describe("the first start", { timeout: 2 * LONG }, () => {
  it("tries the next port, and prints its URL, what to do next and how to stop", async () => {
    const holder = net.createServer().listen(0, "127.0.0.1");
    await once(holder, "listening");
    const { port } = holder.address() as net.AddressInfo;
    const startedAt = performance.now();
    dev = await start(DEV, { STILLWAKE_PORT: String(port) });
    recordFigure(
      "dev: first start to the banner",
      (performance.now() - startedAt) / 1000,
      "s",
      "a new Postgres, 5 runners",
    );
    holder.close();
    const taken = "( {2}Port \\d+ is in use, trying \\d+\\.\\n)+";
    const lines =
      " {2}Stillwake \\S+ is at \\S+\\n {2}Open it .* demo-survivor .* demo-report\\.\\n {2}Stop with Ctrl-C\\. .*\\n";
    expect(dev.output()).toMatch(new RegExp(`^${taken}\\n${lines}\\n$`));
    expect(dev.output()).toContain(`  Port ${port} is in use, trying ${port + 1}.\n`);
    expect(Number(new URL(dev.url).port)).toBeGreaterThan(port);
  });

  it("has enqueued one demo job", async () => {
    expect(await jobs("demo-survivor")).toHaveLength(1);
    expect(await jobs("demo-report")).toHaveLength(0);
    survivor = run("demo-survivor", { seconds: 2 });
    report = run("demo-report", { seconds: 2 });
    // The tests that await them report a failure.
    for (const job of [survivor, report]) job.catch(() => {});
  });

  it("a second one in the same directory is refused with the address of the first", async () => {
    const { PATH = "", HOME = "" } = process.env;
    const [program = "", ...args] = DEV;
    const second = spawn(program, args, { cwd: dir, env: { PATH, HOME, STILLWAKE_PORT: "0" } });
    let output = "";
    for (const stream of [second.stdout, second.stderr]) stream.on("data", (data) => (output += data));
    expect(await once(second, "close"), output).toEqual([1, null]);
    expect(output).toMatch(
      /^DEV_RUNNING: stillwake dev is already running in \.stillwake, at (\S+)\. Use that one, or /,
    );
    expect(output).toContain(`at ${dev.url}. `);
    expect(JSON.parse(fs.readFileSync(addressFile, "utf8"))).toMatchObject({ pid: dev.pid, url: dev.url });
  });

  it("doctor and fleet find its database", () => {
    const { PATH = "", HOME = "" } = process.env;
    const [program = "", file = ""] = DEV;
    for (const [command, stdout] of [
      ["doctor", /^ok {4}connection/],
      ["fleet", /^Fleet \w+/],
    ] as const) {
      const ran = spawnSync(program, [file, command], { cwd: dir, env: { PATH, HOME }, encoding: "utf8" });
      expect(ran).toMatchObject({ status: 0, stderr: "Using the database of stillwake dev.\n" });
      expect(ran.stdout).toMatch(stdout);
    }
  });

  it("demo-survivor kills its runner once, and the next attempt resumes from its checkpoints", async () => {
    const { id, lines, end } = await survivor;
    expect(end).toMatchObject({ state: "completed", output: { items: 10, attempts: 2 } });
    expect(end.output.startedBy).not.toBe(end.output.finishedBy);
    const { attempts } = await request(`/v1/jobs/${id}/attempts`);
    expect(attempts).toMatchObject([
      { outcome: "lost", failure: { code: "RUNNER_KILLED", message: "The runner was killed by SIGKILL" } },
      { outcome: "completed" },
    ]);
    const messages = lines.map(({ message }) => message);
    const count = (pattern: RegExp) => messages.filter((message) => pattern.test(message)).length;
    // Work that was saved before the kill was done once: the step, and each item.
    expect(count(/^Prepared batch/)).toBe(1);
    for (let item = 1; item <= 10; item++) expect(count(new RegExp(`^Item ${item} of 10 is done$`))).toBe(1);
    const order = [
      "Preparing a batch",
      `Prepared batch ${end.output.batch}`,
      "Item 5 of 10",
      "Item 6: this runner",
      "The runner was killed by SIGKILL",
      "Attempt 2 resumes",
      "Item 6 of 10",
      "Finished batch",
    ].map((start) => messages.findIndex((message) => message.startsWith(start)));
    expect(order).toEqual(order.toSorted((a, b) => a - b));
    expect(order[0]).toBe(0);
  });

  it("demo-report runs with default inputs: steps, a child process, a failed optional step, progress, an artifact", async () => {
    const { pipelines } = await request("/v1/pipelines");
    const { inputSchema } = pipelines.find(({ name }: { name: string }) => name === "demo-report");
    expect(inputSchema.required ?? []).toEqual([]);
    for (const field of Object.values<object>(inputSchema.properties)) {
      expect(field).toMatchObject({ title: expect.any(String), description: expect.any(String) });
      expect(field).toHaveProperty("default");
    }
    const { id, lines, end } = await report;
    expect(end).toMatchObject({ state: "completed", output: { harbour: "Stillwater", readings: 400 } });
    const job = await request(`/v1/jobs/${id}`);
    expect(job).toMatchObject({ missing: ["weather"], attempt: 1, progress: { done: 400, total: 400 } });
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.objectContaining({
          level: "info",
          step: "gauge",
          message: expect.stringMatching(/^Day 17: 16 readings/),
        }),
        expect.objectContaining({
          level: "warning",
          step: "weather",
          message: expect.stringMatching(/cannot be reached/),
        }),
        expect.objectContaining({ step: "checking", data: expect.objectContaining({ off_cm: expect.any(Number) }) }),
        expect.objectContaining({ level: "success", message: expect.stringMatching(/^Highest water: \d\.\d\d m/) }),
      ]),
    );
    const outliers = lines.filter(({ message }) => /deviates by/.test(message));
    expect(end.output.outliers).toBe(outliers.length);
    const page = await (await fetch(`${dev.url}/v1/jobs/${id}/artifacts/${end.output.report}`)).text();
    expect(page).toContain("<h1>Tides of Stillwater</h1>");
    expect(page.match(/<circle /g)).toHaveLength(outliers.length);
    expect(page).toContain(`Highest water<td>${end.output.highest.toFixed(2)} m`);
  });
});

describe("the shutdown", { timeout: 2 * LONG }, () => {
  let interrupted: string;
  let address: string;
  let releases = 0;

  it("Ctrl-C during a followed job stops everything that was started", async () => {
    address = fs.readFileSync(addressFile, "utf8");
    ({ id: interrupted } = await request("/v1/jobs", { pipeline: "demo-report", input: { harbour, seconds: 5 } }));
    const watching = follow(interrupted).catch(() => {});
    await waitFor(() => processesOf(harbour).length > 0, { timeout: LONG, what: "the program of the job" });
    const startedAt = performance.now();
    dev.interrupt();
    expect(await dev.closed).toEqual([0, null]);
    recordFigure(
      "dev: Ctrl-C to the prompt",
      performance.now() - startedAt,
      "ms",
      "two jobs, a program and a stream open",
    );
    expect(dev.output()).toMatch(/Releasing \d jobs?; (it resumes|they resume) at the next start\.\n$/);
    expect(processesOf(harbour, `-${dev.pid}-`)).toEqual([]);
    // The watchdog shell of Postgres may take a moment.
    await waitFor(() => processesOf(dir).length === 0, { timeout: LONG, what: "the end of all processes" });
    expect(fs.existsSync(addressFile)).toBe(false);
    await watching;
    releases++;
  });

  it.skipIf(noTerminal)(`a closed terminal releases the jobs too${noTerminal ? ` (${noTerminal})` : ""}`, async () => {
    // Like the file of a killed process.
    fs.writeFileSync(addressFile, address);
    // The shell forwards SIGHUP and waits.
    const shell = `trap 'kill -HUP $!' HUP; ${DEV.join(" ")} & wait $!; wait $!; echo $? > ended`;
    dev = await start(["script", "-q", "-f", "-c", shell, "/dev/null"], { STILLWAKE_PORT: "0" });
    const isRunning = async () => (await request(`/v1/jobs/${interrupted}`)).state === "running";
    await waitFor(isRunning, { timeout: LONG, what: "the job to resume" });
    dev.closeTerminal();
    await waitFor(() => processesOf(dir, harbour).length === 0, { timeout: LONG, what: "the end of all processes" });
    expect(fs.readFileSync(path.join(dir, "ended"), "utf8")).toBe("0\n");
    expect(fs.existsSync(addressFile)).toBe(false);
    releases++;
  });

  it("npm start resumes the job from its checkpoints, and enqueues no demo job again", async () => {
    const survivors = 2;
    // npm forwards Ctrl-C in addition to the terminal.
    dev = await start(["npm", "start"], { STILLWAKE_PORT: "0", STILLWAKE_DIR: path.join(dir, ".stillwake") }, ROOT);
    expect(dev.output()).toMatch(/\n {2}Open it, press Enqueue, and start demo-report or demo-survivor\.\n/);
    expect(await jobs("demo-survivor")).toHaveLength(survivors);
    const { lines, end } = await follow(interrupted);
    expect(end).toMatchObject({ state: "completed", output: { harbour } });
    const { attempts } = await request(`/v1/jobs/${interrupted}/attempts`);
    expect(attempts).toMatchObject([
      ...Array.from({ length: releases }, () => ({ attempt: 1, outcome: "released" })),
      { attempt: 1, outcome: "completed" },
    ]);
    expect(lines.filter(({ message }) => /^Opened the logbook/.test(message))).toHaveLength(1);
    dev.interrupt();
    // The exit code of npm does not matter.
    await dev.closed;
    await waitFor(() => processesOf(dir, harbour, `-${dev.pid}-`).length === 0, { timeout: LONG, what: "its end" });
  });
});

interface Dev {
  url: string;
  /** Process id of the program, not of npm or its shell. */
  pid: number;
  output(): string;
  closed: Promise<unknown[]>;
  /** Sends SIGINT to the process group, like a terminal. */
  interrupt(): void;
  /** For a program that was started on a terminal. */
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
  // A terminal ends lines with \r\n.
  const output = () => Buffer.concat(parts).toString().replaceAll("\r\n", "\n");
  const closed = once(child, "close");
  await waitFor(() => /Stop with Ctrl-C.*\n\n$/.test(output()) || child.exitCode !== null, { timeout: LONG });
  const [, url = ""] = /is at (\S+)\n/.exec(output()) ?? [];
  expect(url, output()).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  const { pid, database } = JSON.parse(fs.readFileSync(addressFile, "utf8"));
  expect(database).toMatch(/^postgres:\/\/postgres:[\w-]+@127\.0\.0\.1:\d+\/postgres$/);
  expect(fs.statSync(addressFile).mode & 0o077).toBe(0);
  const interrupt = () => void process.kill(-child.pid!, "SIGINT");
  return { url, pid, output, closed, interrupt, closeTerminal: () => void child.kill("SIGKILL") };
}

// biome-ignore lint/suspicious/noExplicitAny: the JSON of the API.
async function request(path: string, body?: object): Promise<any> {
  const post = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await fetch(`${dev.url}${path}`, post);
  expect(response.status, path).toBeLessThan(300);
  return response.json();
}

async function jobs(pipeline: string): Promise<object[]> {
  return (await request(`/v1/jobs?pipeline=${pipeline}`)).jobs;
}

async function run(pipeline: string, input: object) {
  const { id } = await request("/v1/jobs", { pipeline, input });
  return { id, ...(await follow(id)) };
}

/** Follows a job to its end. */
async function follow(id: string): Promise<{ lines: SseEvent["data"][]; end: SseEvent["data"] }> {
  const response = await fetch(`${dev.url}/v1/jobs/${id}/stream`, { signal: AbortSignal.timeout(LONG) });
  const lines: SseEvent["data"][] = [];
  for await (const { event, data } of readEvents(response.body as unknown as AsyncIterable<Uint8Array>)) {
    if (event === "log") lines.push(data);
    if (event === "end") return { lines, end: data };
  }
  throw new Error("The stream ended early");
}

/** Every process with one of the texts in its working directory, its arguments or its environment. */
function processesOf(...texts: string[]): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    const pid = Number(entry);
    if (!pid || pid === process.pid) return [];
    try {
      const facts = ["cmdline", "environ"].map((file) => fs.readFileSync(`/proc/${pid}/${file}`, "latin1"));
      facts.push(fs.readlinkSync(`/proc/${pid}/cwd`));
      return texts.some((text) => facts.some((fact) => fact.includes(text))) ? [pid] : [];
    } catch {
      return [];
    }
  });
}
