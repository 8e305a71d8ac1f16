// stillwake register: stores a project's pipelines in the database without running their jobs. Needed for pools whose
// machines start on demand: before the first machine runs, no worker has registered them.
import type { Config } from "../../config.ts";
import { DatabaseUnavailable, InvalidInput } from "../../errors.ts";
import { escapeLine } from "../../text/escape.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { type Command, configHelp, databaseFlags, pipelinesHelp } from "../command.ts";
import type { Flags } from "../flags.ts";
import type { ProjectSchedulesOptions } from "../project-schedules.ts";

export const registerCommand: Command = {
  name: "register",
  group: "Run",
  summary: "register the project's pipelines and schedules in the database without running jobs",
  usage: [""],
  args: [0, 0],
  flags: { pipelines: pipelinesHelp, ...databaseFlags, config: configHelp },
  examples: [
    ["register", "in a deployment, after migrate: from then on their jobs are accepted"],
    ["register --pipelines ./pipelines", "without a stillwake.config"],
  ],
  async run({ flags, config, screen }) {
    const options = await readProjectOptions(flags, config);
    if (!options) {
      const { noPipelines } = await import("../config-file.ts");
      throw new InvalidInput(noPipelines(flags.config), {
        field: "pipelines",
        remedy:
          'Pass --pipelines ./dir, or set pipelines in stillwake.config: defineConfig({ pipelines: "./pipelines" })',
      });
    }
    screen.print(`Registered ${await register(options.worker)}.`);
    const { applySchedules } = await import("../project-schedules.ts");
    await applySchedules(options.schedules, {
      ...options.connection,
      print: (level, message) => (level === "info" ? screen.print(escapeLine(message)) : screen.printStderr(message)),
    });
    return 0;
  },
};

/** How long to wait for a database that cannot be reached. */
const RETRY_TIMEOUT = "10s";
/** The reason of a worker that has registered its pipelines; their names follow. */
const REGISTERED = "registered: ";

/** For the server and the orchestrator: reports an error instead of throwing. The signal stops it early. */
export async function registerProject(
  flags: Flags,
  config: Config,
  { print, signal }: { print(level: "info" | "warn", message: string): void; signal: AbortSignal },
): Promise<void> {
  try {
    const options = await readProjectOptions(flags, config);
    const names = options && (await register(options.worker, signal));
    if (!names) return;
    print("info", `registered pipelines: ${names}`);
    const { tryApplySchedules } = await import("../project-schedules.ts");
    await tryApplySchedules(options.schedules, { ...options.connection, print });
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    print(
      "warn",
      `The pipelines of this project could not be registered: ${code ? `${code}: ` : ""}${message} Jobs of new pipelines are refused until they are registered: fix the error, or run stillwake register where the pipelines can be loaded`,
    );
  }
}

interface ProjectOptions {
  worker: WorkerOptions;
  /** `schedules` of the configuration file. */
  schedules: unknown;
  connection: Omit<ProjectSchedulesOptions, "print">;
}

/** Undefined when the project has no pipelines. */
async function readProjectOptions(flags: Flags, config: Config): Promise<ProjectOptions | undefined> {
  const [{ loadConfigFile }, { requireDatabaseUrl }] = await Promise.all([
    import("../config-file.ts"),
    import("../connection.ts"),
  ]);
  const file = (await loadConfigFile(flags.config)) as Partial<WorkerOptions> & { schedules?: unknown };
  const pipelines = flags.pipelines ?? file.pipelines;
  if (pipelines === undefined) return undefined;
  const { scratch, runAs, heapMb } = file;
  const url = requireDatabaseUrl(flags.url ?? config.databaseUrl ?? file.url);
  const schema = flags.schema ?? config.schema;
  const sealKeys = config.sealKeys ?? file.sealKeys;
  return {
    worker: {
      url,
      schema,
      pipelines,
      ...(scratch && { scratch }),
      ...(runAs && { runAs }),
      ...(heapMb !== undefined && { heapMb }),
    },
    schedules: file.schedules,
    connection: { url, schema, ...(sealKeys && { sealKeys }) },
  };
}

/** Returns the names of the pipelines; empty when the signal came first. */
async function register(options: WorkerOptions, signal?: AbortSignal): Promise<string> {
  if (signal?.aborted) return "";
  const { Worker } = await import("../../worker/worker.ts");
  const worker = new Worker({
    ...options,
    until: "registered",
    idleExit: RETRY_TIMEOUT,
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
      throw new DatabaseUnavailable(`The database could not be reached within ${RETRY_TIMEOUT}`, {
        remedy: "Check that it is running and that the URL is correct",
      });
    }
    return reason.startsWith(REGISTERED) ? reason.slice(REGISTERED.length) : "";
  } finally {
    signal?.removeEventListener("abort", stop);
    await worker.stop();
  }
}
