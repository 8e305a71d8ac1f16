// stillwake dev, which is also `npm start`: Postgres, migrations, workers, the API and the dashboard, on this machine alone. With the project's own
// pipelines where it has some, and with two to look at where it has none. Ctrl-C hands jobs back and ends all of it; the next start goes on.
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
import { version } from "../../version.ts";
import { createWorker, openStore, type Worker } from "../../worker/index.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { withoutPipeline } from "../../worker/runner/load-pipelines.ts";
import { doorTo } from "../api-client.ts";
import { checkSecretSetting, portOf } from "../checks.ts";
import type { Call } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import type { Flags } from "../flags.ts";
import { jsonOf, numberOf } from "../json-word.ts";
import { inLine } from "../output/escape.ts";
import { followJob } from "../output/follow.ts";
import type { Screen } from "../output/screen.ts";
import { sayingWhere } from "../output/waiting.ts";
import { readDevAddress, writeDevAddress } from "./address.ts";
import { type DevMachines, devMachines, handingBack, type ProjectPools } from "./machines.ts";
import { onStopSignals } from "./stop.ts";

/** Of the job that is shown at the start: where one of the last time has not ended yet, it is that. */
const SHOWN_KEY = "stillwake dev";
/** How long jobs may take to notice Ctrl-C before their runners are killed. They are handed back either way. */
const GRACE = "1500ms";
/** How long requests under way may take. */
const REQUEST_MS = 500;
/** Of the first job: whoever starts this for the first time has a browser to open before it loses its runner. */
const FIRST_SECONDS = 24;
/** How long a Postgres that somebody else has started may take to end, or its `stillwake dev` to say where it is. */
const TAKEN_MS = 30_000;
/** Machines of the pool of demo-report: three jobs at once have three, and each goes when it has had nothing to do for a while. */
const DEMO_POOLS = { reports: { max: 3, idleExit: "30s" } } as const;
const DEMO = ["survivor", "report"].map((name) => fileURLToPath(new URL(`../demo/${name}.js`, import.meta.url)));

/** What the workers of a project are made with, and which of its pools have machines. */
interface Project {
  worker: Pick<WorkerOptions, "pipelines"> & Partial<WorkerOptions>;
  pools: ProjectPools;
  config: string | undefined;
  /** With the pipelines to look at: where it has none of its own, or by wish. */
  demonstrates: boolean;
  part: StillwakeConfig["dev"];
}

/** Everything that has to be ended again. */
interface Open {
  postgres?: EmbeddedPostgres;
  server?: StillwakeServer;
  workers: Worker[];
  machines?: DevMachines;
  part?: DevPart | undefined;
  forgetAddress?: () => Promise<void>;
}

export async function devCommand(call: Call): Promise<number> {
  const { flags, screen } = call;
  const input = jsonOf(flags.input, "input");
  if (input !== undefined && !flags.enqueue) {
    throw new InvalidInput("--input belongs to --enqueue", { remedy: "Write --enqueue <pipeline> --input @file" });
  }
  const config: Config = {
    ...call.config,
    databaseUrl: flags.url ?? call.config.databaseUrl,
    schema: flags.schema ?? call.config.schema,
    port: flags.port === undefined ? call.config.port : portOf(flags.port),
  };
  const project = await readProject(flags);
  const open: Open = { workers: [] };
  const stopping = onStopSignals(() => close(open), Boolean(config.underNpm));
  try {
    const { server } = await start(open, config, project, screen, !flags.enqueue);
    if (flags.enqueue) await show(call, server, flags.enqueue, input);
  } catch (error) {
    // What breaks because it is being taken away needs no words.
    if (!stopping.begun) {
      await close(open);
      throw error;
    }
  }
  return 0;
}

async function readProject(flags: Flags): Promise<Project> {
  const file = await loadConfigFile(flags.config);
  const { pipelines, store, scratch, webhooks, lease } = file as Partial<WorkerOptions>;
  const given = flags.pipelines ?? pipelines;
  const demonstrates = given === undefined || flags.demo === true;
  return {
    worker: {
      pipelines: [...(demonstrates ? DEMO : []), ...[(given as string | string[] | undefined) ?? []].flat()],
      ...(store && { store }),
      ...(scratch && { scratch }),
      ...(lease && { lease }),
      ...(webhooks !== undefined && { webhooks }),
      slots: numberOf(flags.slots, "slots") ?? 4,
    },
    pools: { ...(demonstrates && DEMO_POOLS), ...(given === undefined ? {} : (file.pools as ProjectPools)) },
    config: flags.config,
    demonstrates,
    part: file.dev as Project["part"],
  };
}

async function start(
  open: Open,
  config: Config,
  project: Project,
  screen: Screen,
  mayDemonstrate: boolean,
): Promise<{ server: StillwakeServer }> {
  const { schema } = config;
  if (!config.databaseUrl) open.postgres = await startOwnPostgres(config.dir, screen);
  const url = config.databaseUrl ?? open.postgres!.url;
  await sayingWhere(
    url,
    (line) => screen.say(line),
    () => migrate({ url, schema }),
  );
  const store = project.worker.store ?? config.store ?? `file:${path.resolve(config.dir, "artifacts")}`;
  // Only over a Postgres of its own: the machines that another database knows of are somebody else's to start and to end.
  const pools = open.postgres ? project.pools : {};
  let machines: DevMachines | undefined;
  const server = createServer({
    url,
    schema,
    auth: "none",
    ...(Object.keys(pools).length > 0 && { onPoke: () => machines?.poke() }),
    store: openStore(store, config.storeCredentials),
    // Read tokens of a server that lives for a day need a secret that lives no longer.
    secret: config.secret ? checkSecretSetting(config.secret) : randomBytes(32).toString("base64url"),
  });
  open.server = server;
  const { stillwake, fetch } = server;
  const place = { url, schema, embedded: open.postgres !== undefined, dir: path.resolve(config.dir), stillwake };
  open.part = await project.part?.({ ...place, fetch: (request) => fetch(request) });
  const env = open.part?.env ?? {};
  machines = devMachines({ url, schema, store, pools, dir: config.dir, env, project }, screen);
  if (machines) open.machines = machines;
  const credentials = config.storeCredentials && { storeCredentials: config.storeCredentials };
  const worker = { ...project.worker, env: { ...processEnvironment(), ...env } };
  await startWorkers(open, { url, schema, grace: GRACE, ...credentials, ...worker, store }, stillwake, screen);
  await machines?.start();
  const listening = await listenOnFreePort(server, config.port, screen);
  const database = open.postgres ? url : withoutPassword(url);
  open.forgetAddress = writeDevAddress(config.dir, listening.url, database);
  const first = project.demonstrates && mayDemonstrate && (await demonstrateOnce(stillwake));
  const kept = open.postgres ? config.dir : database;
  const [where, press, end] = banner(listening.url, project.demonstrates, first, kept);
  const lines = (open.part?.lines ?? []).map((line) => `  ${inLine(line)}`);
  screen.print(`\n${[where, press, ...lines, end].join("\n")}\n`);
  return { server };
}

/** A Postgres that belongs to another process would end with that one, under jobs of ours. One that is just ending is waited for. */
async function startOwnPostgres(dir: string, screen: Screen): Promise<EmbeddedPostgres> {
  const place = path.resolve(dir, "postgres");
  const deadline = performance.now() + TAKEN_MS;
  for (let said = false; ; said = true) {
    const postgres = await startPostgres({ dir: place });
    if (postgres.owner) return postgres;
    const running = readDevAddress(dir, postgres.url);
    if (running !== undefined) {
      throw new StillwakeError("DEV_RUNNING", `A stillwake dev is running in ${dir} already, at ${running}`, {
        remedy: "Use that one, or stop it first; STILLWAKE_DIR=<folder> starts one with data of its own",
      });
    }
    if (performance.now() > deadline) {
      throw new StillwakeError("DEV_RUNNING", `The Postgres in ${place} belongs to another process`, {
        remedy: "Stop that process first; STILLWAKE_DIR=<folder> starts one with data of its own",
      });
    }
    if (!said) screen.say(`  The Postgres in ${place} belongs to another process; waiting for that one.`);
    await delay(100);
  }
}

/** Where it is, what to press, how to stop. */
function banner(url: string, demonstrates: boolean, first: boolean, kept: string): [string, string, string] {
  const press = first
    ? "Open it and watch demo-survivor lose its runner and go on. Then press Enqueue and start demo-report"
    : demonstrates
      ? "Open it, press Enqueue, and start demo-report or demo-survivor"
      : "Open it, press Enqueue, and start one of your pipelines. After a change of their code, start this anew";
  return [
    `  Stillwake ${version} is at ${url}`,
    `  ${press}.`,
    `  Stop with Ctrl-C. Everything is kept in ${kept}, and jobs go on at the next start.`,
  ];
}

/** A page without a job shows nothing. Who has seen one starts the next one. */
async function demonstrateOnce(stillwake: Stillwake): Promise<boolean> {
  const { survivor } = await import("../demo/survivor.ts");
  const { report } = await import("../demo/report.ts");
  for (const { name } of [survivor, report]) {
    const { jobs } = await stillwake.list({ pipeline: name, limit: 1 });
    if (jobs.length > 0) return false;
  }
  await stillwake.enqueue(survivor, { seconds: FIRST_SECONDS });
  return true;
}

/** A worker serves one pool. Which pools the pipelines want is known once the first has loaded them. Pools with machines are theirs. */
async function startWorkers(open: Open, options: WorkerOptions, stillwake: Stillwake, screen: Screen): Promise<void> {
  const startOne = async (pool: string) => {
    const worker = createWorker({ ...options, pool });
    const names: string[] = [];
    worker.announcer.subscribe((event) => {
      if (event.kind === "worker.started") names.push(...event.pipelines);
      // The workers of other pools load the same modules.
      if (event.kind === "module.empty" && pool === "default") screen.say(inLine(withoutPipeline(event.file)));
      if (event.kind === "worker.draining" && event.active > 0) {
        screen.print(handingBack(event.active));
      }
    });
    open.workers.push(worker);
    await worker.start();
    return names;
  };
  const names = await startOne("default");
  const { pools: taken = [] } = open.machines ?? {};
  if (taken.includes("default")) await open.workers.pop()?.stop();
  const pipelines = (await stillwake.pipelines()).filter(({ name }) => names.includes(name));
  for (const pool of new Set(pipelines.map((one) => one.pool)))
    if (pool !== "default" && !taken.includes(pool)) await startOne(pool);
}

/** The job that was asked for, to its end. The rest stays up. */
async function show(call: Call, server: StillwakeServer, pipeline: string, input: unknown): Promise<void> {
  const { screen } = call;
  const door = doorTo((request) => server.fetch(request), screen);
  const body = { pipeline, input, key: SHOWN_KEY, onConflict: "join" };
  const { id, existing } = await door.call("POST", "/v1/jobs", { body });
  screen.print(existing ? `going on with job ${id}, which had not ended` : `enqueued job ${id}`);
  const code = await followJob({ ...call, flags: {}, door: async () => door }, id);
  if (code < 2) screen.print(`\n${code === 0 ? "completed" : "ended"} job ${id}. The rest stays up; stop with Ctrl-C.`);
}

/** Workers first: who follows a job sees it handed back. Postgres last, when nobody needs it any more. */
async function close({ postgres, server, workers, machines, part, forgetAddress }: Open): Promise<void> {
  await forgetAddress?.();
  await Promise.all([...workers.map((worker) => worker.stop()), machines?.stop(server?.stillwake)]);
  // Its own web server may stand on ours. What it cannot close ends with the process.
  await Promise.resolve(part?.close?.()).catch(() => {});
  await server?.close();
  await postgres?.stop();
}

/** A URL may carry the password before the host or as a parameter. */
function withoutPassword(text: string): string {
  const url = new URL(text);
  if (url.password) url.password = "***";
  url.search = "";
  return url.href;
}

/** A taken port is said and the next one is tried, twenty times. */
async function listenOnFreePort(server: StillwakeServer, first: number, screen: Screen): Promise<Listening> {
  for (let port = first; ; port++) {
    try {
      return await server.listen({ port, graceMs: REQUEST_MS });
    } catch (error) {
      const { cause } = error as { cause?: { code?: string } };
      if (cause?.code !== "EADDRINUSE" || first === 0 || port >= Math.min(first + 20, 65_535)) throw error;
      screen.print(`  Port ${port} is taken, trying ${port + 1}.`);
    }
  }
}
