// The worker processes of the soak: always the same number, each replaced when it ends, and a record of what was done to
// which of them.
import fs from "node:fs";
import path from "node:path";
import { cleanUp } from "../support/cleanup.ts";
import { ROOT } from "../support/processes/build.ts";
import { isAlive } from "../support/processes/fault-checks.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";
import { pause, type Random } from "./faults.ts";

export interface Harm {
  worker: string;
  /** Date.now() from when on its attempts may be lost, and until when. */
  from: number;
  until: number;
}

interface Named {
  name: string;
  process: WorkerProcess;
}

export class SoakWorkers {
  readonly harms: Harm[] = [];
  /** Workers that ended without being killed. */
  readonly deaths: string[] = [];
  readonly scratch: string;
  readonly #url: string;
  readonly #count: number;
  readonly #lease: string;
  readonly #workers = new Map<string, Named>();
  #started = 0;
  #stopping = false;

  constructor(options: { url: string; count: number; lease: string; scratch: string }) {
    this.#url = options.url;
    this.#count = options.count;
    this.#lease = options.lease;
    this.scratch = options.scratch;
    fs.mkdirSync(this.scratch, { recursive: true });
    fs.writeFileSync(path.join(this.scratch, "stillwake.config.mjs"), "export default { heapMb: 80 };\n");
  }

  async start(): Promise<void> {
    cleanUp(() => {
      this.#stopping = true;
    });
    for (let number = 0; number < this.#count; number++) await this.#startOne(false);
  }

  async #startOne(skipWait: boolean): Promise<void> {
    const name = `soak-${++this.#started}`;
    const process = await startWorker({
      url: this.#url,
      pipelines: path.join(ROOT, "test/fixtures/pipelines/soak.mjs"),
      args: [
        ...["--slots", "3", "--lease", this.#lease, "--name", name, "--grace", "1s"],
        ...[
          "--scratch",
          path.join(this.scratch, "work"),
          "--store",
          `file:${path.resolve(this.scratch, "../../artifacts")}`,
        ],
        ...["--config", path.join(this.scratch, "stillwake.config.mjs")],
      ],
      skipWait,
    });
    this.#workers.set(name, { name, process });
    void process.exited.then(async (code) => {
      this.#workers.delete(name);
      const wasHarmed = this.harms.some(({ worker }) => worker === name);
      if (!wasHarmed && !this.#stopping) this.deaths.push(`${name}: ${code}: ${process.stderr().slice(-500)}`);
      // A worker that cannot start is not restarted in a tight loop.
      await pause(200);
      if (!this.#stopping) await this.#startOne(true);
    });
  }

  pick(random: Random): string {
    const names = [...this.#workers.keys()];
    return names[Math.floor(random() * names.length)] ?? "";
  }

  runnersOf(name: string): number[] {
    try {
      return this.#workers.get(name)?.process.runners() ?? [];
    } catch {
      return [];
    }
  }

  kill(name: string, signal: NodeJS.Signals): void {
    this.#harm(name, 60_000);
    this.#workers.get(name)?.process.signal(signal);
  }

  killRunner(name: string, pid: number): void {
    this.#harm(name, 5000);
    send(pid, "SIGKILL");
  }

  async freeze(name: string, ms: number): Promise<void> {
    const worker = this.#workers.get(name);
    if (!worker) return;
    // Its jobs may be taken until its lease is extended again.
    this.#harm(name, ms + 20_000);
    const pids = [worker.process.pid, ...this.runnersOf(name)];
    for (const pid of pids) send(pid, "SIGSTOP");
    await pause(ms);
    for (const pid of pids) send(pid, "SIGCONT");
  }

  async freezeRunner(name: string, pid: number, ms: number): Promise<void> {
    this.#harm(name, ms + 5000);
    send(pid, "SIGSTOP");
    await pause(ms);
    send(pid, "SIGCONT");
  }

  #harm(worker: string, ms: number): void {
    // The clock of the database and of this process are the same machine's.
    this.harms.push({ worker, from: Date.now() - 2000, until: Date.now() + ms });
  }

  /** Stops them as a deployment does. Returns the processes that were left over. */
  async stop(): Promise<number[]> {
    this.#stopping = true;
    const workers = [...this.#workers.values()];
    const runners = workers.flatMap(({ name }) => this.runnersOf(name));
    for (const { process } of workers) process.signal("SIGTERM");
    await Promise.all(workers.map(({ process }) => process.exited));
    return [...runners.filter(isAlive), ...leftOver(this.scratch)];
  }
}

/** Commands that jobs have started and that are still running: they work in the scratch directory. */
function leftOver(scratch: string): number[] {
  return fs.readdirSync("/proc").flatMap((entry) => {
    try {
      return /^\d+$/.test(entry) && fs.readlinkSync(`/proc/${entry}/cwd`).startsWith(path.join(scratch, "work"))
        ? [Number(entry)]
        : [];
    } catch {
      return [];
    }
  });
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {}
}
