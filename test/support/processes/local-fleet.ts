// A pool of local machines with an orchestrator, for tests that count processes from outside: by what stands in their environment.
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
import type { Order, Provider, ProviderFactory, SeenMachine, Started } from "../../../src/orchestrator/provider.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { type FoundProcess, processesWith } from "../providers/provider-cases.ts";
import { ROOT } from "./build.ts";

const CLI = path.join(ROOT, "dist/cli/index.js");
const SCRIPT = path.join(ROOT, "test/fixtures/pipelines/script.mjs");

export interface LocalFleet {
  pool: string;
  dir: string;
  options: LocalOptions;
  /** One more, with the same machines. */
  orchestrate(settings?: Partial<PoolOptions>): Promise<Orchestrator>;
  /** What the orchestrators have said. */
  said: string[];
  /** The machines that are alive, each one process. */
  machines(): FoundProcess[];
  /** All that belongs to them: keepers, runners, commands. */
  processes(): FoundProcess[];
  /** Until no process of them is there. */
  quiet(): Promise<void>;
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
  const mark = `FLEET_OF_TEST=${dir}`;
  const orchestrators: Orchestrator[] = [];
  const said: string[] = [];
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
  const processes = () => processesWith(mark);
  return {
    pool,
    dir,
    options,
    said,
    async orchestrate({ provider = local(options), ...settings } = {}) {
      const orchestrator = createOrchestrator({
        url,
        pools: {
          [pool]: { idleExit: "300ms", grace: "10s", max: 3, ...settings, provider: provider as ProviderFactory },
        },
        onEvent: ({ message }) => said.push(message),
      });
      orchestrators.push(orchestrator);
      return orchestrator.start();
    },
    machines: () => {
      const leaders = processes().filter(
        // A shell wants to become one. It is none yet, and if somebody else has the name by then it never will be.
        ({ pid, session, command, variables }) =>
          pid === session && "STILLWAKE_MACHINE" in variables && !/^\S*sh -c\s/.test(command),
      );
      // A runner that has just begun leads a session too, and has the environment of its machine for a moment.
      return leaders.filter(({ parent }) => !leaders.some(({ pid }) => pid === parent));
    },
    processes,
    quiet: async () =>
      void (await waitFor(() => processes().length === 0, { timeout: 20_000, what: "all machines to be gone" })),
    async close() {
      await Promise.all(orchestrators.map((one) => one.stop()));
      for (const { pid } of processes()) process.kill(pid, "SIGKILL");
      fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** The provider with another way to start. */
export function startingBy(
  make: ProviderFactory,
  start: (provider: Provider, order: Order) => Promise<Started>,
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

/** Machines of which it is not told when they began and ended: for a test that moves the database's time, which theirs does not follow. */
export function timeless(make: ProviderFactory): ProviderFactory {
  const bare = ({ startedAt: _1, endedAt: _2, ...machine }: SeenMachine): SeenMachine => machine;
  return (context) => {
    const provider = startingBy(make, async (one, order) => ({ id: (await one.start(order)).id }))(context);
    return {
      ...provider,
      list: async () => (await provider.list()).map(bare),
      onEnded: (listener) => provider.onEnded!((machine) => listener(bare(machine))),
    };
  };
}
