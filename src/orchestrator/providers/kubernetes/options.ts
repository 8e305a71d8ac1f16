// What kubernetes() can be told, checked and converted once.
import { InvalidInput } from "../../../errors.ts";
import { type Duration, durationMs } from "../../../time.ts";
import type { KubeAccessOptions } from "./access.ts";

export interface KubernetesOptions extends KubeAccessOptions {
  /** Default: that of the pod this runs in or of the kubeconfig's context, or "default". */
  namespace?: string | undefined;
  image: string;
  /** Instead of the image's own command. */
  command?: readonly string[];
  /** CPUs that are asked for; no limit is set. */
  cpu?: number | undefined;
  /** Memory that is asked for, and the limit. */
  memoryMb?: number | undefined;
  /** For all machines. No secrets: they can be read by whoever may see the Job. */
  env?: Readonly<Record<string, string>>;
  /** The names of Secrets that are the worker's environment, such as one with STILLWAKE_DATABASE_URL. */
  secretRef?: string | readonly string[] | undefined;
  /** The service account of its pods, whose token they do not get unless the podTemplate says so. */
  serviceAccount?: string | undefined;
  nodeSelector?: Readonly<Record<string, string>>;
  tolerations?: readonly object[];
  /** More for the template of its pods; a container "worker" in it adds to ours. */
  podTemplate?: {
    metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
    spec?: Readonly<Record<string, unknown>>;
  };
  /** No machine lives longer. Default: 24h. */
  maxLife?: Duration | undefined;
  /** How long one call of the API may take. Default: 15s. */
  timeout?: Duration | undefined;
  /** For tests. */
  fetch?: typeof fetch;
}

export interface KubernetesSettings extends KubernetesOptions {
  maxLifeMs: number;
}

const known =
  "namespace image command cpu memoryMb env secretRef serviceAccount nodeSelector tolerations podTemplate maxLife timeout fetch server token ca kubeconfig context";

export function readKubernetesOptions(options: KubernetesOptions): KubernetesSettings {
  const refuse = (field: string, what: string, remedy: string): never => {
    throw new InvalidInput(`kubernetes() ${what}`, { field, remedy });
  };
  const unknown = Object.keys(options).find((key) => !known.split(" ").includes(key));
  if (unknown) refuse(unknown, `has an unknown option "${unknown}"`, `Known options: ${known.replaceAll(" ", ", ")}`);
  if (!options.image) refuse("image", "has no image", "Give the image of the worker");
  const { namespace, cpu, memoryMb } = options;
  if (namespace !== undefined && !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(namespace)) {
    refuse("namespace", `has namespace ${JSON.stringify(namespace)}`, "Use lower-case letters, digits and dashes");
  }
  if (cpu !== undefined && !(cpu > 0)) refuse("cpu", `has ${cpu} CPU`, "Use a number above 0, such as 0.5 or 4");
  if (memoryMb !== undefined && !(Number.isInteger(memoryMb) && memoryMb > 0)) {
    refuse("memoryMb", `has ${memoryMb} MB`, "Use a whole number above 0");
  }
  const maxLifeMs = durationMs(options.maxLife ?? "24h", "maxLife");
  if (maxLifeMs < 60_000) refuse("maxLife", `has maxLife ${options.maxLife}`, 'Use "1m" or more');
  return { ...options, maxLifeMs };
}
