// stillwake dev, also `npm start`: Postgres, migrations, workers, the API and the dashboard on this machine. Runs the project's pipelines,
// or two demo pipelines when there are none. Ctrl-C releases jobs and stops everything; the jobs resume at the next start.
import { randomBytes } from "node:crypto";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Stillwake } from "../../client/client.ts";
import type { DevPart, StillwakeConfig } from "../../client/define-config.ts";
import { type Config, processEnvironment } from "../../config.ts";
import { migrate } from "../../db/migrate.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type EmbeddedPostgres, startPostgres } from "../../postgres/index.ts";
import { createServer, type Listening, type StillwakeServer } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { version } from "../../version.ts";
import { createWorker, openStore, type Worker } from "../../worker/index.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { formatEmptyModule } from "../../worker/runner/load-pipelines.ts";
import { ApiClient } from "../api-client.ts";
import { parseInteger, parseJson, parsePort } from "../arguments.ts";
import type { CommandContext } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import { checkSecretSetting } from "../connection.ts";
import type { Flags } from "../flags.ts";
import { followJob } from "../output/follow.ts";
import type { Screen } from "../output/screen.ts";
import { withWaitNotice } from "../output/wait-notice.ts";
import { readDevAddress, writeDevAddress } from "./address.ts";
import { createDevMachines, type DevMachines, formatRelease, type ProjectPools } from "./machines.ts";
import { onStopSignals } from "./stop.ts";

/** Key of the job of --enqueue: an unfinished job of an earlier start is joined. */
const FOLLOWED_KEY = "stillwake dev";
/** How long jobs may take to react to Ctrl-C before their runners are killed. They are released either way. */
const GRACE = "1500ms";
/** How long open requests may take at the end. */
const REQUEST_MS = 500;
/** Duration of the first demo job: long enough to open a browser before its runner is killed. */
const FIRST_SECONDS = 24;
/** How long to wait for the Postgres of another process to stop, or for its `stillwake dev` to write its address. */
const TAKEN_MS = 30_000;
/** Machines for the pool of demo-report. */
const DEMO_POOLS = { reports: { max: 3, idleExit: "30s" } } as const;
const DEMO = ["survivor", "report"].map((name) => fileURLToPath(new URL(`../demo/${name}.js`, import.meta.url)));

interface Project {
  /** Options of the workers. */
  worker: Pick<WorkerOptions, "pipelines"> & Partial<WorkerOptions>;
  /** The pools that have machines. */
  pools: ProjectPools;
  config: string | undefined;
  /** Whether the demo pipelines are loaded: without pipelines in the project, or with --demo. */
  hasDemo: boolean;
  part: StillwakeConfig["dev"];
}

/** What has to be closed at the end. */
interface Open {
  postgres?: EmbeddedPostgres;
  server?: StillwakeServer;
  workers: Worker[];
  machines?: DevMachines;
  part?: DevPart | undefined;
  removeAddress?: () => Promise<void>;
}

export async function runDev(context: CommandContext): Promise<number> {
  const { flags, screen } = context;
  const input = parseJson(flags.input, "input");
  if (input !== undefined && !flags.enqueue) {
    throw new InvalidInput("--input requires --enqueue", { remedy: "Write --enqueue <pipeline> --input @file" });
  }
  const config: Config = {
    ...context.config,
    databaseUrl: flags.url ?? context.config.databaseUrl,
    schema: flags.schema ?? context.config.schema,
    port: flags.port === undefined ? context.config.port : parsePort(flags.port),
  };
  const project = await readProject(flags);
  const open: Open = { workers: [] };
  const stopping = onStopSignals(() => close(open), Boolean(config.underNpm));
  try {
    const server = await start(open, config, project, screen, !flags.enqueue);
    if (flags.enqueue) await enqueueAndFollow(context, server, flags.enqueue, input);
  } catch (error) {
    // Errors during the shutdown are caused by it.
    if (!stopping.begun) {
      await close(open);
      throw error;
    }
  }
  return 0;
}

async function readProject(flags: Flags): Promise<Project> {
  const file = await loadConfigFile(flags.config);
  const { store, scratch, webhooks, lease, env, ...others } = file as Partial<WorkerOptions>;
  const pipelines = flags.pipelines ?? (others.pipelines as string | string[] | undefined);
  const hasDemo = pipelines === undefined || flags.demo === true;
  return {
    worker: {
      pipelines: [...(hasDemo ? DEMO : []), ...[pipelines ?? []].flat()],
      ...(store && { store }),
      ...(scratch && { scratch }),
      ...(lease && { lease }),
      ...(env && { env }),
      ...(webhooks !== undefined && { webhooks }),
      slots: parseInteger(flags.slots, "slots") ?? 4,
    },
    pools: { ...(hasDemo && DEMO_POOLS), ...(pipelines === undefined ? {} : (file.pools as ProjectPools)) },
    config: flags.config,
    hasDemo,
    part: file.dev as Project["part"],
  };
}

async function start(
  open: Open,
  config: Config,
  project: Project,
  screen: Screen,
  mayEnqueueDemo: boolean,
): Promise<StillwakeServer> {
  const { schema } = config;
  if (!config.databaseUrl) open.postgres = await startEmbeddedPostgres(config.dir, screen);
  const url = config.databaseUrl ?? open.postgres!.url;
  await withWaitNotice(
    url,
    (line) => screen.printStderr(line),
    () => migrate({ url, schema }),
  );
  const store = project.worker.store ?? config.store ?? `file:${path.resolve(config.dir, "artifacts")}`;
  // Only with the embedded Postgres: another database may have machines that this process must not start or stop.
  const pools = open.postgres ? project.pools : {};
  let machines: DevMachines | undefined;
  const server = createServer({
    url,
    schema,
    auth: "none",
    ...(Object.keys(pools).length > 0 && { onPoke: () => machines?.poke() }),
    store: openStore(store, config.storeCredentials),
    // Read tokens become invalid with the next start unless STILLWAKE_SECRET is set.
    secret: config.secret ? checkSecretSetting(config.secret) : randomBytes(32).toString("base64url"),
  });
  open.server = server;
  const { stillwake, fetch } = server;
  open.part = await project.part?.({
    url,
    schema,
    embedded: open.postgres !== undefined,
    dir: path.resolve(config.dir),
    stillwake,
    fetch: (request) => fetch(request),
  });
  // The embedded Postgres is for this project alone, so its code connects to it as it connects to its database elsewhere.
  const env = { ...(open.postgres && { DATABASE_URL: url }), ...open.part?.env };
  machines = createDevMachines({ url, schema, store, pools, dir: config.dir, env, project }, screen);
  if (machines) open.machines = machines;
  const credentials = config.storeCredentials && { storeCredentials: config.storeCredentials };
  const worker = { ...project.worker, environment: { ...processEnvironment(), ...env } };
  await startWorkers(open, { url, schema, grace: GRACE, ...credentials, ...worker, store }, stillwake, screen);
  await machines?.start();
  const listening = await listenOnFreePort(server, config.port, screen);
  const database = open.postgres ? url : withoutPassword(url);
  open.removeAddress = writeDevAddress(config.dir, listening.url, database);
  const demoEnqueued = project.hasDemo && mayEnqueueDemo && (await enqueueDemoOnce(stillwake));
  const lines = [
    `Stillwake ${version} is at ${listening.url}`,
    demoEnqueued
      ? "Open it and watch demo-survivor lose its runner and resume. Then press Enqueue and start demo-report."
      : project.hasDemo
        ? "Open it, press Enqueue, and start demo-report or demo-survivor."
        : "Open it, press Enqueue, and start one of your pipelines. Restart this after you change their code.",
    ...(open.part?.lines ?? []).map(escapeLine),
    `Stop with Ctrl-C. The data stays in ${open.postgres ? config.dir : database}, and jobs resume at the next start.`,
  ];
  screen.print(`\n${lines.map((line) => `  ${line}`).join("\n")}\n`);
  return server;
}

/** A Postgres of another process would stop with that process. One that is just stopping is waited for. */
async function startEmbeddedPostgres(dir: string, screen: Screen): Promise<EmbeddedPostgres> {
  const dataDir = path.resolve(dir, "postgres");
  const deadline = performance.now() + TAKEN_MS;
  for (let isRetry = false; ; isRetry = true) {
    const postgres = await startPostgres({ dir: dataDir });
    if (postgres.owner) return postgres;
    const running = readDevAddress(dir, postgres.url);
    if (running !== undefined) {
      throw new StillwakeError("DEV_RUNNING", `stillwake dev is already running in ${dir}, at ${running}`, {
        remedy: "Use that one, or stop it first; STILLWAKE_DIR=<dir> starts another one with separate data",
      });
    }
    if (performance.now() > deadline) {
      throw new StillwakeError("DEV_RUNNING", `The Postgres in ${dataDir} belongs to another process`, {
        remedy: "Stop that process first; STILLWAKE_DIR=<dir> starts another one with separate data",
      });
    }
    if (!isRetry)
      screen.printStderr(`  The Postgres in ${dataDir} belongs to another process; waiting for it to stop.`);
    await delay(100);
  }
}

/** The first start has a job to show. */
async function enqueueDemoOnce(stillwake: Stillwake): Promise<boolean> {
  const { survivor } = await import("../demo/survivor.ts");
  const { report } = await import("../demo/report.ts");
  for (const { name } of [survivor, report]) {
    const { jobs } = await stillwake.list({ pipeline: name, limit: 1 });
    if (jobs.length > 0) return false;
  }
  await stillwake.enqueue(survivor, { seconds: FIRST_SECONDS });
  return true;
}

/** Starts one worker per pool without machines. The pools are known once the first worker has loaded the pipelines. */
async function startWorkers(open: Open, options: WorkerOptions, stillwake: Stillwake, screen: Screen): Promise<void> {
  const startWorker = async (pool: string) => {
    const worker = createWorker({ ...options, pool });
    const names: string[] = [];
    worker.events.subscribe((event) => {
      if (event.kind === "worker.started") names.push(...event.pipelines);
      // The workers of other pools load the same modules: reported once.
      if (event.kind === "module.empty" && pool === "default")
        screen.printStderr(escapeLine(formatEmptyModule(event.file)));
      if (event.kind === "worker.draining" && event.active > 0) screen.print(formatRelease(event.active));
    });
    open.workers.push(worker);
    await worker.start();
    return names;
  };
  const names = await startWorker("default");
  const machinePools = open.machines?.pools ?? [];
  if (machinePools.includes("default")) await open.workers.pop()?.stop();
  const pipelines = (await stillwake.pipelines()).filter(({ name }) => names.includes(name));
  for (const pool of new Set(pipelines.map((pipeline) => pipeline.pool)))
    if (pool !== "default" && !machinePools.includes(pool)) await startWorker(pool);
}

/** Follows the job of --enqueue to its end. Everything else keeps running. */
async function enqueueAndFollow(
  context: CommandContext,
  server: StillwakeServer,
  pipeline: string,
  input: unknown,
): Promise<void> {
  const { screen } = context;
  const api = new ApiClient({ send: async (request) => server.fetch(request), screen });
  const body = { pipeline, input, key: FOLLOWED_KEY, onConflict: "join" };
  const { id, existing } = await api.call("POST", "/v1/jobs", { body });
  screen.print(existing ? `resuming job ${id} of an earlier start` : `enqueued job ${id}`);
  const code = await followJob({ ...context, flags: {}, api: async () => api }, id);
  if (code < 2)
    screen.print(`\n${code === 0 ? "completed" : "ended"} job ${id}. Stillwake keeps running; stop with Ctrl-C.`);
}

/** Workers first, so that followers see the release of their job; Postgres last. */
async function close({ postgres, server, workers, machines, part, removeAddress }: Open): Promise<void> {
  await removeAddress?.();
  await Promise.all([...workers.map((worker) => worker.stop()), machines?.stop(server?.stillwake)]);
  // The project's web server may use ours. What it cannot close ends with the process.
  await Promise.resolve(part?.close?.()).catch(() => {});
  await server?.close();
  await postgres?.stop();
}

/** The password of a URL may be before the host or in a parameter. */
function withoutPassword(text: string): string {
  const url = new URL(text);
  if (url.password) url.password = "***";
  url.search = "";
  return url.href;
}

/** Tries up to twenty ports. */
async function listenOnFreePort(server: StillwakeServer, first: number, screen: Screen): Promise<Listening> {
  for (let port = first; ; port++) {
    try {
      return await server.listen({ port, graceMs: REQUEST_MS });
    } catch (error) {
      const { cause } = error as { cause?: { code?: string } };
      if (cause?.code !== "EADDRINUSE" || first === 0 || port >= Math.min(first + 20, 65_535)) throw error;
      screen.print(`  Port ${port} is in use, trying ${port + 1}.`);
    }
  }
}
