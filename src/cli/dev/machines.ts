// Machines under `stillwake dev`: pools for which the project has machines have them here too, whatever their provider is elsewhere. Here they are processes of this
// computer: they come when there is work and go when there is none. Ctrl-C ends them with the rest. Those of a dev that was killed are ended by the next one: its
// Postgres is at another port, where they would never find it.
import path from "node:path";
import type { Stillwake } from "../../client/client.ts";
import { createOrchestrator, local, type PoolOptions } from "../../orchestrator/index.ts";
import { endOrphans } from "../../orchestrator/providers/local/registry.ts";
import type { WorkerOptions } from "../../worker/options.ts";
import { inLine } from "../output/escape.ts";
import type { Screen } from "../output/screen.ts";

export type ProjectPools = Readonly<Record<string, Omit<PoolOptions, "provider">>>;

export interface DevMachines {
  pools: readonly string[];
  start(): Promise<void>;
  poke(): void;
  /** Its machines hand back their jobs, and are gone. */
  stop(stillwake: Stillwake | undefined): Promise<void>;
}

interface DevMachinesOptions {
  url: string;
  schema: string;
  store: string;
  pools: ProjectPools;
  /** Where machines are written down, and what they say. */
  dir: string;
  env: Readonly<Record<string, string>>;
  project: { worker: Partial<WorkerOptions>; config: string | undefined };
}

/** So short that jobs are handed back at once. */
const GRACE = "4s";
/** For those of a dev that was killed: most cannot reach a database to hand anything back to. */
const ORPHAN_MS = 1000;

/** Undefined when no pool has machines. */
export function devMachines(options: DevMachinesOptions, screen: Screen): DevMachines | undefined {
  const { url, schema, store, dir } = options;
  const names = Object.keys(options.pools);
  if (names.length === 0) return undefined;
  const registry = path.resolve(dir, "machines");
  const provider = local({
    args: argumentsOf(options),
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
    // Prices are for machines that are paid for, and to have one warm saves nothing here.
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
      if (level === "info") screen.mention(inLine(message));
      else screen.say(inLine(message));
    },
  });
  return {
    pools: names,
    async start() {
      const left = await endOrphans(registry, ORPHAN_MS);
      if (left > 0)
        screen.say(`  Ended ${left === 1 ? "a machine" : `${left} machines`} that an earlier start has left.`);
      await orchestrator.start();
    },
    poke: () => orchestrator.poke(),
    async stop(stillwake) {
      const list = async (pool: string) => (await stillwake?.list({ pool, state: "running", limit: 200 }))?.jobs ?? [];
      const running = await Promise.all(names.map(list)).catch(() => []);
      const count = running.flat().length;
      if (count > 0) screen.print(handingBack(count));
      await orchestrator.stop();
    },
  };
}

export function handingBack(count: number): string {
  const jobs = count === 1 ? "1 job, which goes" : `${count} jobs, which go`;
  return `\n  Handing back ${jobs} on at the next start.`;
}

/** What the project's own file does not say again to a worker that reads it. */
function argumentsOf({ project: { worker, config } }: DevMachinesOptions): string[] {
  const pipelines = [worker.pipelines ?? []].flat() as string[];
  return [
    ...(config === undefined ? [] : ["--config", path.resolve(config)]),
    ...pipelines.flatMap((one) => ["--pipelines", path.resolve(one)]),
    ...(worker.scratch === undefined ? [] : ["--scratch", worker.scratch]),
  ];
}
