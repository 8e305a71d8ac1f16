// stillwake dev, which is also `npm start`: Postgres, migrations, a status page, and one job that goes all the way before your eyes.
import http from "node:http";
import path from "node:path";
import { createStillwake, type Stillwake } from "../client.ts";
import type { Config } from "../config.ts";
import { readConfig } from "../config.ts";
import { StillwakeError } from "../errors.ts";
import { migrate } from "../migrate.ts";
import { pipeline } from "../pipeline.ts";
import { type EmbeddedPostgres, startPostgres } from "../postgres/index.ts";
import { readDemand } from "../verbs.ts";
import { version } from "../version.ts";
import { createWorker, implement, type Worker } from "../worker/index.ts";
import { statusPage } from "./status-page.ts";

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
  stop(): Promise<void>;
}

export async function dev(config: Config = readConfig()): Promise<Dev> {
  const postgres = config.databaseUrl ? undefined : await startPostgres({ dir: path.resolve(config.dir, "postgres") });
  const url = config.databaseUrl ?? postgres!.url;
  await migrate({ url, schema: config.schema });
  const stillwake = createStillwake({ url, schema: config.schema });
  const worker = createWorker({ url, schema: config.schema, pipelines: [sayHello], slots: 4 });
  await worker.start();
  const server = http.createServer((request, response) => void answer(stillwake, request, response));
  const port = await listenOnFreePort(server, config.port);
  const address = `http://127.0.0.1:${port}`;

  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= close(server, worker, stillwake, postgres));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => void stop());

  console.log(`\n  Stillwake ${version} is at ${address}`);
  console.log(`  Postgres: ${postgres ? url : withoutPassword(url)}`);
  console.log("  Open the page and press the button; stop with Ctrl-C. The data is kept.\n");
  await runHello(stillwake, "world", (line) => console.log(`  ${line}`));
  return { url: address, stop };
}

/** What a person sees of one job from enqueue to the end. */
async function runHello(stillwake: Stillwake, name: string, say: (line: string) => void): Promise<string> {
  const { id } = await stillwake.enqueue(hello, { name });
  say(`enqueued  job ${id}`);
  const job = await stillwake.wait(id, { timeout: "30s" });
  for (const line of await stillwake.logs(id)) say(`${line.level.padEnd(9)} ${line.message}`);
  say(`completed job ${id}: ${JSON.stringify(job.output)}`);
  return id;
}

async function answer(
  stillwake: Stillwake,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const route = `${request.method} ${new URL(request.url ?? "/", "http://localhost").pathname}`;
  try {
    if (route === "GET /health") {
      const pools = await readDemand(stillwake.database);
      return send(response, 200, "application/json", JSON.stringify({ status: "ok", version, pools }));
    }
    if (route === "GET /") {
      const [pools, page] = await Promise.all([readDemand(stillwake.database), stillwake.list({ limit: 20 })]);
      return send(response, 200, "text/html; charset=utf-8", statusPage(version, pools, page.jobs));
    }
    if (route === "POST /hello") {
      // A page of another site must not be able to press the button.
      if ((request.headers["sec-fetch-site"] ?? "same-origin") !== "same-origin") {
        return send(response, 403, "text/plain", "Press the button on the status page itself.\n");
      }
      await runHello(stillwake, "again", (line) => console.log(`  ${line}`));
      response.writeHead(303, { location: "/" }).end();
      return;
    }
    send(response, 404, "text/plain", "There is /, /health and POST /hello.\n");
  } catch (error) {
    const code = error instanceof StillwakeError ? error.code : "INTERNAL";
    console.error(error);
    send(response, 503, "application/json", JSON.stringify({ status: "down", code }));
  }
}

function send(response: http.ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, {
    "content-type": type,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy":
      "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  });
  response.end(body);
}

/** A URL may carry the password before the host or as a parameter. */
function withoutPassword(text: string): string {
  const url = new URL(text);
  if (url.password) url.password = "***";
  url.search = "";
  return url.href;
}

/** A taken port is said and the next one is tried, twenty times. */
async function listenOnFreePort(server: http.Server, first: number): Promise<number> {
  for (let port = first; ; port++) {
    try {
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(port, "127.0.0.1", () => {
          server.off("error", reject);
          resolve();
        });
      });
      return (server.address() as { port: number }).port;
    } catch (error) {
      if ((error as { code?: string }).code !== "EADDRINUSE" || first === 0 || port >= first + 20) throw error;
      console.log(`  Port ${port} is taken, trying ${port + 1}.`);
    }
  }
}

async function close(
  server: http.Server,
  worker: Worker,
  stillwake: Stillwake,
  postgres: EmbeddedPostgres | undefined,
): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await worker.drain();
  await stillwake.close();
  await postgres?.stop();
}
