// stillwake register: makes a project's pipelines known to the database, and does none of their jobs. A pool whose machines come when there is work has nobody who
// would say what there is before the first of them: a deploy says it, and so does whoever starts machines.
import type { Config } from "../../config.ts";
import { DatabaseUnavailable, InvalidInput } from "../../errors.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { Worker } from "../../worker/worker.ts";
import type { Call } from "../command.ts";
import { loadConfigFile } from "../config-file.ts";
import type { Flags } from "../flags.ts";
import { needUrl } from "./migrate.ts";

/** How long a database that is away is waited for. */
const PATIENCE = "10s";
/** How the worker ends then. */
const KNOWN = "its pipelines are known: ";

export async function registerCommand({ flags, config, screen }: Call): Promise<number> {
  const options = await projectOf(flags, config);
  if (!options) {
    throw new InvalidInput("No pipelines are given", {
      field: "pipelines",
      remedy:
        'Pass --pipelines ./dir, or set pipelines in stillwake.config: defineConfig({ pipelines: "./pipelines" })',
    });
  }
  screen.print(`The database knows ${await register(options)}.`);
  return 0;
}

/** Beside whatever starts machines: what goes wrong is said, and nothing else is held up by it. Ends early with the signal. */
export async function registerProject(
  flags: Flags,
  config: Config,
  { say, signal }: { say(level: "info" | "warn", message: string): void; signal: AbortSignal },
): Promise<void> {
  try {
    const options = await projectOf(flags, config);
    const names = options && (await register(options, signal));
    if (names) say("info", `the database knows its pipelines: ${names}`);
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    say(
      "warn",
      `The pipelines of this project could not be made known from here: ${code ? `${code}: ` : ""}${message} Until they are known, jobs of new ones are refused: mend that, or run stillwake register where they can be loaded`,
    );
  }
}

/** What is needed to load them; undefined when the project says nothing of pipelines. */
async function projectOf(flags: Flags, config: Config): Promise<WorkerOptions | undefined> {
  const file = (await loadConfigFile(flags.config)) as Partial<WorkerOptions>;
  const pipelines = flags.pipelines ?? file.pipelines;
  if (pipelines === undefined) return undefined;
  const { scratch, runAs, heapMb } = file;
  return {
    url: needUrl(flags.url ?? config.databaseUrl ?? file.url),
    schema: flags.schema ?? config.schema,
    pipelines,
    ...(scratch && { scratch }),
    ...(runAs && { runAs }),
    ...(heapMb !== undefined && { heapMb }),
  };
}

/** Their names; none when the signal came first. */
async function register(options: WorkerOptions, signal?: AbortSignal): Promise<string> {
  if (signal?.aborted) return "";
  const worker = new Worker({
    ...options,
    until: "registered",
    idleExit: PATIENCE,
    connections: 1,
    directUrl: false,
    webhooks: false,
  });
  const stop = () => void worker.stop();
  signal?.addEventListener("abort", stop);
  try {
    await worker.start();
    const reason = await worker.done;
    if (reason === "the database cannot be reached") {
      throw new DatabaseUnavailable(`The database could not be reached within ${PATIENCE}`, {
        remedy: "Check that it is running and that its URL names it",
      });
    }
    return reason.startsWith(KNOWN) ? reason.slice(KNOWN.length) : "";
  } finally {
    signal?.removeEventListener("abort", stop);
    await worker.stop();
  }
}
