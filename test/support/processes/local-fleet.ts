// A pool of local machines with orchestrators, for tests that count processes by a variable in their environment.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import {
  createOrchestrator,
  type LocalOptions,
  local,
  type Orchestrator,
  type PoolOptions,
} from "../../../src/orchestrator/index.ts";
import type {
  ListedMachine,
  MachineRequest,
  Provider,
  ProviderFactory,
  StartedMachine,
} from "../../../src/orchestrator/provider.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { type FoundProcess, findProcesses } from "../providers/provider-cases.ts";
import { ROOT } from "./build.ts";

const CLI = path.join(ROOT, "dist/cli/index.js");
const SCRIPT = path.join(ROOT, "test/fixtures/pipelines/script.mjs");

export interface LocalFleet {
  pool: string;
  dir: string;
  options: LocalOptions;
  /** Starts another orchestrator for the same machines. */
  startOrchestrator(settings?: Partial<PoolOptions>): Promise<Orchestrator>;
  /** The messages of the orchestrators' events. */
  messages: string[];
  /** The running machines, one process each. */
  machines(): FoundProcess[];
  /** All their processes: keepers, runners, commands. */
  processes(): FoundProcess[];
  /** Waits until none of their processes is left. */
  waitUntilGone(): Promise<void>;
  close(): Promise<void>;
}

export function localFleet(
  url: string,
  pool: string,
  more: {
    args?: string[];
    command?: LocalOptions["command"];
    pipelines?: string;
    env?: Record<string, string>;
  } = {},
): LocalFleet {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-fleet-")));
  const tag = `FLEET_OF_TEST=${dir}`;
  const orchestrators: Orchestrator[] = [];
  const messages: string[] = [];
  const worker = [
    "worker",
    "--pipelines",
    more.pipelines ?? SCRIPT,
    "--scratch",
    dir,
    "--store",
    `file:${dir}/artifacts`,
    ...(more.args ?? []),
  ];
  const options: LocalOptions = {
    command: more.command ?? process.execPath,
    args: [CLI, ...worker],
    env: { ...more.env, STILLWAKE_DATABASE_URL: url, FLEET_OF_TEST: dir },
    cwd: dir,
    dir: path.join(dir, "machines"),
  };
  const processes = () => findProcesses(tag);
  return {
    pool,
    dir,
    options,
    messages,
    async startOrchestrator({ provider = local(options), ...settings } = {}) {
      const orchestrator = createOrchestrator({
        url,
        pools: {
          [pool]: { idleExit: "300ms", grace: "10s", max: 3, ...settings, provider: provider as ProviderFactory },
        },
        onEvent: ({ message }) => messages.push(message),
      });
      orchestrators.push(orchestrator);
      return orchestrator.start();
    },
    machines: () => {
      const leaders = processes().filter(
        // The start script's shell is not a machine yet, and never becomes one if another has taken the name.
        ({ pid, session, command, variables }) =>
          pid === session && "STILLWAKE_MACHINE" in variables && !/^\S*sh -c\s/.test(command),
      );
      // A runner that has just started also leads a session and has the machine's environment for a moment.
      return leaders.filter(({ parent }) => !leaders.some(({ pid }) => pid === parent));
    },
    processes,
    waitUntilGone: async () =>
      void (await waitFor(() => processes().length === 0, { timeout: 20_000, what: "all machines to be gone" })),
    async close() {
      await Promise.all(orchestrators.map((one) => one.stop()));
      for (const { pid } of processes()) process.kill(pid, "SIGKILL");
      fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** A provider with another start function. */
export function withStart(
  make: ProviderFactory,
  start: (provider: Provider, order: MachineRequest) => Promise<StartedMachine>,
): ProviderFactory {
  return (context) => {
    const provider = make(context);
    return {
      kind: provider.kind,
      facts: provider.facts,
      list: () => provider.list(),
      start: (order) => start(provider, order),
      remove: (machine) => provider.remove(machine),
      onEnded: (listener) => provider.onEnded!(listener),
      close: (options) => provider.close!(options),
    };
  };
}

/** A provider that does not report start and end times, for tests that move the database's clock. */
export function withoutTimes(make: ProviderFactory): ProviderFactory {
  const bare = ({ startedAt: _1, endedAt: _2, ...machine }: ListedMachine): ListedMachine => machine;
  return (context) => {
    const provider = withStart(make, async (one, order) => ({ id: (await one.start(order)).id }))(context);
    return {
      ...provider,
      list: async () => (await provider.list()).map(bare),
      onEnded: (listener) => provider.onEnded!((machine) => listener(bare(machine))),
    };
  };
}
