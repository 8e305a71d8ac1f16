// Machines of Kubernetes: each is a Job of batch/v1 with one pod, made when there is work and cleared away after it. A Job's name is its machine's, so that
// to make it twice makes one. Jobs cannot be stopped and started again, so nothing is kept warm.
import { durationMs } from "../../../time.ts";
import { slotOf } from "../../names.ts";
import {
  type Order,
  type Provider,
  type ProviderContext,
  ProviderError,
  type ProviderFactory,
  type ProviderFacts,
  type SeenMachine,
  type Started,
} from "../../provider.ts";
import { type Answer, Api } from "../http.ts";
import { Doubts, doubtful } from "../uncertain-starts.ts";
import { type KubeAccess, kubeAccess } from "./access.ts";
import {
  byAge,
  hindrance,
  isOurs,
  jobFor,
  type KubeJob,
  type KubePod,
  labelsOf,
  leftover,
  seen,
  specOf,
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
  readonly #api: Api;
  readonly #namespace: string;
  /** Machines of which it was said why they do not come up. */
  readonly #said = new Set<string>();
  readonly #doubts = new Doubts();

  constructor(settings: KubernetesSettings, context: ProviderContext) {
    const access: KubeAccess = kubeAccess(settings);
    const { cpu, memoryMb, timeout } = settings;
    const fetch = settings.fetch ?? access.fetch;
    this.#settings = settings;
    this.#context = context;
    this.#namespace = settings.namespace ?? access.namespace ?? "default";
    this.#api = new Api({
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
      made: specOf(settings, context),
      // A cluster may have to fetch a node first, and the node the image.
      bootMs: 5 * 60_000,
    };
  }

  async list(): Promise<SeenMachine[]> {
    // Pods first: a pod whose Job is not in the later list has lost it.
    const pods = (await this.#all<KubePod>(`/api/v1/namespaces/${this.#namespace}/pods`)).sort(byAge);
    const jobs = await this.#all<KubeJob>(this.#jobs);
    const spec = specOf(this.#settings, this.#context);
    const machines = new Map<string, SeenMachine>();
    for (const pod of pods) {
      const machine = leftover(pod);
      if (machine && this.#isMachine(machine.name)) machines.set(machine.name, machine);
    }
    for (const job of jobs.filter(({ metadata }) => this.#isMachine(metadata.name))) {
      const own = pods.filter(({ metadata }) => metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid));
      const machine = seen(job, own, spec);
      machines.set(machine.name, machine);
      if (machine.state === "starting") this.#complain(machine.name, own.at(-1));
    }
    for (const name of this.#said) if (machines.get(name)?.state !== "starting") this.#said.delete(name);
    return [...machines.values()];
  }

  start(order: Order): Promise<Started> {
    return this.#doubts.about(order.name, async () => {
      const body = jobFor(order, this.#settings, this.#context);
      const answer = await this.#api.ask("POST", this.#jobs, { body, expect: [403, 409] });
      const { metadata } = answer.status < 300 ? (answer.body as KubeJob) : await this.#adopt(order.name, answer);
      return { id: metadata.uid ?? order.name };
    });
  }

  async remove({ name, id }: { name: string; id: string }): Promise<void> {
    const job = this.#isMachine(name) ? await this.#get(name) : "foreign";
    if (job === "foreign") {
      throw new ProviderError("refused", `Job "${name}" is not a machine of this pool: it is left alone`, {
        certain: true,
      });
    }
    const { uid } = job?.metadata ?? {};
    // The one that was seen, and not one that has been made under its name since.
    if (!job || (isUid(id) && uid !== id)) return;
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      propagationPolicy: "Background",
      ...(uid !== undefined && { preconditions: { uid } }),
    };
    await this.#api.ask("DELETE", `${this.#jobs}/${name}`, { body, expect: [404, 409] });
  }

  async check(): Promise<string[]> {
    await this.#api.ask("GET", `${this.#jobs}?limit=1&labelSelector=${this.#selector}`);
    await this.#api.ask("GET", `/api/v1/namespaces/${this.#namespace}/pods?limit=1&labelSelector=${this.#selector}`);
    const { image, secretRef } = this.#settings;
    return [
      ...(secretRef === undefined
        ? ["kubernetes() has no secretRef: where does a worker get STILLWAKE_DATABASE_URL from?"]
        : []),
      ...(/(^|\/)[^/:@]+(:latest)?$/.test(image)
        ? [`The image ${image} has no version: machines of one moment may run different code`]
        : []),
    ];
  }

  /**
   * It is not made: because its name is taken, by an earlier call for the same machine or by somebody else, or because it is forbidden. A quota is looked at before
   * the name is: what an earlier call has made may be what uses it up.
   */
  async #adopt(name: string, { status, body, unsure }: Answer): Promise<KubeJob> {
    const refusal = status === 403 ? forbidden(body, this.#namespace) : undefined;
    if (refusal?.trouble === "auth" && !unsure) throw refusal;
    const job = await this.#get(name).catch((error: ProviderError) => {
      // Whoever cannot read it does not know whether it is there, nor whose it is.
      throw doubtful(refusal ?? error);
    });
    // An earlier try that had no answer may still make it, once its name is free.
    const certain = !unsure;
    if (!job) {
      if (refusal) throw certain ? refusal : doubtful(refusal);
      throw new ProviderError("unstartable", `Job ${name} was there and is gone`, { certain });
    }
    if (job === "foreign") {
      throw new ProviderError("unstartable", `Job ${name} is there and is not of this fleet: it is left alone`, {
        certain: true,
        remedy: "Rename or remove it, or use a namespace of its own",
      });
    }
    if (job.metadata.deletionTimestamp !== undefined) {
      throw new ProviderError("unstartable", `Job ${name} is being deleted`, { certain });
    }
    return job;
  }

  async #get(name: string): Promise<KubeJob | "foreign" | undefined> {
    const { status, body } = await this.#api.ask("GET", `${this.#jobs}/${name}`, { expect: [404] });
    if (status === 404) return undefined;
    return isOurs(body as KubeJob, this.#context) ? (body as KubeJob) : "foreign";
  }

  async #all<T>(path: string): Promise<T[]> {
    const found: T[] = [];
    let more = "";
    for (let expired = 0; ; ) {
      const query = `limit=${PAGE}&labelSelector=${this.#selector}${more && `&continue=${encodeURIComponent(more)}`}`;
      const { status, body } = await this.#api.ask("GET", `${path}?${query}`, { expect: [410] });
      if (status === 410) {
        // The rest of the list is too old to be had: from the beginning, unless that happens each time.
        if (++expired > MAX_EXPIRED) {
          throw new ProviderError("unreachable", `Kubernetes has no whole list of ${path}: 410, ${expired} times`, {
            certain: true,
          });
        }
        found.length = 0;
        more = "";
        continue;
      }
      const { items = [], metadata } = body as { items?: T[]; metadata?: { continue?: string } };
      found.push(...items);
      more = metadata?.continue ?? "";
      if (more === "") return found;
    }
  }

  get #jobs(): string {
    return `/apis/batch/v1/namespaces/${this.#namespace}/jobs`;
  }

  get #selector(): string {
    return encodeURIComponent(
      Object.entries(labelsOf(this.#context))
        .map((pair) => pair.join("="))
        .join(","),
    );
  }

  #isMachine(name: string): boolean {
    return slotOf(this.#context.fleet, this.#context.pool, name) !== undefined;
  }

  #complain(name: string, pod: KubePod | undefined): void {
    const why = pod && hindrance(pod);
    if (why === undefined || this.#said.has(name)) return;
    this.#said.add(name);
    this.#context.say("warn", `${name} does not come up: ${why}`, { machine: name });
  }
}

/** A quota of the namespace says 403 too. */
function forbidden(body: unknown, namespace: string): ProviderError {
  const message = String((body as { message?: unknown } | undefined)?.message ?? "").slice(0, 300);
  return /exceeded quota/i.test(message)
    ? new ProviderError("capacity", `Kubernetes has no room in namespace "${namespace}": ${message}`, {
        certain: true,
        remedy: "Wait for machines to end, raise the namespace's quota, or lower the pool's max",
      })
    : new ProviderError("auth", `Kubernetes refuses our token: 403 ${message}`, {
        certain: true,
        remedy: `Check that its role may create, get, list and delete jobs and list pods in namespace "${namespace}"`,
      });
}

function isUid(id: string): boolean {
  return /^[0-9a-f-]{36}$/.test(id);
}
