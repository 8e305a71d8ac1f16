// Machines of Cloud Run: a pool has one job resource per size, and a machine is one execution of it.
//
// CPU and memory cannot be given per execution, so they are the job resource's; what is a machine's own, its name first of all, comes as environment
// with :run. There is no key that would make :run harmless to repeat: whoever asks looks for an execution with the machine's name first, and again after a lost
// answer. Executions end for good, so nothing is kept warm. Retries are 0: a job that died goes on under another lease, not under this machine's name.

import { poolPrefix, slotOf } from "../../names.ts";
import {
  type Exit,
  type Order,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type ProviderFacts,
  type SeenMachine,
  type Started,
} from "../../provider.ts";
import { memoryOf } from "../api-values.ts";
import type { Ask } from "../http.ts";
import { Doubts, doubtful } from "../uncertain-starts.ts";
import { CloudRunApi, type Operation } from "./api.ts";
import {
  type Container,
  type Execution,
  exitOfTask,
  idOf,
  isFinished,
  markOf,
  seen,
  type TaskResult,
} from "./execution.ts";
import {
  type CloudRunOptions,
  type CloudRunSettings,
  complaints,
  jobOf,
  pairs,
  readCloudRunOptions,
} from "./options.ts";

const MIN_SECONDS = 60;
/** After an answer was lost. */
const WAITS_MS = [1000, 2000, 4000];

export type { CloudRunOptions } from "./options.ts";

export function cloudRun(options: CloudRunOptions): ProviderFactory {
  const settings = readCloudRunOptions(options);
  return (context) => new CloudRun(settings, context);
}

class CloudRun implements Provider {
  readonly kind = "cloud-run";
  readonly facts: ProviderFacts;
  readonly #settings: CloudRunSettings;
  readonly #context: ProviderContext;
  readonly #api: CloudRunApi;
  readonly #job: string;
  /** Job resources of this pool in other sizes, that older settings have made and that may still have machines. */
  #others: Promise<string[]> | undefined;
  #ready: Promise<void> | undefined;
  readonly #starting = new Map<string, Promise<Started>>();
  readonly #doubts = new Doubts();

  constructor(settings: CloudRunSettings, context: ProviderContext) {
    const { region, job, cpu, memoryMb } = settings;
    this.#settings = settings;
    this.#context = context;
    this.#api = new CloudRunApi(settings, context.clock);
    this.#job = job ?? `${poolPrefix(context.fleet, context.pool)}c${cpu}-${memoryMb}mb`;
    this.facts = {
      region,
      ...(cpu !== undefined && { size: `${cpu} vCPU`, cpus: cpu }),
      ...(memoryMb !== undefined && { memoryMb }),
      made: [job, jobOf(settings, context).labels["stillwake-spec"]].join(" ").trim(),
      leastSeconds: MIN_SECONDS,
      bootMs: 180_000,
    };
  }

  async list(): Promise<SeenMachine[]> {
    const read = new Map<string, Execution[]>();
    for (const job of [this.#job, ...(await this.#otherJobs())]) read.set(job, await this.#api.executions(job));
    // Only now that all is read: of an end in a list that fails nobody would hear again.
    for (const [job, executions] of read) this.#api.told(job, executions);
    const machines = new Map<string, SeenMachine>();
    for (const execution of [...read.values()].flat()) {
      const name = this.#machineOf(execution);
      if (name === undefined) continue;
      const machine = seen(execution, name, (container) => this.#isStale(container));
      // Of twins the first one alive is the machine; the second one shows when that is gone, and is then a stray.
      const present = machines.get(name);
      if (present === undefined || present.state === "gone" || machine.state !== "gone") machines.set(name, machine);
    }
    return [...machines.values()];
  }

  start(order: Order): Promise<Started> {
    const running = this.#starting.get(order.name);
    if (running) return running;
    const started = this.#doubts
      .about(order.name, () => this.#start(order))
      .finally(() => this.#starting.delete(order.name));
    this.#starting.set(order.name, started);
    return started;
  }

  /** Cancels it. What is left is a record, which costs nothing and which Cloud Run clears away itself. */
  async remove({ name, id }: { name: string; id: string }): Promise<void> {
    const execution = isId(id) ? await this.#api.execution(id) : await this.#find(name);
    if (!execution || isFinished(execution)) return;
    if (this.#machineOf(execution) !== name) {
      throw new ProviderError("refused", `Execution ${id} is not machine ${name} of this fleet: it is left alone`, {
        certain: true,
      });
    }
    const cancel = `/${idOf(execution)}:cancel`;
    const { status } = await this.#api.ask("POST", cancel, { body: {}, expect: [400, 404, 409] });
    if (status < 300 || status === 404) return;
    // One that finishes in this moment cannot be cancelled any more.
    const after = await this.#api.execution(idOf(execution));
    if (!after || isFinished(after)) return;
    throw new ProviderError("refused", `Cloud Run does not cancel ${name}: ${status}`, { certain: true });
  }

  async autopsy({ id }: { name: string; id: string }): Promise<Exit | undefined> {
    const execution = isId(id) ? await this.#api.execution(id) : undefined;
    if (!execution) return undefined;
    const { body } = await this.#api.ask("GET", `/${id}/tasks?pageSize=1`);
    const task = (body as { tasks?: TaskResult[] }).tasks?.[0];
    return task && exitOfTask(execution, task);
  }

  async check(): Promise<string[]> {
    const job = await this.#api.job(this.#job);
    if (!this.#isManaged && !job) {
      throw new ProviderError("refused", `There is no Cloud Run job "${this.#job}" in ${this.#settings.region}`, {
        certain: true,
        remedy: "Make it, or give cloudRun() an image and leave out `job`",
      });
    }
    return this.#isManaged || !job ? [] : complaints(job, this.#settings);
  }

  async #start(order: Order): Promise<Started> {
    await this.#prepared();
    const before = await this.#find(order.name);
    if (before) return startedOf(before);
    for (let tried = 0; ; tried++) {
      let error: ProviderError;
      try {
        return await this.#alone(order.name, await this.#run(order));
      } catch (thrown) {
        if (!(thrown instanceof ProviderError)) throw thrown;
        if (thrown.certain && tried === 0) throw quotaOr(thrown);
        error = thrown;
      }
      // It may be running, by this call or by one before. An answer of theirs means that the call is over, and what is not there then will not come; without
      // one it may.
      const isOver = error.cause === undefined && !error.certain;
      const found = await this.#awaited(order.name, isOver ? [WAITS_MS[tried] ?? 0] : WAITS_MS, error);
      if (found) return startedOf(found);
      if (!isOver || tried >= WAITS_MS.length) throw doubtful(error);
    }
  }

  async #run(order: Order): Promise<Execution | undefined> {
    const path = `/jobs/${this.#job}:run`;
    const ask: Ask = { body: this.#runBody(order), repeatable: false };
    let answer = await this.#api.ask("POST", path, { ...ask, expect: [404] });
    if (answer.status === 404) {
      // Somebody has deleted it since.
      this.#ready = undefined;
      await this.#prepared();
      answer = await this.#api.ask("POST", path, ask);
    }
    const { metadata, error } = answer.body as Operation & { metadata?: Execution };
    if (!error) return metadata;
    const trouble = error.code === 8 ? "capacity" : "refused";
    throw new ProviderError(trouble, `Cloud Run does not run ${order.name}: ${error.message}`, { certain: true });
  }

  /** Somebody else may have asked for the same machine in the same moment: the elder one stays, and ours, which has not come up yet, goes. */
  async #alone(name: string, mine: Execution | undefined): Promise<Started> {
    const elder = await this.#find(name).catch(() => undefined);
    if (!mine?.name) {
      if (elder) return startedOf(elder);
      throw new ProviderError("unreachable", `Cloud Run does not say which execution ${name} is`, { certain: false });
    }
    if (!elder || idOf(elder) === idOf(mine)) return startedOf(mine);
    // What cannot be cancelled now is a stray later.
    await this.#api.ask("POST", `/${idOf(mine)}:cancel`, { body: {}, expect: [400, 404, 409] }).catch(() => {});
    return startedOf(elder);
  }

  async #awaited(name: string, waitsMs: number[], error: ProviderError): Promise<Execution | undefined> {
    for (const waitMs of waitsMs) {
      await this.#context.clock.sleep(waitMs);
      // Whoever cannot look does not know that it is not there.
      const found = await this.#find(name).catch(() => {
        throw doubtful(error);
      });
      if (found) return found;
    }
    return undefined;
  }

  /** The first execution of a machine, one that lives before one that has ended. */
  async #find(name: string): Promise<Execution | undefined> {
    const of = (await this.#api.executions(this.#job))
      .filter((execution) => this.#machineOf(execution) === name)
      .reverse();
    return of.find((execution) => !isFinished(execution)) ?? of[0];
  }

  async #otherJobs(): Promise<string[]> {
    if (!this.#isManaged) return [];
    this.#others ??= this.#findOthers();
    try {
      return await this.#others;
    } catch (error) {
      this.#others = undefined;
      throw error;
    }
  }

  async #findOthers(): Promise<string[]> {
    const { fleet, pool } = this.#context;
    const prefix = poolPrefix(fleet, pool);
    const others: string[] = [];
    for (const { name, labels } of await this.#api.jobs()) {
      const id = name.slice(name.lastIndexOf("/") + 1);
      const isOurs =
        id.startsWith(prefix) && /^c\d+-\d+mb$/.test(id.slice(prefix.length)) && labels?.["stillwake-fleet"] === fleet;
      if (isOurs && id !== this.#job) others.push(id);
    }
    // Only those that still have machines: what is made from now on is made of our own.
    const alive: string[] = [];
    for (const job of others)
      if ((await this.#api.executions(job)).some((execution) => !isFinished(execution))) alive.push(job);
    return alive;
  }

  get #isManaged(): boolean {
    return this.#settings.job === undefined;
  }

  /** The job resource is as it should be. Asked once, and again only when that has failed. */
  async #prepared(): Promise<void> {
    if (!this.#isManaged) return;
    this.#ready ??= this.#makeReady();
    try {
      await this.#ready;
    } catch (error) {
      this.#ready = undefined;
      if (!(error instanceof ProviderError) || error.certain) throw error;
      // Whatever has become of the job resource: nothing was run.
      const { trouble, message } = error;
      throw new ProviderError(trouble, message, { certain: true, cause: error });
    }
  }

  async #makeReady(): Promise<void> {
    const wanted = jobOf(this.#settings, this.#context);
    const job = await this.#api.job(this.#job);
    if (job) {
      const { labels, template } = job;
      if (labels?.["stillwake-fleet"] !== this.#context.fleet) {
        throw new ProviderError("refused", `Cloud Run job "${this.#job}" is not of this fleet: it is left alone`, {
          certain: true,
          remedy: "Rename or remove it",
        });
      }
      const isSame =
        labels["stillwake-spec"] === wanted.labels["stillwake-spec"] &&
        (template?.template?.maxRetries ?? 0) === 0 &&
        template?.template?.containers?.[0]?.image === this.#settings.image;
      if (isSame) return;
    }
    const { body } = await this.#api.ask("PATCH", `/jobs/${this.#job}?allowMissing=true`, { body: wanted });
    await this.#api.finished(body as Operation);
    this.#context.say("info", `Cloud Run job "${this.#job}" is ${job ? "brought up to date" : "made"}`, {
      job: this.#job,
    });
  }

  /** The machine's name if it is one of this fleet and pool. */
  #machineOf(execution: Execution): string | undefined {
    const { fleet, pool } = this.#context;
    const name = markOf(execution, "STILLWAKE_MACHINE");
    const isOurs =
      name !== undefined && slotOf(fleet, pool, name) !== undefined && markOf(execution, "STILLWAKE_FLEET") === fleet;
    return isOurs ? name : undefined;
  }

  #isStale({ image, resources }: Container): boolean {
    const { image: wanted, cpu, memoryMb } = this.#settings;
    if (!this.#isManaged) return false;
    const { memory, cpu: cpus } = resources?.limits ?? {};
    return (
      image !== wanted || cpus !== `${cpu}` || (memory !== undefined && memoryOf(memory) !== memoryOf(`${memoryMb}Mi`))
    );
  }

  #runBody({ env }: Order): object {
    const { env: more } = this.#settings;
    const all = { ...(this.#isManaged ? {} : more), ...env, STILLWAKE_FLEET: this.#context.fleet };
    return { overrides: { taskCount: 1, containerOverrides: [{ env: pairs(all) }] } };
  }
}

function startedOf(execution: Execution): Started {
  const { startTime } = execution;
  return { id: idOf(execution), ...(startTime !== undefined && { startedAt: new Date(startTime) }) };
}

function isId(id: string): boolean {
  return /^jobs\/[a-z0-9-]+\/executions\/[a-z0-9-]+$/.test(id);
}

/** Google says 429 both for asking too often, which passes by itself, and for a quota of what runs. */
function quotaOr(error: ProviderError): ProviderError {
  const isQuota =
    error.trouble === "rate" &&
    /quota|exhausted|limit/i.test(error.message) &&
    !/per minute|requests/i.test(error.message);
  if (!isQuota) return error;
  return new ProviderError("capacity", error.message, {
    certain: error.certain,
    remedy: "Wait for executions to end, ask Google for a larger quota, or lower the pool's max",
    cause: error,
  });
}
