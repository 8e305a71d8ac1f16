// Machines of `stillwake dev`: pools that have machines in production have local processes here, started when there is work. Ctrl-C stops
// them. Machines of a killed `stillwake dev` are stopped by the next one: its Postgres has another port, which they cannot know.
import path from "node:path";
import type { Stillwake } from "../../client/client.ts";
import { createOrchestrator, local, type PoolOptions } from "../../orchestrator/index.ts";
import { endOrphans } from "../../orchestrator/providers/local/registry.ts";
import { escapeLine } from "../../text/escape.ts";
import { formatPlural } from "../../text/format.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import type { Screen } from "../output/screen.ts";

export type ProjectPools = Readonly<Record<string, Omit<PoolOptions, "provider">>>;

export interface DevMachines {
  pools: readonly string[];
  start(): Promise<void>;
  poke(): void;
  /** Releases the jobs of its machines and stops them. */
  stop(stillwake: Stillwake | undefined): Promise<void>;
}

interface DevMachinesOptions {
  url: string;
  schema: string;
  store: string;
  pools: ProjectPools;
  /** The registry and the output of the machines. */
  dir: string;
  env: Readonly<Record<string, string>>;
  project: { worker: Partial<WorkerOptions>; config: string | undefined };
}

/** Short: jobs are released almost at once. */
const GRACE = "4s" as const;
/** For the machines of a killed `stillwake dev`: most cannot reach their database to release jobs. */
const ORPHAN_MS = 1000;

/** Undefined when no pool has machines. */
export function createDevMachines(options: DevMachinesOptions, screen: Screen): DevMachines | undefined {
  const { url, schema, store, dir } = options;
  const names = Object.keys(options.pools);
  if (names.length === 0) return undefined;
  const registry = path.resolve(dir, "machines");
  const provider = local({
    args: workerArgs(options),
    env: {
      ...options.env,
      STILLWAKE_DATABASE_URL: url,
      STILLWAKE_DIRECT_URL: url,
      STILLWAKE_SCHEMA: schema,
      STILLWAKE_STORE: store,
    },
    dir: registry,
  });
  const pools = Object.fromEntries(
    // Local machines have no price and no warm machines.
    Object.entries(options.pools).map(([name, { slots, max, idleExit, boot }]) => [
      name,
      {
        provider,
        grace: GRACE,
        ...(slots !== undefined && { slots }),
        ...(max !== undefined && { max }),
        ...(idleExit !== undefined && { idleExit }),
        ...(boot !== undefined && { boot }),
      },
    ]),
  );
  const orchestrator = createOrchestrator({
    url,
    schema,
    pools,
    onEvent: ({ level, message }) => {
      if (level === "info") screen.printVerbose(escapeLine(message));
      else screen.printStderr(escapeLine(message));
    },
  });
  return {
    pools: names,
    async start() {
      const orphans = await endOrphans(registry, ORPHAN_MS);
      if (orphans > 0) screen.printStderr(`  Stopped ${formatPlural(orphans, "machine")} of an earlier start.`);
      await orchestrator.start();
    },
    poke: () => orchestrator.poke(),
    async stop(stillwake) {
      const list = async (pool: string) => (await stillwake?.list({ pool, state: "running", limit: 200 }))?.jobs ?? [];
      const running = await Promise.all(names.map(list)).catch(() => []);
      const count = running.flat().length;
      if (count > 0) screen.print(formatRelease(count));
      await orchestrator.stop();
    },
  };
}

export function formatRelease(count: number): string {
  return `\n  Releasing ${formatPlural(count, "job")}; ${count === 1 ? "it resumes" : "they resume"} at the next start.`;
}

/** What the worker does not read from the project's configuration file itself. */
function workerArgs({ project: { worker, config } }: DevMachinesOptions): string[] {
  const pipelines = [worker.pipelines ?? []].flat() as string[];
  return [
    ...(config === undefined ? [] : ["--config", path.resolve(config)]),
    ...pipelines.flatMap((pipeline) => ["--pipelines", path.resolve(pipeline)]),
    ...(worker.scratch === undefined ? [] : ["--scratch", worker.scratch]),
  ];
}
