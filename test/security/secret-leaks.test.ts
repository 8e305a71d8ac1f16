// Searches for secrets of a job, its worker and its client wherever anything is written, in every encoding. Each secret
// is unique to the run, so every match is a leak. A control that is not registered shows that the search works.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { newSealKey, pipeline, secret } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { routes } from "../../src/server/routes.ts";
import { waitFor } from "../../src/testing/index.ts";
import { Fatal, implement } from "../../src/worker/index.ts";
import { connect, openStillwake } from "../support/database/connections.ts";
import { startPostgresServer } from "../support/database/postgres-server.ts";
import { startReceiver } from "../support/fakes/webhook-receiver.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { waitForEnd } from "../support/processes/fault-checks.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

/** Long enough to be truncated, with characters that URLs, JSON and regular expressions escape. */
const canary = (name: string) => `${name}-"/+${randomBytes(20).toString("hex")}\\?é=`;
/** For values where such characters are not allowed. */
const plainCanary = (name: string) => `${name}${randomBytes(20).toString("hex")}`;

const control = canary("control");
const seed = canary("header");
const git = plainCanary("git");
const header = [...seed].reverse().join("");
const canaries: Record<string, string> = {
  sealed: canary("sealed"),
  reference: canary("reference"),
  "sealed in a list": canary("listed"),
  "sealed in a list, the second": canary("listed2"),
  header,
  "git URL": [...git].reverse().join(""),
  "seal key": newSealKey(),
  "password of the database": plainCanary("password"),
  "key of the store": plainCanary("store"),
  "end: failure": canary("failure"),
  "end: pause": canary("pause"),
  "end: limit": canary("limit"),
};

/** The encodings to search for, and parts of 16 consecutive characters. */
const encodings: Record<string, (text: string) => string[]> = {
  raw: (text) => [text],
  "base64, first offset": (text) => [base64At(text, 0)],
  "base64, second offset": (text) => [base64At(text, 1)],
  "base64, third offset": (text) => [base64At(text, 2)],
  base64url: (text) => [0, 1, 2].map((offset) => base64At(text, offset).replaceAll("+", "-").replaceAll("/", "_")),
  URL: (text) => [encodeURIComponent(text)],
  hex: (text) => [Buffer.from(text).toString("hex")],
  JSON: (text) => [escaped(text), escaped(escaped(text))],
  "in parts": (text) => [...windows(text), ...windows(base64At(text, 0))],
};

// The log of Postgres contains every statement with its values.
const server = await startPostgresServer({ log_statement: "all" });
const client = await connect(server.url);
const stillwake = openStillwake(server.url, { sealKeys: `k1:${canaries["seal key"]}` });
const sinks: Record<string, string> = {};

beforeAll(async () => {
  await client.query("set log_statement = none");
  await client.query(`create role canary login password '${canaries["password of the database"]}'`);
  await client.query("grant stillwake_worker to canary");
}, 60_000);

describe("no secret is found", () => {
  it("in anything that jobs, workers and clients write, in any encoding", {
    timeout: 120_000,
  }, async () => {
    const receiver = await startReceiver();
    const worker = await startCanaryWorker();
    const seen = watchProcesses(worker);
    await stillwake.webhooks.set("full", { url: `${receiver.url}/hook`, body: "full" });
    const input = {
      sealed: canaries.sealed,
      reference: secret("canary"),
      accounts: [{ key: canaries["sealed in a list"] }, { key: canaries["sealed in a list, the second"] }],
      seed,
      git,
    };
    const contract = pipeline("canary", { sealed: ["sealed", "reference", "accounts.*.key"] });
    const ending = pipeline("canary-end", { sealed: ["sealed"] });
    const { id } = await stillwake.enqueue(contract, input, { webhook: { endpoint: "full" } });
    const others: string[] = [];
    for (const how of ["failure", "pause", "limit"]) {
      const input = { sealed: canaries[`end: ${how}`], how };
      others.push((await stillwake.enqueue(ending, input, { webhook: { endpoint: "full" } })).id);
    }
    await waitFor(async () => (await stillwake.get(id)).waitingFor === "event", {
      timeout: 60_000,
      what: "the job to have written everything",
    });
    await stillwake.signal(id, "go", { by: "the test" });
    const job = await waitForEnd(stillwake, id, 60_000);
    expect({ state: job.state, attempt: job.attempt }, JSON.stringify(job.failure)).toEqual({
      state: "completed",
      attempt: 3,
    });
    await waitForEnd(stillwake, others[0]!);
    for (const [place, wanted] of [
      [1, "paused"],
      [2, "queued"],
    ] as const)
      await waitFor(async () => (await stillwake.get(others[place]!)).state === wanted, { what: wanted });
    await receiver.gets(2);
    await gather(worker, receiver.received, seen(), [id, ...others]);

    // Control: all sinks were searched.
    expect(sinks["worker's stdout"]).toContain("last output");
    expect(sinks["view logs"]).toContain("after the signal: ***");
    expect(sinks["webhooks as received"]).toContain('"output":');
    expect(sinks["command lines"]).toContain("runner.js");
    expect(Object.keys(sinks).length).toBeGreaterThanOrEqual(20);

    const found = search(canaries, (name, sink) => name === "git URL" && sink === "command lines");
    const forms = Object.keys(encodings).length;
    const searched = `${Object.keys(canaries).length} canaries × ${Object.keys(sinks).length} sinks × ${forms} encodings`;
    recordFigure("secrets found in a sink", found.length, "", searched);
    expect(found).toEqual([]);
  });

  it("but the control is found in every encoding", () => {
    const base64 = (text: string, kind: BufferEncoding = "base64") => Buffer.from(text).toString(kind);
    const written: Record<string, string> = {
      raw: `token ${control} there`,
      "base64, first offset": base64(`${control} there`),
      "base64, second offset": base64(`x${control} there`),
      "base64, third offset": base64(`xy${control} there`),
      base64url: base64(`user:${control} there`, "base64url"),
      URL: `?q=${encodeURIComponent(control)}&r`,
      hex: base64(control, "hex"),
      JSON: JSON.stringify({ deep: JSON.stringify({ control }) }),
      "in parts": `${control.slice(0, 20)}\n${control.slice(20)}`,
    };
    for (const [encoding, text] of Object.entries(written)) {
      const found = searchIn({ control }, { made: text });
      expect(found.map((one) => one.encoding)).toContain(encoding);
    }
    expect(Object.keys(written)).toEqual(Object.keys(encodings));
  });

  it("but an unregistered control is found in every sink that it reaches", async () => {
    const worker = await startCanaryWorker();
    const open = pipeline("canary-child", { retry: { attempts: 1 } });
    await client.query(`select stillwake.register_pipeline('canary-child', '{"sealed":[]}')`);
    // The worker redacts values at sealed paths; elsewhere they are ordinary data.
    const { id } = await stillwake.enqueue(open, { note: control });
    await waitForEnd(stillwake, id, 20_000);
    const tables = await tableTexts();
    expect(searchIn({ control }, tables).map(({ sink }) => sink)).toContain("table ended_jobs");
    expect(searchIn({ control }, { log: server.log() }).length).toBeGreaterThan(0);
    worker.signal("SIGTERM");
    await worker.exited;
  });
});

describe("traces", () => {
  it("contain no secret, neither in spans of attempts nor of steps", async () => {
    const exporter = new InMemorySpanExporter();
    const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
    trace.setGlobalTracerProvider(provider);
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    onTestFinished(async () => {
      await provider.shutdown();
      trace.disable();
      context.disable();
    });
    const { createWorker } = await import("../../src/worker/index.ts");
    const contract = pipeline<{ token: string }>("canary-traced", {
      pool: "traced",
      sealed: ["token"],
      retry: { attempts: 1 },
    });
    const code = implement(contract, async (job, { token }) => {
      await job.optional("may fail", () => Promise.reject(new Error(`in a step ${token}`)));
      throw new Fatal(`at last ${token}`, { code: token, cause: new Error(token) });
    });
    const sealKeys = `k1:${canaries["seal key"]}`;
    const worker = createWorker({
      url: server.url,
      pool: "traced",
      directUrl: false,
      pipelines: [code],
      sealKeys,
    });
    onTestFinished(() => worker.stop());
    await worker.start();
    const { id } = await stillwake.enqueue(contract, { token: canaries.sealed! });
    await waitForEnd(stillwake, id);
    const spans = exporter.getFinishedSpans().map(({ name, attributes, status, events }) => {
      return JSON.stringify({ name, attributes, status, events });
    });
    const text = spans.join("\n");
    expect(text).toContain("stillwake attempt canary-traced");
    expect(text).toContain("at last ***");
    expect(text).toContain("in a step ***");
    expect(searchIn(canaries, { traces: text })).toEqual([]);
    expect(searchIn({ name: "canary-traced" }, { traces: text }).length).toBeGreaterThan(0);
  });
});

describe("the keys and the secrets of a worker", () => {
  it("stay in the keeper: the runner receives only its opened input", async () => {
    const key = newSealKey();
    const token = plainCanary("runner");
    await startWorker({
      url: server.url,
      pipelines: path.join(ROOT, "test/fixtures/pipelines/environment.mjs"),
      env: { STILLWAKE_SEAL_KEYS: `k1:${key}`, SAME_KEY: key, STILLWAKE_SECRET_GITHUB: token, SHOWN_TO_JOBS: "yes" },
    });
    const { id } = await stillwake.enqueue(pipeline("environment"), {});
    const { output } = await waitForEnd(stillwake, id);
    expect(output).toMatchObject({ shown: "yes" });
    expect(searchIn({ key, token }, { output: JSON.stringify(output) })).toEqual([]);
  });
});

async function startCanaryWorker(): Promise<WorkerProcess> {
  const url = new URL(server.url);
  url.username = "canary";
  url.password = canaries["password of the database"]!;
  const config = path.join(fs.mkdtempSync("/tmp/stillwake-canary-"), "stillwake.config.mjs");
  onTestFinished(() => fs.rmSync(path.dirname(config), { recursive: true, force: true }));
  fs.writeFileSync(config, 'export default { webhooks: { allowHttp: true, allow: ["127.0.0.1/32 *"] } };');
  return startWorker({
    url: String(url),
    pipelines: path.join(ROOT, "test/fixtures/pipelines/canaries.mjs"),
    args: ["--slots", "2", "--metrics-port", "0", "--config", config, "--log-level", "trace"],
    env: {
      STILLWAKE_SEAL_KEYS: `k1:${canaries["seal key"]}`,
      STILLWAKE_SECRET_CANARY: canaries.reference!,
      STILLWAKE_STORE_ACCESS_KEY_ID: "id",
      STILLWAKE_STORE_SECRET_ACCESS_KEY: canaries["key of the store"]!,
      FORCE_COLOR: "0",
    },
  });
}

/** Command lines of all descendants of the worker, and the environment of its runners, sampled over time. */
function watchProcesses(worker: WorkerProcess): () => { lines: string; environments: string } {
  const lines = new Set<string>();
  const environments = new Set<string>();
  const look = () => {
    for (const pid of below(worker.pid)) lines.add(read(`/proc/${pid}/cmdline`));
    for (const pid of worker.runners()) environments.add(read(`/proc/${pid}/environ`));
  };
  const timer = setInterval(look, 20);
  onTestFinished(() => clearInterval(timer));
  return () => {
    clearInterval(timer);
    return { lines: [...lines].join("\n"), environments: [...environments].join("\n") };
  };
}

function below(pid: number): number[] {
  const children = read(`/proc/${pid}/task/${pid}/children`).trim().split(" ").filter(Boolean).map(Number);
  return [pid, ...children.flatMap(below)];
}

function read(file: string): string {
  try {
    return fs.readFileSync(file, "utf8").replaceAll("\0", " ");
  } catch {
    return "";
  }
}

/** All responses of the API, and all streams to their end. */
async function gatherFromServer(jobs: string[]): Promise<void> {
  await using door = createServer({ url: server.url, auth: "none" });
  const ask = async (what: string) => (await door.fetch(new Request(`http://127.0.0.1${what}`))).text();
  const states = await Promise.all(jobs.map(async (id) => (await stillwake.get(id)).state));
  for (const { method, path: where } of routes) {
    if (method !== "GET" || where.includes(":")) continue;
    sinks[`GET ${where}`] = await ask(where);
  }
  for (const part of ["", "/attempts", "/steps?outputs=true", "/children", "/logs", "/artifacts", "/webhooks"]) {
    sinks[`GET /v1/jobs/:id${part}`] = (await Promise.all(jobs.map((id) => ask(`/v1/jobs/${id}${part}`)))).join("\n");
  }
  // A stream ends with its job; streams of unfinished jobs are aborted.
  const ended = jobs.filter((_, index) => ["completed", "failed", "cancelled"].includes(states[index]!));
  expect(ended.length).toBeGreaterThan(0);
  sinks["GET /v1/jobs/:id/stream"] = (await Promise.all(ended.map((id) => ask(`/v1/jobs/${id}/stream`)))).join("\n");
}

/** Everything that was written. Add new sinks here. */
async function gather(
  worker: WorkerProcess,
  received: { path: string; headers: Record<string, string>; body: string }[],
  { lines, environments }: { lines: string; environments: string },
  jobs: string[],
): Promise<void> {
  const { address } = (await worker.waitForLine("http")) as unknown as { address: string };
  const ask = async (what: string) => (await fetch(`${address}${what}`)).text();
  sinks["worker's metrics"] = await ask("/metrics");
  sinks["worker's health"] = await ask("/health");
  sinks["job as read"] = JSON.stringify(await Promise.all(jobs.map((id) => stillwake.get(id))));
  sinks["list as read"] = JSON.stringify(await stillwake.list());
  sinks["log as read"] = JSON.stringify(await Promise.all(jobs.map((id) => stillwake.logs(id))));
  sinks["artifacts as read"] = JSON.stringify(await Promise.all(jobs.map((id) => stillwake.artifacts(id))));
  sinks["webhooks as read"] = JSON.stringify(await stillwake.webhooks.list());
  sinks["breakers as read"] = JSON.stringify(await stillwake.flow.breakers());
  await gatherFromServer(jobs);
  sinks["webhooks as received"] = received.map((one) => JSON.stringify(one.headers) + one.path + one.body).join("\n");
  sinks["command lines"] = lines;
  sinks["environment of runners"] = environments;
  Object.assign(sinks, await tableTexts());
  worker.signal("SIGTERM");
  await worker.exited;
  sinks["worker's stdout"] = worker.lines.map((line) => JSON.stringify(line)).join("\n");
  sinks["worker's stderr"] = worker.stderr();
  const left = fs.readdirSync(worker.scratch, { recursive: true, withFileTypes: true });
  sinks["names of files left"] = left.map((entry) => path.join(entry.parentPath, entry.name)).join("\n");
  sinks["files left"] = left
    .filter((entry) => entry.isFile())
    .map((entry) => read(path.join(entry.parentPath, entry.name)))
    .join("\n");
  sinks["log of Postgres"] = server.log();
}

/** Every table and view of the schema, as text. */
async function tableTexts(): Promise<Record<string, string>> {
  const { rows } = await client.query(
    "select relname as name, case relkind when 'v' then 'view' else 'table' end as kind from pg_class where relnamespace = 'stillwake'::regnamespace and relkind in ('r', 'p', 'v') and not relispartition order by 1",
  );
  const texts: Record<string, string> = {};
  for (const { name, kind } of rows) {
    const { rows: all } = await client.query(`select t::text as row from stillwake.${name} t`);
    texts[`${kind} ${name}`] = all.map(({ row }) => row).join("\n");
  }
  return texts;
}

interface Found {
  canary: string;
  sink: string;
  encoding: string;
  around: string;
}

function search(wanted: Record<string, string>, allowed: (canary: string, sink: string) => boolean): Found[] {
  return searchIn(wanted, sinks).filter((found) => !allowed(found.canary, found.sink));
}

function searchIn(wanted: Record<string, string>, texts: Record<string, string>): Found[] {
  const found: Found[] = [];
  for (const [name, text] of Object.entries(wanted)) {
    for (const [encoding, forms] of Object.entries(encodings)) {
      for (const [sink, content] of Object.entries(texts)) {
        const at = forms(text)
          .map((form) => content.indexOf(form))
          .find((place) => place >= 0);
        if (at === undefined) continue;
        found.push({ canary: name, sink, encoding, around: content.slice(Math.max(0, at - 100), at + 100) });
      }
    }
  }
  return found;
}

/** The part of the base64 of a text that does not depend on its surroundings. */
function base64At(text: string, offset: number): string {
  const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(text)]);
  const whole = bytes.toString("base64").replaceAll("=", "");
  return whole.slice(offset === 0 ? 0 : offset + 1, bytes.length % 3 === 0 ? undefined : -1);
}

function windows(text: string): string[] {
  return Array.from({ length: Math.max(0, text.length - 15) }, (_, at) => text.slice(at, at + 16));
}

function escaped(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}
