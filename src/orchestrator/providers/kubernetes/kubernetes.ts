// Machines on Kubernetes: each is a Job of batch/v1 with one pod, created when there is work and deleted afterwards. The Job has the
// machine's name, so creating it is idempotent. Jobs cannot be restarted, so there are no warm machines.
import { durationMs } from "../../../time.ts";
import {
  type ListedMachine,
  type MachineRequest,
  ordinalOf,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type ProviderFacts,
  type StartedMachine,
} from "../../provider.ts";
import { ApiClient, type ApiResponse, asUncertain, UncertainStarts } from "../http.ts";
import { type KubeAccess, readKubeAccess } from "./access.ts";
import {
  buildJob,
  byAge,
  isOurs,
  type KubeJob,
  type KubePod,
  labelsFor,
  specHash,
  startupProblem,
  toListedMachine,
  toOrphanedMachine,
} from "./machine.ts";
import { type KubernetesOptions, type KubernetesSettings, readKubernetesOptions } from "./options.ts";

const PAGE = 250;
const MAX_EXPIRED = 3;

export type { KubernetesOptions } from "./options.ts";

export function kubernetes(options: KubernetesOptions): ProviderFactory {
  const settings = readKubernetesOptions(options);
  return (context) => new Kubernetes(settings, context);
}

class Kubernetes implements Provider {
  readonly kind = "kubernetes";
  readonly facts: ProviderFacts;
  readonly #settings: KubernetesSettings;
  readonly #context: ProviderContext;
  readonly #api: ApiClient;
  readonly #namespace: string;
  /** Machines whose startup problem has been reported. */
  readonly #reported = new Set<string>();
  readonly #uncertainStarts = new UncertainStarts();

  constructor(settings: KubernetesSettings, context: ProviderContext) {
    const access: KubeAccess = readKubeAccess(settings);
    const { cpu, memoryMb, timeout } = settings;
    const fetch = settings.fetch ?? access.fetch;
    this.#settings = settings;
    this.#context = context;
    this.#namespace = settings.namespace ?? access.namespace ?? "default";
    this.#api = new ApiClient({
      name: "Kubernetes",
      base: access.server,
      authorize: () => access.headers(),
      clock: context.clock,
      authRemedy: `Check the token, and that its role may create, get, list and delete jobs and list pods in namespace "${this.#namespace}"`,
      ...(timeout !== undefined && { timeoutMs: durationMs(timeout, "timeout") }),
      ...(fetch && { fetch }),
    });
    this.facts = {
      ...(cpu !== undefined && { cpus: cpu, size: `${cpu} CPU` }),
      ...(memoryMb !== undefined && { memoryMb }),
      fingerprint: specHash(settings, context),
      // The cluster may have to add a node, and the node to pull the image.
      bootMs: 5 * 60_000,
    };
  }

  async list(): Promise<ListedMachine[]> {
    // Pods first: if the Job of a pod is missing from the later list, it was deleted.
    const pods = (await this.#all<KubePod>(`/api/v1/namespaces/${this.#namespace}/pods`)).sort(byAge);
    const jobs = await this.#all<KubeJob>(this.#jobs);
    const spec = specHash(this.#settings, this.#context);
    const machines = new Map<string, ListedMachine>();
    for (const pod of pods) {
      const machine = toOrphanedMachine(pod);
      if (machine && this.#isMachine(machine.name)) machines.set(machine.name, machine);
    }
    for (const job of jobs.filter(({ metadata }) => this.#isMachine(metadata.name))) {
      const jobPods = pods.filter(({ metadata }) =>
        metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid),
      );
      const machine = toListedMachine(job, jobPods, spec);
      machines.set(machine.name, machine);
      if (machine.state === "starting") this.#reportStartupProblem(machine.name, jobPods.at(-1));
    }
    for (const name of this.#reported) if (machines.get(name)?.state !== "starting") this.#reported.delete(name);
    return [...machines.values()];
  }

  start(request: MachineRequest): Promise<StartedMachine> {
    return this.#uncertainStarts.track(request.name, async () => {
      const body = buildJob(request, this.#settings, this.#context);
      const response = await this.#api.request("POST", this.#jobs, { body, expect: [403, 409] });
      const { metadata } =
        response.status < 300 ? (response.body as KubeJob) : await this.#adopt(request.name, response);
      return { id: metadata.uid ?? request.name };
    });
  }

  async remove({ name, id }: { name: string; id: string }): Promise<void> {
    const job = this.#isMachine(name) ? await this.#get(name) : "foreign";
    if (job === "foreign") {
      throw new ProviderError("refused", `Job "${name}" is not a machine of this pool and is not removed`, {
        certain: true,
      });
    }
    const { uid } = job?.metadata ?? {};
    // Only the Job that was listed, not a newer one of the same name.
    if (!job || (isUid(id) && uid !== id)) return;
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      propagationPolicy: "Background",
      ...(uid !== undefined && { preconditions: { uid } }),
    };
    await this.#api.request("DELETE", `${this.#jobs}/${name}`, { body, expect: [404, 409] });
  }

  async check(): Promise<string[]> {
    await this.#api.request("GET", `${this.#jobs}?limit=1&labelSelector=${this.#selector}`);
    await this.#api.request(
      "GET",
      `/api/v1/namespaces/${this.#namespace}/pods?limit=1&labelSelector=${this.#selector}`,
    );
    const { image, secretRef } = this.#settings;
    return [
      ...(secretRef === undefined
        ? ["kubernetes() has no secretRef: workers need STILLWAKE_DATABASE_URL from a Secret"]
        : []),
      ...(/(^|\/)[^/:@]+(:latest)?$/.test(image)
        ? [`The image ${image} has no version: machines may run different code`]
        : []),
    ];
  }

  /**
   * Handles a refused create: the name is taken, by an earlier call or another Job, or the request is forbidden.
   * Kubernetes checks quotas before names, so the Job of an earlier call may be what exhausts the quota.
   */
  async #adopt(name: string, { status, body, uncertain: unsure }: ApiResponse): Promise<KubeJob> {
    const refusal = status === 403 ? toForbiddenError(body, this.#namespace) : undefined;
    if (refusal?.kind === "auth" && !unsure) throw refusal;
    const job = await this.#get(name).catch((error: ProviderError) => {
      // Without reading it, neither its existence nor its owner is known.
      throw asUncertain(refusal ?? error);
    });
    // An earlier attempt without a response may still create it once its name is free.
    const certain = !unsure;
    if (!job) {
      if (refusal) throw certain ? refusal : asUncertain(refusal);
      throw new ProviderError("unstartable", `Job ${name} existed and was deleted`, { certain });
    }
    if (job === "foreign") {
      throw new ProviderError("unstartable", `Job ${name} exists and does not belong to this fleet`, {
        certain: true,
        remedy: "Rename or remove it, or use a separate namespace",
      });
    }
    if (job.metadata.deletionTimestamp !== undefined) {
      throw new ProviderError("unstartable", `Job ${name} is being deleted`, { certain });
    }
    return job;
  }

  async #get(name: string): Promise<KubeJob | "foreign" | undefined> {
    const { status, body } = await this.#api.request("GET", `${this.#jobs}/${name}`, { expect: [404] });
    if (status === 404) return undefined;
    return isOurs(body as KubeJob, this.#context) ? (body as KubeJob) : "foreign";
  }

  async #all<T>(path: string): Promise<T[]> {
    const found: T[] = [];
    let next = "";
    for (let expired = 0; ; ) {
      const query = `limit=${PAGE}&labelSelector=${this.#selector}${next && `&continue=${encodeURIComponent(next)}`}`;
      const { status, body } = await this.#api.request("GET", `${path}?${query}`, { expect: [410] });
      if (status === 410) {
        // The continue token has expired: start over, a limited number of times.
        if (++expired > MAX_EXPIRED) {
          throw new ProviderError(
            "unreachable",
            `Kubernetes returned no complete list of ${path}: 410, ${expired} times`,
            {
              certain: true,
            },
          );
        }
        found.length = 0;
        next = "";
        continue;
      }
      const { items = [], metadata } = body as { items?: T[]; metadata?: { continue?: string } };
      found.push(...items);
      next = metadata?.continue ?? "";
      if (next === "") return found;
    }
  }

  get #jobs(): string {
    return `/apis/batch/v1/namespaces/${this.#namespace}/jobs`;
  }

  get #selector(): string {
    return encodeURIComponent(
      Object.entries(labelsFor(this.#context))
        .map((pair) => pair.join("="))
        .join(","),
    );
  }

  #isMachine(name: string): boolean {
    return ordinalOf(this.#context.fleet, this.#context.pool, name) !== undefined;
  }

  #reportStartupProblem(name: string, pod: KubePod | undefined): void {
    const problem = pod && startupProblem(pod);
    if (problem === undefined || this.#reported.has(name)) return;
    this.#reported.add(name);
    this.#context.report("warn", `${name} does not start: ${problem}`, { machine: name });
  }
}

/** 403 is also the response to an exceeded quota of the namespace. */
function toForbiddenError(body: unknown, namespace: string): ProviderError {
  const message = String((body as { message?: unknown } | undefined)?.message ?? "").slice(0, 300);
  return /exceeded quota/i.test(message)
    ? new ProviderError("capacity", `Namespace "${namespace}" has no capacity: ${message}`, {
        certain: true,
        remedy: "Wait for machines to exit, raise the namespace's quota, or lower the pool's max",
      })
    : new ProviderError("auth", `Kubernetes rejects the token: 403 ${message}`, {
        certain: true,
        remedy: `Check that its role may create, get, list and delete jobs and list pods in namespace "${namespace}"`,
      });
}

function isUid(id: string): boolean {
  return /^[0-9a-f-]{36}$/.test(id);
}
