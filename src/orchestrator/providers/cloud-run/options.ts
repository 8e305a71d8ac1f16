// Options of cloudRun(), and the job resource that is built from them.
import { createHash } from "node:crypto";
import { InvalidInput } from "../../../errors.ts";
import { type Duration, durationMs } from "../../../time.ts";
import { poolPrefix } from "../../provider.ts";
import type { Container } from "./execution.ts";
import type { GoogleAuthOptions } from "./google-auth.ts";

export interface CloudRunOptions extends Pick<GoogleAuthOptions, "token" | "credentials" | "metadata"> {
  project: string;
  region: string;
  /** An existing job resource that is only run, never changed, so no other permission is needed. */
  job?: string | undefined;
  /** The image of the workers; required without `job`. */
  image?: string | undefined;
  /** Overrides the arguments of the image. */
  command?: readonly string[];
  /** vCPU: 1, 2, 4, 6 or 8. Default: 1. With `job` it is used for the price only. */
  cpu?: number | undefined;
  /** Default: 2048 per vCPU. */
  memoryMb?: number | undefined;
  /** Environment of all machines. No secrets: everyone who may read the job resource can see them. */
  env?: Readonly<Record<string, string>>;
  /** Environment from Secret Manager: { STILLWAKE_DATABASE_URL: "name" } or "name:version". */
  secrets?: Readonly<Record<string, string>>;
  /** The service account of the workers. It needs no right to run jobs. */
  serviceAccount?: string | undefined;
  /** Maximum lifetime of a machine. Default: 24h; at most 168h. */
  maxLife?: Duration | undefined;
  /** Additional fields of the task template, such as vpcAccess or volumes. */
  template?: Readonly<Record<string, unknown>>;
  /** Timeout of one API call. Default: 15s. */
  timeout?: Duration | undefined;
  /** Base URL of the API. Default: https://run.googleapis.com. */
  base?: string | undefined;
  /** Replaced in tests. */
  fetch?: typeof fetch;
}

export interface CloudRunSettings extends CloudRunOptions {
  /** Undefined for a `job` unless both options are set. */
  cpu: number | undefined;
  memoryMb: number | undefined;
  maxLifeMs: number;
}

/** Allowed memory in MB by number of vCPU. */
const MEMORY: Record<number, [min: number, max: number]> = {
  1: [512, 4096],
  2: [512, 8192],
  4: [2048, 16_384],
  6: [4096, 24_576],
  8: [4096, 32_768],
};
const WEEK_MS = 168 * 3_600_000;
const OPTIONS =
  "project region job image command cpu memoryMb env secrets serviceAccount maxLife template timeout base fetch token credentials metadata";

export function readCloudRunOptions(options: CloudRunOptions): CloudRunSettings {
  const reject = (field: string, problem: string, remedy: string): never => {
    throw new InvalidInput(`cloudRun() ${problem}`, { field, remedy });
  };
  const unknown = Object.keys(options).find((key) => !OPTIONS.split(" ").includes(key));
  if (unknown) reject(unknown, `has an unknown option "${unknown}"`, `Known options: ${OPTIONS.replaceAll(" ", ", ")}`);
  for (const field of ["project", "region"] as const) {
    if (!/^[a-z0-9][a-z0-9:.-]*$/.test(options[field] ?? ""))
      reject(
        field,
        `has ${field} ${JSON.stringify(options[field])}`,
        `Use the id of the ${field}, such as "${field === "region" ? "us-central1" : "my-project"}"`,
      );
  }
  if (!options.job && !options.image)
    reject("image", "has no image", "Set the image of the workers, or a `job` that has one");
  if (options.job && options.image) {
    reject(
      "job",
      "has both a job and an image",
      "Remove image to run the existing job, or remove job to have one created",
    );
  }
  const { cpu = 1 } = options;
  const memoryMb = options.memoryMb ?? cpu * 2048;
  const [min, max] = MEMORY[cpu] ?? reject("cpu", `has ${cpu} vCPU`, "Use 1, 2, 4, 6 or 8");
  if (!Number.isInteger(memoryMb) || memoryMb < min || memoryMb > max) {
    reject("memoryMb", `has ${memoryMb} MB with ${cpu} vCPU`, `Use ${min} to ${max}`);
  }
  const maxLifeMs = durationMs(options.maxLife ?? "24h", "maxLife");
  if (maxLifeMs < 60_000 || maxLifeMs > WEEK_MS)
    reject("maxLife", `has maxLife ${options.maxLife}`, 'Use "1m" to "168h"');
  const isKnown = !options.job || (options.cpu !== undefined && options.memoryMb !== undefined);
  return { ...options, cpu: isKnown ? cpu : undefined, memoryMb: isKnown ? memoryMb : undefined, maxLifeMs };
}

/** The job resource of a pool. Its label stillwake-spec is a hash of its template. */
export function buildJob(
  settings: CloudRunSettings,
  { fleet, pool }: { fleet: string; pool: string },
): { labels: Record<string, string>; template: object } {
  const { image, command, cpu, memoryMb, env = {}, secrets = {}, serviceAccount, maxLifeMs, template } = settings;
  const labels = { "stillwake-fleet": fleet, "stillwake-pool": poolPrefix(fleet, pool).slice(4 + fleet.length, -1) };
  const execution = {
    labels,
    taskCount: 1,
    template: {
      ...template,
      maxRetries: 0,
      timeout: `${Math.round(maxLifeMs / 1000)}s`,
      ...(serviceAccount !== undefined && { serviceAccount }),
      containers: [
        {
          image,
          ...(command && { args: command }),
          resources: { limits: { cpu: `${cpu}`, memory: `${memoryMb}Mi` } },
          env: [
            ...toEnvList(env),
            ...Object.entries(secrets).map(([name, reference]) => {
              const [, secret, version] = /^(.*?)(?::([^:]+))?$/.exec(reference)!;
              return { name, valueSource: { secretKeyRef: { secret, version: version ?? "latest" } } };
            }),
          ],
        },
      ],
    },
  };
  const spec = createHash("sha256").update(JSON.stringify(execution)).digest("hex").slice(0, 12);
  return { labels: { ...labels, "stillwake-spec": spec }, template: execution };
}

/** The fields that are used of a job resource. */
export interface Job {
  name: string;
  labels?: Record<string, string>;
  template?: { template?: { maxRetries?: number; timeout?: string; containers?: Container[] } };
}

/** Warnings for a job resource that the orchestrator does not manage. */
export function jobWarnings({ name, template }: Job, { cpu }: CloudRunSettings): string[] {
  const { maxRetries = 0, timeout = "", containers } = template?.template ?? {};
  const { cpu: cpus = "?", memory = "?" } = containers?.[0]?.resources?.limits ?? {};
  const job = `Cloud Run job "${name.slice(name.lastIndexOf("/") + 1)}"`;
  return [
    ...(maxRetries === 0
      ? []
      : [`${job} has maxRetries ${maxRetries}: set it to 0, because Stillwake retries lost jobs on another machine`]),
    ...(Number.parseInt(timeout, 10) <= 600 ? [`${job} stops its machines after ${timeout}: raise its timeout`] : []),
    ...(cpu === undefined
      ? [`${job} has no price: set cpu and memoryMb of cloudRun() to those of the job (${cpus} vCPU, ${memory})`]
      : []),
  ];
}

export function toEnvList(env: Readonly<Record<string, string>>): { name: string; value: string }[] {
  return Object.entries(env).map(([name, value]) => ({ name, value }));
}
