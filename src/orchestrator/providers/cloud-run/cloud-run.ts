// Machines on Cloud Run: a pool has one job resource per size, and a machine is one execution of it.
//
// CPU and memory are properties of the job resource; the machine's name is passed as environment with :run. As :run has no idempotency key,
// start() first looks for an execution with the machine's name, and does so again after a call without a response. Executions cannot be
// restarted, so there are no warm machines. maxRetries is 0: a lost job is retried under another lease, on another machine.
import {
  type Exit,
  type ListedMachine,
  type MachineRequest,
  ordinalOf,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type ProviderFacts,
  poolPrefix,
  type StartedMachine,
} from "../../provider.ts";
import { asUncertain, formatMemoryLimit, type RequestOptions, UncertainStarts } from "../http.ts";
import { CloudRunApi, type Operation } from "./api.ts";
import {
  type Container,
  type Execution,
  isFinished,
  readEnv,
  readTaskExit,
  type TaskResult,
  toListedMachine,
  toMachineId,
} from "./execution.ts";
import {
  buildJob,
  type CloudRunOptions,
  type CloudRunSettings,
  jobWarnings,
  readCloudRunOptions,
  toEnvList,
} from "./options.ts";

const MIN_SECONDS = 60;
/** Waits between lookups after a call without a response. */
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
  /** Job resources of this pool in other sizes, from older settings, that may still have machines. */
  #others: Promise<string[]> | undefined;
  #ready: Promise<void> | undefined;
  readonly #starting = new Map<string, Promise<StartedMachine>>();
  readonly #uncertainStarts = new UncertainStarts();

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
      fingerprint: [job, buildJob(settings, context).labels["stillwake-spec"]].join(" ").trim(),
      leastSeconds: MIN_SECONDS,
      bootMs: 180_000,
    };
  }

  async list(): Promise<ListedMachine[]> {
    const read = new Map<string, Execution[]>();
    for (const job of [this.#job, ...(await this.#otherJobs())]) read.set(job, await this.#api.listExecutions(job));
    // Only after all reads succeeded: otherwise an exit in a failed list would never be reported.
    for (const [job, executions] of read) this.#api.markReported(job, executions);
    const machines = new Map<string, ListedMachine>();
    for (const execution of [...read.values()].flat()) {
      const name = this.#machineOf(execution);
      if (name === undefined) continue;
      const machine = toListedMachine(execution, name, (container) => this.#isStale(container));
      // Of two executions with one name the older live one is the machine; the other is listed once that is gone, as a stray.
      const present = machines.get(name);
      if (present === undefined || present.state === "gone" || machine.state !== "gone") machines.set(name, machine);
    }
    return [...machines.values()];
  }

  start(request: MachineRequest): Promise<StartedMachine> {
    const running = this.#starting.get(request.name);
    if (running) return running;
    const started = this.#uncertainStarts
      .track(request.name, () => this.#start(request))
      .finally(() => this.#starting.delete(request.name));
    this.#starting.set(request.name, started);
    return started;
  }

  /** Cancels the execution. Its record costs nothing and is deleted by Cloud Run. */
  async remove({ name, id }: { name: string; id: string }): Promise<void> {
    const execution = isId(id) ? await this.#api.getExecution(id) : await this.#find(name);
    if (!execution || isFinished(execution)) return;
    if (this.#machineOf(execution) !== name) {
      throw new ProviderError("refused", `Execution ${id} is not machine ${name} of this fleet and is not removed`, {
        certain: true,
      });
    }
    const cancel = `/${toMachineId(execution)}:cancel`;
    const { status } = await this.#api.request("POST", cancel, { body: {}, expect: [400, 404, 409] });
    if (status < 300 || status === 404) return;
    // An execution that has just finished cannot be cancelled.
    const after = await this.#api.getExecution(toMachineId(execution));
    if (!after || isFinished(after)) return;
    throw new ProviderError("refused", `Cloud Run refuses to cancel ${name}: ${status}`, { certain: true });
  }

  async getExitReason({ id }: { name: string; id: string }): Promise<Exit | undefined> {
    const execution = isId(id) ? await this.#api.getExecution(id) : undefined;
    if (!execution) return undefined;
    const { body } = await this.#api.request("GET", `/${id}/tasks?pageSize=1`);
    const task = (body as { tasks?: TaskResult[] }).tasks?.[0];
    return task && readTaskExit(execution, task);
  }

  async check(): Promise<string[]> {
    const job = await this.#api.getJob(this.#job);
    if (!this.#isManaged && !job) {
      throw new ProviderError("refused", `There is no Cloud Run job "${this.#job}" in ${this.#settings.region}`, {
        certain: true,
        remedy: "Create it, or set `image` instead of `job`",
      });
    }
    return this.#isManaged || !job ? [] : jobWarnings(job, this.#settings);
  }

  async #start(request: MachineRequest): Promise<StartedMachine> {
    await this.#ensureJob();
    const before = await this.#find(request.name);
    if (before) return toStarted(before);
    for (let retry = 0; ; retry++) {
      let error: ProviderError;
      try {
        return await this.#keepOldest(request.name, await this.#run(request));
      } catch (thrown) {
        if (!(thrown instanceof ProviderError)) throw thrown;
        if (thrown.certain && retry === 0) throw toQuotaError(thrown);
        error = thrown;
      }
      // The machine may run because of this call or an earlier one. With a response the call is finished, and a missing
      // execution will not appear; without one it may.
      const isOver = error.cause === undefined && !error.certain;
      const found = await this.#waitForExecution(request.name, isOver ? [WAITS_MS[retry] ?? 0] : WAITS_MS, error);
      if (found) return toStarted(found);
      if (!isOver || retry >= WAITS_MS.length) throw asUncertain(error);
    }
  }

  async #run(request: MachineRequest): Promise<Execution | undefined> {
    const path = `/jobs/${this.#job}:run`;
    const options: RequestOptions = { body: this.#runBody(request), repeatable: false };
    let response = await this.#api.request("POST", path, { ...options, expect: [404] });
    if (response.status === 404) {
      // The job resource was deleted.
      this.#ready = undefined;
      await this.#ensureJob();
      response = await this.#api.request("POST", path, options);
    }
    const { metadata, error } = response.body as Operation & { metadata?: Execution };
    if (!error) return metadata;
    const kind = error.code === 8 ? "capacity" : "refused";
    throw new ProviderError(kind, `Cloud Run refuses to run ${request.name}: ${error.message}`, { certain: true });
  }

  /** If two orchestrators started the machine concurrently, the newer execution is cancelled. */
  async #keepOldest(name: string, mine: Execution | undefined): Promise<StartedMachine> {
    const oldest = await this.#find(name).catch(() => undefined);
    if (!mine?.name) {
      if (oldest) return toStarted(oldest);
      throw new ProviderError("unreachable", `Cloud Run returned no execution for ${name}`, { certain: false });
    }
    if (!oldest || toMachineId(oldest) === toMachineId(mine)) return toStarted(mine);
    // If the cancel fails, it is removed later as a stray.
    await this.#api
      .request("POST", `/${toMachineId(mine)}:cancel`, { body: {}, expect: [400, 404, 409] })
      .catch(() => {});
    return toStarted(oldest);
  }

  async #waitForExecution(name: string, waitsMs: number[], error: ProviderError): Promise<Execution | undefined> {
    for (const waitMs of waitsMs) {
      await this.#context.clock.sleep(waitMs);
      // A failed lookup does not prove that there is no execution.
      const found = await this.#find(name).catch(() => {
        throw asUncertain(error);
      });
      if (found) return found;
    }
    return undefined;
  }

  /** The oldest live execution of a machine, or the oldest one that has ended. */
  async #find(name: string): Promise<Execution | undefined> {
    const executions = (await this.#api.listExecutions(this.#job))
      .filter((execution) => this.#machineOf(execution) === name)
      .reverse();
    return executions.find((execution) => !isFinished(execution)) ?? executions[0];
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
    for (const { name, labels } of await this.#api.listJobs()) {
      const id = name.slice(name.lastIndexOf("/") + 1);
      const isOurs =
        id.startsWith(prefix) && /^c\d+-\d+mb$/.test(id.slice(prefix.length)) && labels?.["stillwake-fleet"] === fleet;
      if (isOurs && id !== this.#job) others.push(id);
    }
    // Only those with live machines: new machines use the current job resource.
    const live: string[] = [];
    for (const job of others)
      if ((await this.#api.listExecutions(job)).some((execution) => !isFinished(execution))) live.push(job);
    return live;
  }

  get #isManaged(): boolean {
    return this.#settings.job === undefined;
  }

  /** Makes sure that the job resource is up to date. Runs once, and again only after a failure. */
  async #ensureJob(): Promise<void> {
    if (!this.#isManaged) return;
    this.#ready ??= this.#updateJob();
    try {
      await this.#ready;
    } catch (error) {
      this.#ready = undefined;
      if (!(error instanceof ProviderError) || error.certain) throw error;
      // Whatever happened to the job resource, no execution was started.
      const { kind, message } = error;
      throw new ProviderError(kind, message, { certain: true, cause: error });
    }
  }

  async #updateJob(): Promise<void> {
    const wanted = buildJob(this.#settings, this.#context);
    const job = await this.#api.getJob(this.#job);
    if (job) {
      const { labels, template } = job;
      if (labels?.["stillwake-fleet"] !== this.#context.fleet) {
        throw new ProviderError("refused", `Cloud Run job "${this.#job}" does not belong to this fleet`, {
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
    const { body } = await this.#api.request("PATCH", `/jobs/${this.#job}?allowMissing=true`, { body: wanted });
    await this.#api.waitForOperation(body as Operation);
    this.#context.report("info", `Cloud Run job "${this.#job}" ${job ? "updated" : "created"}`, {
      job: this.#job,
    });
  }

  /** The machine's name; undefined for a machine outside this fleet and pool. */
  #machineOf(execution: Execution): string | undefined {
    const { fleet, pool } = this.#context;
    const name = readEnv(execution, "STILLWAKE_MACHINE");
    const isOurs =
      name !== undefined &&
      ordinalOf(fleet, pool, name) !== undefined &&
      readEnv(execution, "STILLWAKE_FLEET") === fleet;
    return isOurs ? name : undefined;
  }

  #isStale({ image, resources }: Container): boolean {
    const { image: wanted, cpu, memoryMb } = this.#settings;
    if (!this.#isManaged) return false;
    const { memory, cpu: cpus } = resources?.limits ?? {};
    return (
      image !== wanted ||
      cpus !== `${cpu}` ||
      (memory !== undefined && formatMemoryLimit(memory) !== formatMemoryLimit(`${memoryMb}Mi`))
    );
  }

  #runBody({ env }: MachineRequest): object {
    const { env: extraEnv } = this.#settings;
    const all = { ...(this.#isManaged ? {} : extraEnv), ...env, STILLWAKE_FLEET: this.#context.fleet };
    return { overrides: { taskCount: 1, containerOverrides: [{ env: toEnvList(all) }] } };
  }
}

function toStarted(execution: Execution): StartedMachine {
  const { startTime } = execution;
  return { id: toMachineId(execution), ...(startTime !== undefined && { startedAt: new Date(startTime) }) };
}

function isId(id: string): boolean {
  return /^jobs\/[a-z0-9-]+\/executions\/[a-z0-9-]+$/.test(id);
}

/** Google responds with 429 to a high request rate as well as to an exhausted quota of executions. */
function toQuotaError(error: ProviderError): ProviderError {
  const isQuota =
    error.kind === "rate" &&
    /quota|exhausted|limit/i.test(error.message) &&
    !/per minute|requests/i.test(error.message);
  if (!isQuota) return error;
  return new ProviderError("capacity", error.message, {
    certain: error.certain,
    remedy: "Wait for executions to finish, request a larger quota from Google, or lower the pool's max",
    cause: error,
  });
}
