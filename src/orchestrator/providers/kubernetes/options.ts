// Options of kubernetes(), checked and converted once.
import { InvalidInput } from "../../../errors.ts";
import { type Duration, durationMs } from "../../../time.ts";
import type { KubeAccessOptions } from "./access.ts";

export interface KubernetesOptions extends KubeAccessOptions {
  /** Default: the namespace of this pod or of the kubeconfig's context, or "default". */
  namespace?: string | undefined;
  image: string;
  /** Overrides the arguments of the image. */
  command?: readonly string[];
  /** CPU request; no limit is set. */
  cpu?: number | undefined;
  /** Memory request and limit. */
  memoryMb?: number | undefined;
  /** Environment of all machines. No secrets: everyone who may read the Job can see them. */
  env?: Readonly<Record<string, string>>;
  /** Names of Secrets for the worker's environment, such as one with STILLWAKE_DATABASE_URL. */
  secretRef?: string | readonly string[] | undefined;
  /** The service account of the pods. Its token is not mounted unless the podTemplate enables it. */
  serviceAccount?: string | undefined;
  nodeSelector?: Readonly<Record<string, string>>;
  tolerations?: readonly object[];
  /** Additional fields of the pod template; a container "worker" in it is merged with ours. */
  podTemplate?: {
    metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
    spec?: Readonly<Record<string, unknown>>;
  };
  /** Maximum lifetime of a machine. Default: 24h. */
  maxLife?: Duration | undefined;
  /** Timeout of one API call. Default: 15s. */
  timeout?: Duration | undefined;
  /** Replaced in tests. */
  fetch?: typeof fetch;
}

export interface KubernetesSettings extends KubernetesOptions {
  maxLifeMs: number;
}

const OPTIONS =
  "namespace image command cpu memoryMb env secretRef serviceAccount nodeSelector tolerations podTemplate maxLife timeout fetch server token ca kubeconfig context";

export function readKubernetesOptions(options: KubernetesOptions): KubernetesSettings {
  const reject = (field: string, problem: string, remedy: string): never => {
    throw new InvalidInput(`kubernetes() ${problem}`, { field, remedy });
  };
  const unknown = Object.keys(options).find((key) => !OPTIONS.split(" ").includes(key));
  if (unknown) reject(unknown, `has an unknown option "${unknown}"`, `Known options: ${OPTIONS.replaceAll(" ", ", ")}`);
  if (!options.image) reject("image", "has no image", "Set the image of the workers");
  const { namespace, cpu, memoryMb } = options;
  if (namespace !== undefined && !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(namespace)) {
    reject("namespace", `has namespace ${JSON.stringify(namespace)}`, "Use lower-case letters, digits and dashes");
  }
  if (cpu !== undefined && !(cpu > 0)) reject("cpu", `has ${cpu} CPU`, "Use a number above 0, such as 0.5 or 4");
  if (memoryMb !== undefined && !(Number.isInteger(memoryMb) && memoryMb > 0)) {
    reject("memoryMb", `has ${memoryMb} MB`, "Use a whole number above 0");
  }
  const maxLifeMs = durationMs(options.maxLife ?? "24h", "maxLife");
  if (maxLifeMs < 60_000) reject("maxLife", `has maxLife ${options.maxLife}`, 'Use "1m" or more');
  return { ...options, maxLifeMs };
}
