// stillwake dev, also `npm start`: Postgres, migrations, workers, the API and the dashboard on this machine. Runs the project's pipelines,
// or two demo pipelines when there are none. Ctrl-C releases jobs and stops everything; the jobs resume at the next start.
import { randomBytes } from "node:crypto";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Stillwake } from "../../client/client.ts";
import type { DevPart, StillwakeConfig } from "../../client/define-config.ts";
import { type Config, processEnvironment } from "../../config.ts";
import { splitHosts } from "../../db/hosts.ts";
import { migrate } from "../../db/migrate.ts";
import { InvalidInput, StillwakeError, UnknownPipeline } from "../../errors.ts";
import { isUrlOfCluster } from "../../postgres/cluster.ts";
import { type EmbeddedPostgres, startPostgres } from "../../postgres/index.ts";
import { createServer, type Listening, type StillwakeServer } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { formatPlural } from "../../text/format.ts";
import { findClosest } from "../../text/suggest.ts";
import { version } from "../../version.ts";
import { createWorker, openStore, type Worker } from "../../worker/index.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { findModules, formatEmptyModule } from "../../worker/runner/load-pipelines.ts";
import { ApiClient } from "../api-client.ts";
import { parseInteger, parseJson, parsePort } from "../arguments.ts";
import type { CommandContext } from "../command.ts";
import { findConfigFile, loadConfigFile } from "../config-file.ts";
import { checkSecretSetting } from "../connection.ts";
import type { Flags } from "../flags.ts";
import { followJob } from "../output/follow.ts";
import type { Screen } from "../output/screen.ts";
import { withWaitNotice } from "../output/wait-notice.ts";
import { tryApplySchedules } from "../project-schedules.ts";
import { readDevAddress, writeDevAddress } from "./address.ts";
import { createDevMachines, type DevMachines, formatRelease, type ProjectPools } from "./machines.ts";
import { onStopSignals } from "./stop.ts";
import { type SourceWatch, watchSources } from "./watch.ts";

/** Key of the job of --enqueue: an unfinished job of an earlier start is joined. */
const FOLLOWED_KEY = "stillwake dev";
/** How long jobs may take to react to Ctrl-C before their runners are killed. They are released either way. */
const GRACE = "1500ms" as const;
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
  /** The project's own pipelines, which are watched for changes. */
  ownPipelines: string[];
  /** Whether the demo pipelines are loaded: without pipelines in the project, or with --demo. */
  hasDemo: boolean;
  part: StillwakeConfig["dev"];
  schedules: unknown;
}

/** What has to be closed at the end. */
interface Open {
  postgres?: EmbeddedPostgres;
  server?: StillwakeServer;
  /** Includes those that finish their jobs on old code. */
  workers: Worker[];
  watch?: SourceWatch;
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
  const given = flags.url ?? context.config.databaseUrl;
  const ownPostgres = path.resolve(context.config.dir, "postgres");
  // The application's .env may name the Postgres that this command starts.
  const isOwn = given !== undefined && isUrlOfCluster(ownPostgres, given);
  const config: Config = {
    ...context.config,
    databaseUrl: isOwn ? undefined : given,
    schema: flags.schema ?? context.config.schema,
    port: flags.port === undefined ? context.config.port : parsePort(flags.port),
  };
  for (const { file, names } of context.envFiles) screen.print(`  Read ${file}: ${escapeLine(names.join(", "))}`);
  const project = await readProject(flags);
  const open: Open = { workers: [] };
  const stopping = onStopSignals(() => close(open, screen), Boolean(config.underNpm));
  try {
    const server = await start(open, config, project, { ...context, ownUrl: isOwn ? given : undefined });
    if (flags.enqueue) await enqueueAndFollow(context, server, flags.enqueue, input);
  } catch (error) {
    // Errors during the shutdown are caused by it.
    if (!stopping.begun) {
      await close(open, screen);
      throw error;
    }
  }
  return 0;
}

/** `reload`: the number of changes of the configuration file so far. */
async function readProject(flags: Flags, reload = 0): Promise<Project> {
  const file = await loadConfigFile(flags.config, reload);
  const { store, scratch, webhooks, lease, env, ...others } = file as Partial<WorkerOptions>;
  const pipelines = flags.pipelines ?? (others.pipelines as string | string[] | undefined);
  const hasDemo = pipelines === undefined || flags.demo === true;
  const ownPipelines = [pipelines ?? []].flat();
  return {
    ownPipelines,
    worker: {
      pipelines: [...(hasDemo ? DEMO : []), ...ownPipelines],
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
    schedules: file.schedules,
  };
}

async function start(
  open: Open,
  config: Config,
  project: Project,
  { flags, screen, ownUrl }: CommandContext & { ownUrl: string | undefined },
): Promise<StillwakeServer> {
  const { schema } = config;
  if (!config.databaseUrl) open.postgres = await startEmbeddedPostgres(config.dir, screen, ownUrl);
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
  // No worker of this start runs yet, and the embedded Postgres has none of other machines.
  const left = open.postgres ? (await stillwake.list({ state: "running", limit: 100 })).jobs.length : 0;
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
  const shared = { url, schema, grace: GRACE, ...credentials, environment: { ...processEnvironment(), ...env } };
  const sealKeys = config.sealKeys && { sealKeys: config.sealKeys };
  const print = (level: "info" | "warn", line: string) =>
    level === "info" ? screen.printVerbose(line) : screen.printStderr(`  ${escapeLine(line)}`);
  const startNew = async ({ worker, schedules }: Project) => {
    await startWorker(open, { ...shared, ...worker, store: worker.store ?? store }, screen);
    await tryApplySchedules(schedules, { url, schema, ...sealKeys, print });
  };
  let started: Promise<unknown> = Promise.resolve();
  if (project.ownPipelines.length > 0) {
    open.watch = await watchProject(open, project, { flags, screen, startNew, ready: () => started });
  }
  started = startNew(project);
  await started;
  await machines?.start();
  const listening = await listenOnFreePort(server, config.port, screen);
  const database = open.postgres ? url : withoutPassword(url);
  open.removeAddress = writeDevAddress(config.dir, listening.url, database);
  const demoEnqueued = project.hasDemo && !flags.enqueue && (await enqueueDemoOnce(stillwake));
  const lines = [
    `Stillwake ${version} is at ${listening.url}`,
    demoEnqueued
      ? "Open it and watch demo-survivor lose its runner and resume. Then press Enqueue and start demo-report."
      : project.hasDemo
        ? "Open it, press Enqueue, and start demo-report or demo-survivor."
        : "Open it, press Enqueue, and start one of your pipelines. When you change their code, the next job runs the new code.",
    // The URL stays the same at the next start, unless another program has taken the port.
    ...(open.postgres && project.ownPipelines.length > 0 && ownUrl !== url
      ? [`For your application, in its .env: DATABASE_URL=${url}`]
      : []),
    ...(left > 0 ? [formatLeft(left, project.worker.lease ?? "15s")] : []),
    ...(open.part?.lines ?? []).map(escapeLine),
    `Stop with Ctrl-C. The data stays in ${open.postgres ? config.dir : database}, and jobs resume at the next start.`,
  ];
  screen.print(`\n${lines.map((line) => `  ${line}`).join("\n")}\n`);
  return server;
}

/** `ownUrl`: the connection string that the application has for it, whose port is used. A Postgres of another process would stop with that process. One that is just stopping is waited for. */
async function startEmbeddedPostgres(
  dir: string,
  screen: Screen,
  ownUrl: string | undefined,
): Promise<EmbeddedPostgres> {
  const dataDir = path.resolve(dir, "postgres");
  const deadline = performance.now() + TAKEN_MS;
  for (let isRetry = false; ; isRetry = true) {
    const postgres = await startPostgres({ dir: dataDir, ...(ownUrl && { port: Number(new URL(ownUrl).port) }) });
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

function formatLeft(left: number, lease: string): string {
  const jobs = `${formatPlural(left, "job")} of a start that was killed ${left === 1 ? "resumes" : "resume"}`;
  return `${jobs} when the lease of the dead worker has expired: within about ${lease}.`;
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

/** Starts a worker for the pools without machines. */
async function startWorker(open: Open, options: WorkerOptions, screen: Screen): Promise<void> {
  const worker = createWorker({ ...options, exceptPools: open.machines?.pools ?? [] });
  const isFirst = open.workers.length === 0;
  worker.events.subscribe((event) => {
    if (event.kind === "module.empty") screen.printStderr(escapeLine(formatEmptyModule(event.file)));
    if (event.kind === "env.withheld" && isFirst) {
      screen.printVerbose(`Pipeline code does not get ${event.names.join(", ")}.`);
    }
  });
  open.workers.push(worker);
  void worker.done.then(() => open.workers.splice(open.workers.indexOf(worker), 1));
  try {
    await worker.start();
  } catch (error) {
    await worker.stop();
    throw error;
  }
  // It was needed to register the pipelines.
  if (worker.pools.length === 0) await worker.stop();
}

/**
 * After a change, workers with the new code replace the old ones, which claim no more jobs and exit when those they run have ended. If the
 * new code cannot be loaded, the old workers stay.
 */
function watchProject(
  open: Open,
  project: Project,
  {
    flags,
    screen,
    startNew,
    ready,
  }: { flags: Flags; screen: Screen; startNew(project: Project): Promise<void>; ready(): Promise<unknown> },
): Promise<SourceWatch> {
  const config = findConfigFile(flags.config);
  let current = project;
  let reloads = 0;
  return watchSources({
    entries: async () => [...(await findModules(current.ownPipelines)), ...(config ? [config] : [])],
    async onChange(files) {
      await ready();
      const names = files.map((file) => escapeLine(path.relative(process.cwd(), file))).join(", ");
      const old = [...open.workers];
      const isNewConfig = config !== undefined && files.includes(config);
      let next = current;
      try {
        if (isNewConfig) next = await readProject(flags, ++reloads);
        await startNew(next);
        current = next;
      } catch (error) {
        const { code, message } = error as { code?: string; message: string };
        screen.printStderr(`  ${names} cannot be used, so the old code stays: ${code ? `${code}: ` : ""}${message}`);
        return false;
      }
      const active = old.reduce((sum, worker) => sum + worker.health().active, 0);
      // A second call of drain() would stop the jobs of a worker that an earlier change has retired.
      const retired = old.filter((worker) => worker.state === "working");
      for (const worker of retired) void worker.drain("the code has changed", Number.POSITIVE_INFINITY);
      const ends = `; ${formatPlural(active, "running job")} ${active === 1 ? "ends" : "end"} on the old code`;
      const later = formatNotReloaded(project, next);
      screen.print(`  Reloaded ${names}: new jobs run the new code${active > 0 ? ends : ""}.${later}`);
      return isNewConfig;
    },
  });
}

/** Machines and the project's own part run as they were started. */
function formatNotReloaded(started: Project, next: Project): string {
  const parts = [
    ...(String(started.part) === String(next.part) ? [] : ["dev"]),
    ...(JSON.stringify(started.pools) === JSON.stringify(next.pools) ? [] : ["pools"]),
  ];
  return parts.length === 0 ? "" : ` Its ${parts.join(" and ")} will be used at the next start.`;
}

/** Follows the job of --enqueue to its end. Everything else keeps running. */
async function enqueueAndFollow(
  context: CommandContext,
  server: StillwakeServer,
  pipeline: string,
  input: unknown,
): Promise<void> {
  const { screen } = context;
  await requirePipeline(server.stillwake, pipeline);
  const api = new ApiClient({ send: async (request) => server.fetch(request), screen });
  const body = { pipeline, input, key: FOLLOWED_KEY, onConflict: "join" };
  const { id, existing } = await api.call("POST", "/v1/jobs", { body });
  screen.print(existing ? `resuming job ${id} of an earlier start` : `enqueued job ${id}`);
  const code = await followJob({ ...context, flags: {}, api: async () => api }, id);
  if (code < 2)
    screen.print(`\n${code === 0 ? "completed" : "ended"} job ${id}. Stillwake keeps running; stop with Ctrl-C.`);
}

async function requirePipeline(stillwake: Stillwake, name: string): Promise<void> {
  const names = (await stillwake.pipelines()).map((pipeline) => pipeline.name);
  if (names.includes(name)) return;
  const closest = findClosest(name, names);
  throw new UnknownPipeline(`There is no pipeline "${escapeLine(name)}"`, {
    field: "enqueue",
    remedy: closest ? `Did you mean ${closest}?` : `Pipelines: ${names.join(", ")}`,
  });
}

/** Workers first, so that followers see the release of their job; Postgres last. */
async function close({ postgres, server, workers, watch, machines, part, removeAddress }: Open, screen: Screen) {
  watch?.close();
  await removeAddress?.();
  const active = workers.reduce((sum, worker) => sum + worker.health().active, 0);
  if (active > 0) screen.print(formatRelease(active));
  await Promise.all([...workers.map((worker) => worker.stop()), machines?.stop(server?.stillwake)]);
  // The project's web server may use ours. What it cannot close ends with the process.
  await Promise.resolve(part?.close?.()).catch(() => {});
  await server?.close();
  await postgres?.stop();
}

/** The password of a URL may be before the host or in a parameter. */
function withoutPassword(text: string): string {
  const hosts = splitHosts(text).map((single) => {
    const url = new URL(single);
    if (url.password) url.password = "***";
    url.search = "";
    return url;
  });
  // The hosts after the first one have the same login and path.
  return hosts[0]!.href.replace(hosts[0]!.host, hosts.map(({ host }) => host).join(","));
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
