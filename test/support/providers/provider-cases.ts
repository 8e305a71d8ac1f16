// The fixture interface of the conformance suite (test/orchestrator/providers.test.ts), and the fixture of the local provider,
// whose machines are real processes. Whether a machine exists is always read from the system, never from the provider.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import {
  type MachineRequest,
  machineName,
  type Provider,
  type ProviderContext,
  realClock,
} from "../../../src/orchestrator/provider.ts";
import { local } from "../../../src/orchestrator/providers/local/local.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { isAlive } from "../processes/fault-checks.ts";

/** Controls the system behind a provider. */
export interface ProviderFixture {
  /** Default: pool "scan" of fleet "aaaaaaaa". */
  provider(owner?: { fleet?: string; pool?: string }): Provider;
  /** Names of all running machines, of any fleet; with duplicates. */
  running(): string[];
  /** The environment of a running machine. */
  readEnvironment(name: string): Record<string, string>;
  /** Makes the machine exit with this code. Resolves when it has exited. */
  exit(name: string, code: number): Promise<void>;
  /** Adds a running machine of another owner, with these tags or none. Returns its id. */
  addForeign(machine: { name: string; fleet?: string; pool?: string }): Promise<string>;
  /** The waits of the provider on a simulated clock; their sum is the difference to real time. */
  waits(): number[];
  /** All calls fail until repair(). */
  disconnect(): void;
  /** The API rejects the token until repair(). Undefined for a provider without a token. */
  rejectToken?(): void;
  /** The next start is executed, but its response is lost, including those of all retries. */
  loseResponse?(): void;
  repair(): void;
  /** Number of API calls so far. */
  calls?(): number;
  close(): Promise<void>;
}

export const FLEET = "aaaaaaaa";
export const POOL = "scan";

/** The request for the machine of this ordinal; `burst` is the number in a burst machine's name. */
export function machineRequest(ordinal: number, { burst = 0, pool = POOL, fleet = FLEET } = {}): MachineRequest {
  const name = machineName(fleet, pool, ordinal) + (burst ? `-${burst}` : "");
  const env = { STILLWAKE_MACHINE: name, STILLWAKE_POOL: pool, STILLWAKE_SLOTS: "1", STILLWAKE_IDLE_EXIT: "60s" };
  return { name, burst: burst > 0, env };
}

export function providerContext(overrides: Partial<ProviderContext> = {}): ProviderContext {
  return { fleet: FLEET, pool: POOL, slots: 1, graceMs: 5000, report: () => {}, clock: realClock, ...overrides };
}

/** Reads its exit code from a FIFO; a signal kills it. */
const SCRIPT =
  'rm -f "$ENDS/$STILLWAKE_MACHINE"; mkfifo "$ENDS/$STILLWAKE_MACHINE"; read -r code <"$ENDS/$STILLWAKE_MACHINE"; exit "$code"';

export function localFixture(): ProviderFixture & { dir: string } {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-machines-")));
  const [registry, ends] = [path.join(dir, "registry"), path.join(dir, "ends")];
  fs.mkdirSync(ends);
  const providers: Provider[] = [];
  const env = { ENDS: ends };
  const fifo = (name: string) => path.join(ends, name);
  return {
    dir: registry,
    provider({ fleet = FLEET, pool = POOL } = {}) {
      const provider = local({ command: "/bin/sh", args: ["-c", SCRIPT], env, dir: registry })(
        providerContext({ fleet, pool }),
      );
      providers.push(provider);
      return provider;
    },
    running: () => leaders(`ENDS=${ends}`).map(({ variables }) => variables.STILLWAKE_MACHINE ?? ""),
    readEnvironment: (name) => leaders(`ENDS=${ends}`, `STILLWAKE_MACHINE=${name}`)[0]!.variables,
    async exit(name, code) {
      const all = findProcesses(`STILLWAKE_MACHINE=${name}`, `ENDS=${ends}`);
      // Without O_NONBLOCK this process would be blocked until the machine reads.
      const open = () => fs.openSync(fifo(name), fs.constants.O_WRONLY | fs.constants.O_NONBLOCK);
      const file = await waitFor(open, { what: "the machine to read its FIFO" });
      fs.writeSync(file, `${code}\n`);
      fs.closeSync(file);
      await waitFor(() => !all.some(({ pid }) => isAlive(pid)), { what: "its exit" });
    },
    async addForeign({ name, fleet = "", pool = "" }) {
      // As another program with the same naming scheme would create it.
      const script = `(mkfifo "$ENDS/$STILLWAKE_MACHINE"; exec setsid sh -c 'read -r code <"$ENDS/$STILLWAKE_MACHINE"') >/dev/null 2>&1 & echo $!`;
      const pid = execFileSync("/bin/sh", ["-c", script], {
        env: { PATH: process.env.PATH, ENDS: ends, STILLWAKE_MACHINE: name },
        encoding: "utf8",
      }).trim();
      fs.mkdirSync(registry, { recursive: true, mode: 0o700 });
      fs.writeFileSync(path.join(registry, `${name}.json`), JSON.stringify({ name, fleet, pool, burst: false }));
      const boot = fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
      const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
      fs.writeFileSync(path.join(registry, `${name}.00000001.pid`), `${pid} ${boot} ${stat}`);
      await waitFor(() => leaders(`ENDS=${ends}`, `STILLWAKE_MACHINE=${name}`).length > 0);
      return pid;
    },
    waits: () => [],
    disconnect() {
      fs.renameSync(registry, `${registry}.away`);
      fs.writeFileSync(registry, "");
    },
    repair() {
      if (!fs.existsSync(`${registry}.away`)) return;
      fs.rmSync(registry);
      fs.renameSync(`${registry}.away`, registry);
    },
    async close() {
      this.repair();
      for (const provider of providers) await provider.close?.();
      for (const { pid } of findProcesses(`ENDS=${ends}`)) process.kill(pid, "SIGKILL");
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Machines themselves, without their child processes. */
function leaders(...variables: string[]): FoundProcess[] {
  return findProcesses(...variables).filter(({ pid, session }) => pid === session);
}

export interface FoundProcess {
  pid: number;
  parent: number;
  session: number;
  command: string;
  variables: Record<string, string>;
}

/** Live processes whose environment contains all of these "NAME=value". */
export function findProcesses(...required: string[]): FoundProcess[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    const pid = Number(entry);
    if (!pid || pid === process.pid) return [];
    try {
      const lines = fs.readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
      if (!required.every((variable) => lines.includes(variable)) || !isAlive(pid)) return [];
      const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
      const [, parent, , session] = stat
        .slice(stat.lastIndexOf(")") + 2)
        .split(" ")
        .map(Number);
      const command = fs.readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ").trim();
      const variables = Object.fromEntries(
        lines.filter(Boolean).map((line) => [line.split("=", 1)[0]!, line.slice(line.indexOf("=") + 1)]),
      );
      return [{ pid, parent: parent!, session: session!, command, variables }];
    } catch {
      return [];
    }
  });
}
