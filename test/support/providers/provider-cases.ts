// Machines for tests: the stage on which the conformance suite (test/orchestrator/providers.test.ts) tries a provider, and that of the local one, whose machines are real
// processes that wait to be told how to end. Whether a machine is there is always asked of the system, never of the provider.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { machineName } from "../../../src/orchestrator/names.ts";
import { type Order, type Provider, type ProviderContext, realClock } from "../../../src/orchestrator/provider.ts";
import { local } from "../../../src/orchestrator/providers/local/local.ts";
import { waitFor } from "../../../src/testing/index.ts";
import { isAlive } from "../processes/aftermath.ts";

/** What stands between a provider and its machines, as the conformance suite needs it. */
export interface ProviderStage {
  /** Of pool "scan" of fleet "aaaaaaaa" unless told. */
  provider(whose?: { fleet?: string; pool?: string }): Provider;
  /** The names of machines that run now, whosever they are; a name twice for two of that name. */
  running(): string[];
  /** What a running machine has in its environment. */
  environmentOf(name: string): Record<string, string>;
  /** The machine ends by itself with this code. Resolves when it has ended. */
  end(name: string, code: number): Promise<void>;
  /** A machine that somebody else has made: it runs, and carries these tags or none. Answers what the provider calls it. */
  foreign(machine: { name: string; fleet?: string; pool?: string }): Promise<string>;
  /** The waits of the provider, where nobody really waits: so much later than here it is there. */
  waits(): number[];
  /** Nobody answers any more, until the stage is mended. */
  unplug(): void;
  /** The token is refused from now on. Without it there is none. */
  refuseToken?(): void;
  /** The next call that starts or makes a machine is carried out, and its answer is lost, every try of it within the same call of the provider included. */
  loseAnswer?(): void;
  mend(): void;
  /** How many calls the other side has had. */
  calls?(): number;
  close(): Promise<void>;
}

export const FLEET = "aaaaaaaa";
export const POOL = "scan";

/** The order of the machine at this place; a burst machine's name has a number behind it. */
export function orderOf(slot: number, { burst = 0, pool = POOL, fleet = FLEET } = {}): Order {
  const name = machineName(fleet, pool, slot) + (burst ? `-${burst}` : "");
  const env = { STILLWAKE_MACHINE: name, STILLWAKE_POOL: pool, STILLWAKE_SLOTS: "1", STILLWAKE_IDLE_EXIT: "60s" };
  return { name, burst: burst > 0, env };
}

export function contextOf(given: Partial<ProviderContext> = {}): ProviderContext {
  return { fleet: FLEET, pool: POOL, slots: 1, graceMs: 5000, say: () => {}, clock: realClock, ...given };
}

/** Waits to be told with which code to end; told to end by a signal, it ends of that. */
const WAITING =
  'rm -f "$ENDS/$STILLWAKE_MACHINE"; mkfifo "$ENDS/$STILLWAKE_MACHINE"; read -r code <"$ENDS/$STILLWAKE_MACHINE"; exit "$code"';

export function localStage(): ProviderStage & { dir: string } {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-machines-")));
  const [registry, ends] = [path.join(dir, "registry"), path.join(dir, "ends")];
  fs.mkdirSync(ends);
  const made: Provider[] = [];
  const env = { ENDS: ends };
  const fifo = (name: string) => path.join(ends, name);
  return {
    dir: registry,
    provider({ fleet = FLEET, pool = POOL } = {}) {
      const provider = local({ command: "/bin/sh", args: ["-c", WAITING], env, dir: registry })(
        contextOf({ fleet, pool }),
      );
      made.push(provider);
      return provider;
    },
    running: () => leaders(`ENDS=${ends}`).map(({ variables }) => variables.STILLWAKE_MACHINE ?? ""),
    environmentOf: (name) => leaders(`ENDS=${ends}`, `STILLWAKE_MACHINE=${name}`)[0]!.variables,
    async end(name, code) {
      const all = processesWith(`STILLWAKE_MACHINE=${name}`, `ENDS=${ends}`);
      await waitFor(() => fs.existsSync(fifo(name)), { what: "the machine to wait for its end" });
      fs.writeFileSync(fifo(name), `${code}\n`);
      await waitFor(() => !all.some(({ pid }) => isAlive(pid)), { what: "its end" });
    },
    async foreign({ name, fleet = "", pool = "" }) {
      // As another provider would have left it, or somebody with the same idea.
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
    unplug() {
      fs.renameSync(registry, `${registry}.away`);
      fs.writeFileSync(registry, "");
    },
    mend() {
      if (!fs.existsSync(`${registry}.away`)) return;
      fs.rmSync(registry);
      fs.renameSync(`${registry}.away`, registry);
    },
    async close() {
      this.mend();
      for (const provider of made) await provider.close?.();
      for (const { pid } of processesWith(`ENDS=${ends}`)) process.kill(pid, "SIGKILL");
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Of those, the ones that a machine is, and not what they have started. */
function leaders(...wanted: string[]): FoundProcess[] {
  return processesWith(...wanted).filter(({ pid, session }) => pid === session);
}

export interface FoundProcess {
  pid: number;
  parent: number;
  session: number;
  command: string;
  variables: Record<string, string>;
}

/** Living processes whose environment has all of these "NAME=value". */
export function processesWith(...wanted: string[]): FoundProcess[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    const pid = Number(entry);
    if (!pid || pid === process.pid) return [];
    try {
      const lines = fs.readFileSync(`/proc/${pid}/environ`, "latin1").split("\0");
      if (!wanted.every((one) => lines.includes(one)) || !isAlive(pid)) return [];
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
