// stillwake dev, which is also `npm start`: Postgres, migrations, workers, the API and a status page, and one job that goes all the way before your
// eyes. With the project's own pipelines where it has some, and with one that says hello where it has none.
import { randomBytes } from "node:crypto";
import path from "node:path";
import type { Stillwake } from "../client.ts";
import { type Config, readConfig } from "../config.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { migrate } from "../migrate.ts";
import { pipeline } from "../pipeline.ts";
import { startPostgres } from "../postgres/index.ts";
import { createServer, type StillwakeServer } from "../server/index.ts";
import { type Listening, listen } from "../server/listen.ts";
import { readDemand } from "../verbs.ts";
import { version } from "../version.ts";
import { createWorker, implement, openStore, type Worker } from "../worker/index.ts";
import { withoutPipeline } from "../worker/load.ts";
import type { WorkerOptions } from "../worker/options.ts";
import { checkSecretSetting } from "./checks.ts";
import type { Call } from "./command.ts";
import { loadConfigFile } from "./config-file.ts";
import { writeDevAddress } from "./dev-address.ts";
import { doorTo } from "./door.ts";
import { followJob } from "./follow.ts";
import { inLine } from "./inert.ts";
import { jsonOf, numberOf } from "./json-word.ts";
import { statusPage } from "./status-page.ts";
import { sayingWhere } from "./waiting.ts";

const hello = pipeline<{ name: string }>("hello", { keep: { completed: "1d" } });

const sayHello = implement(hello, async (job, { name }) => {
  const greeting = await job.step(
    "greeting",
    { start: `Looking for words for ${name}...`, end: "Found them" },
    () => `Hello, ${name}!`,
  );
  return { greeting };
});

export interface Dev {
  url: string;
  server: StillwakeServer;
  stop(): Promise<void>;
}

/** Of the job that is shown at the start: where one of the last time has not ended yet, it is that. */
const SHOWN_KEY = "stillwake dev";

/** What the workers of a project are made with; none for hello. */
type Project = Partial<WorkerOptions>;

export async function devCommand(call: Call): Promise<number> {
  const { flags, config, screen } = call;
  const input = jsonOf(flags.input, "input");
  if (input !== undefined && !flags.enqueue) {
    throw new InvalidInput("--input belongs to --enqueue", { remedy: "Write --enqueue <pipeline> --input @file" });
  }
  const { pipelines, store, scratch, webhooks, lease } = (await loadConfigFile(flags.config)) as Project;
  const given = flags.pipelines ?? pipelines;
  const project: Project = {
    ...(given && { pipelines: given }),
    ...(store && { store }),
    ...(scratch && { scratch }),
    ...(lease && { lease }),
    ...(webhooks !== undefined && { webhooks }),
    slots: numberOf(flags.slots, "slots") ?? 4,
  };
  const { portOf } = await import("./server.ts");
  const { server, stop } = await dev(
    {
      ...config,
      databaseUrl: flags.url ?? config.databaseUrl,
      schema: flags.schema ?? config.schema,
      port: flags.port === undefined ? config.port : portOf(flags.port),
    },
    project,
    !flags.enqueue,
  );
  if (!flags.enqueue) return 0;
  try {
    const door = doorTo((request) => server.fetch(request), screen);
    const body = { pipeline: flags.enqueue, input, key: SHOWN_KEY, onConflict: "join" };
    const { id, existing } = await door.call("POST", "/v1/jobs", { body });
    screen.print(existing ? `going on with job ${id}, which had not ended` : `enqueued job ${id}`);
    const code = await followJob({ ...call, flags: {}, door: async () => door }, id);
    if (code < 2)
      screen.print(`\n${code === 0 ? "completed" : "ended"} job ${id}. The rest stays up; stop with Ctrl-C.`);
  } catch (error) {
    await stop();
    throw error;
  }
  return 0;
}

export async function dev(config: Config = readConfig(), project: Project = {}, greet = true): Promise<Dev> {
  const postgres = config.databaseUrl ? undefined : await startPostgres({ dir: path.resolve(config.dir, "postgres") });
  const url = config.databaseUrl ?? postgres!.url;
  const open: { close(): Promise<unknown> }[] = postgres ? [{ close: () => postgres.stop() }] : [];
  const close = async () => {
    for (const one of open.splice(0).reverse()) await one.close();
  };
  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= close());
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => void stop());
  if (config.underNpm) followParent();
  try {
    await sayingWhere(
      url,
      (line) => console.error(line),
      () => migrate({ url, schema: config.schema }),
    );
    const store = project.store ?? config.store ?? `file:${path.resolve(config.dir, "artifacts")}`;
    const server = createServer({
      url,
      schema: config.schema,
      auth: "none",
      store: openStore(store, config.storeCredentials),
      // Read tokens of a server that lives for a day need a secret that lives no longer.
      secret: config.secret ? checkSecretSetting(config.secret) : randomBytes(32).toString("base64url"),
    });
    open.push(server);
    const credentials = config.storeCredentials && { storeCredentials: config.storeCredentials };
    const settings = { url, schema: config.schema, slots: 4, ...credentials, ...project, store };
    const own = project.pipelines !== undefined;
    await startWorkers(
      server.stillwake,
      own ? (settings as WorkerOptions) : { ...settings, pipelines: [sayHello] },
      open,
    );
    const listening = await listenOnFreePort((request, env) => answer(server, own, request, env), config.port);
    open.push(listening, { close: writeDevAddress(config.dir, listening.url) });
    console.log(`\n  Stillwake ${version} is at ${listening.url}`);
    console.log(`  Postgres: ${postgres ? url : withoutPassword(url)}`);
    console.log(
      `  ${own ? "The API is described at /docs" : "Open the page and press the button"}; stop with Ctrl-C. The data is kept.\n`,
    );
    if (!own && greet) await runHello(server.stillwake, "world");
    return { url: listening.url, server, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** A worker serves one pool. Which pools the pipelines want is known once the first has loaded them. */
async function startWorkers(
  stillwake: Stillwake,
  options: WorkerOptions,
  open: { close(): Promise<unknown> }[],
): Promise<void> {
  const start = async (pool: string) => {
    const worker = createWorker({ ...options, pool });
    const names: string[] = [];
    worker.announcer.subscribe((event) => {
      if (event.kind === "worker.started") names.push(...event.pipelines);
      // The workers of other pools load the same modules.
      if (event.kind === "module.empty" && pool === "default") console.error(inLine(withoutPipeline(event.file)));
      if (event.kind === "worker.draining" && event.active > 0)
        console.log(`\n  Finishing ${event.active === 1 ? "1 job" : `${event.active} jobs`}…`);
    });
    open.push(closing(worker));
    await worker.start();
    return names;
  };
  const names = await start("default");
  const pipelines = (await stillwake.pipelines()).filter(({ name }) => names.includes(name));
  for (const pool of new Set(pipelines.map((one) => one.pool))) if (pool !== "default") await start(pool);
}

function closing(worker: Worker): { close(): Promise<unknown> } {
  return { close: () => worker.drain("told to stop") };
}

/** What a person sees of one job from enqueue to the end. */
async function runHello(stillwake: Stillwake, name: string): Promise<void> {
  const say = (line: string) => console.log(`  ${line}`);
  const { id } = await stillwake.enqueue(hello, { name });
  say(`enqueued  job ${id}`);
  const job = await stillwake.wait(id, { timeout: "30s" });
  for (const line of await stillwake.logs(id)) say(`${line.level.padEnd(9)} ${line.message}`);
  say(`completed job ${id}: ${JSON.stringify(job.output)}`);
}

/** The status page and its button; everything else is the server's. */
async function answer(server: StillwakeServer, own: boolean, request: Request, env: unknown): Promise<Response> {
  const { pathname, hostname } = new URL(request.url);
  const route = `${request.method} ${pathname}`;
  if (route !== "GET /" && (route !== "POST /hello" || own)) return server.fetch(request, env);
  // A page of another site must not be able to press the button, and a name made to lead here must not show the page.
  const foreign = (request.headers.get("sec-fetch-site") ?? "same-origin") !== "same-origin";
  if (!/^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname) || (foreign && request.method === "POST")) {
    return send(403, "text/plain", "Open the status page at the address that was printed.\n");
  }
  try {
    if (request.method === "POST") {
      await runHello(server.stillwake, "again");
      return new Response(null, { status: 303, headers: { location: "/" } });
    }
    const { database } = server.stillwake;
    const [pools, page] = await Promise.all([readDemand(database), server.stillwake.list({ limit: 20 })]);
    return send(200, "text/html; charset=utf-8", statusPage(version, pools, page.jobs, !own));
  } catch (error) {
    console.error(error);
    const code = error instanceof StillwakeError ? error.code : "INTERNAL";
    return send(503, "application/json", JSON.stringify({ status: "down", code }));
  }
}

function send(status: number, type: string, body: string): Response {
  const headers = {
    "content-type": type,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy":
      "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  };
  return new Response(body, { status, headers });
}

/** A URL may carry the password before the host or as a parameter. */
function withoutPassword(text: string): string {
  const url = new URL(text);
  if (url.password) url.password = "***";
  url.search = "";
  return url.href;
}

/** A taken port is said and the next one is tried, twenty times. */
async function listenOnFreePort(fetch: Parameters<typeof listen>[0], first: number): Promise<Listening> {
  for (let port = first; ; port++) {
    try {
      return await listen(fetch, { port, graceMs: 1000 }, "none");
    } catch (error) {
      const { cause } = error as { cause?: { code?: string } };
      if (cause?.code !== "EADDRINUSE" || first === 0 || port >= first + 20) throw error;
      console.log(`  Port ${port} is taken, trying ${port + 1}.`);
    }
  }
}

/**
 * npm puts a shell between itself and us, and that shell dies of a SIGTERM without passing it on. When our parent is gone we tell ourselves, so that
 * closing npm closes the servers too.
 */
function followParent(): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    process.kill(process.pid, "SIGTERM");
  }, 500);
  timer.unref();
}
