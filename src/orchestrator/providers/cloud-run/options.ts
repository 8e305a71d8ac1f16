// What cloudRun() can be told, and the job resource that follows from it.
import { createHash } from "node:crypto";
import { InvalidInput } from "../../../errors.ts";
import { type Duration, durationMs } from "../../../time.ts";
import { poolPrefix } from "../../names.ts";
import type { Container } from "./execution.ts";
import type { GoogleAuthOptions } from "./google-auth.ts";

export interface CloudRunOptions extends Pick<GoogleAuthOptions, "token" | "credentials" | "metadata"> {
  project: string;
  region: string;
  /** A job resource that is there and is only run, never made or changed, so that a service account with no other right will do. */
  job?: string | undefined;
  /** What its machines run; wanted unless `job` is given. */
  image?: string | undefined;
  /** Instead of the image's own command. */
  command?: readonly string[];
  /** vCPU: 1, 2, 4, 6 or 8. Default: 1; of a `job` that is given it is only told, for the price. */
  cpu?: number | undefined;
  /** Default: 2048 per vCPU. */
  memoryMb?: number | undefined;
  /** For all machines. No secrets: they can be read by whoever may see the job resource. */
  env?: Readonly<Record<string, string>>;
  /** Environment from Secret Manager: { STILLWAKE_DATABASE_URL: "name" } or "name:version". */
  secrets?: Readonly<Record<string, string>>;
  /** The service account that the worker runs as. It needs no right to run anything. */
  serviceAccount?: string | undefined;
  /** No machine lives longer. Default: 24h; 168h at most. */
  maxLife?: Duration | undefined;
  /** More for the template of its task, such as vpcAccess or volumes. */
  template?: Readonly<Record<string, unknown>>;
  /** How long one call of the API may take. Default: 15s. */
  timeout?: Duration | undefined;
  /** Where the API is. Default: https://run.googleapis.com. */
  base?: string | undefined;
  /** For tests. */
  fetch?: typeof fetch;
}

export interface CloudRunSettings extends CloudRunOptions {
  /** Of a job that is given they are not known unless both are told. */
  cpu: number | undefined;
  memoryMb: number | undefined;
  maxLifeMs: number;
}

/** Memory in MB that can be had with so many vCPU. */
const MEMORY: Record<number, [least: number, most: number]> = {
  1: [512, 4096],
  2: [512, 8192],
  4: [2048, 16_384],
  6: [4096, 24_576],
  8: [4096, 32_768],
};
const WEEK_MS = 168 * 3_600_000;
const known =
  "project region job image command cpu memoryMb env secrets serviceAccount maxLife template timeout base fetch token credentials metadata";

export function readCloudRunOptions(options: CloudRunOptions): CloudRunSettings {
  const refuse = (field: string, what: string, remedy: string): never => {
    throw new InvalidInput(`cloudRun() ${what}`, { field, remedy });
  };
  const unknown = Object.keys(options).find((key) => !known.split(" ").includes(key));
  if (unknown) refuse(unknown, `has an unknown option "${unknown}"`, `Known options: ${known.replaceAll(" ", ", ")}`);
  for (const field of ["project", "region"] as const) {
    if (!/^[a-z0-9][a-z0-9:.-]*$/.test(options[field] ?? ""))
      refuse(
        field,
        `has ${field} ${JSON.stringify(options[field])}`,
        `Give the ${field}'s id, such as "${field === "region" ? "us-central1" : "my-project"}"`,
      );
  }
  if (!options.job && !options.image)
    refuse("image", "has no image", "Give the image of the worker, or a `job` that has one");
  if (options.job && options.image) {
    refuse(
      "job",
      "has both a job and an image",
      "A job that is given is only run: leave out image, or leave out job to have one made",
    );
  }
  const { cpu = 1 } = options;
  const memoryMb = options.memoryMb ?? cpu * 2048;
  const [least, most] = MEMORY[cpu] ?? refuse("cpu", `has ${cpu} vCPU`, "Use 1, 2, 4, 6 or 8");
  if (!Number.isInteger(memoryMb) || memoryMb < least || memoryMb > most) {
    refuse("memoryMb", `has ${memoryMb} MB with ${cpu} vCPU`, `Use ${least} to ${most}`);
  }
  const maxLifeMs = durationMs(options.maxLife ?? "24h", "maxLife");
  if (maxLifeMs < 60_000 || maxLifeMs > WEEK_MS)
    refuse("maxLife", `has maxLife ${options.maxLife}`, 'Use "1m" to "168h"');
  const isKnown = !options.job || (options.cpu !== undefined && options.memoryMb !== undefined);
  return { ...options, cpu: isKnown ? cpu : undefined, memoryMb: isKnown ? memoryMb : undefined, maxLifeMs };
}

/** The job resource of a pool. Its label stillwake-spec says what it was made from. */
export function jobOf(
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
            ...pairs(env),
            ...Object.entries(secrets).map(([name, given]) => {
              const [, secret, version] = /^(.*?)(?::([^:]+))?$/.exec(given)!;
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

/** What is read of a job resource. */
export interface Job {
  name: string;
  labels?: Record<string, string>;
  template?: { template?: { maxRetries?: number; timeout?: string; containers?: Container[] } };
}

/** What is wrong with a job resource that somebody else has made, and with what we were told of it. */
export function complaints({ name, template }: Job, { cpu }: CloudRunSettings): string[] {
  const { maxRetries = 0, timeout = "", containers } = template?.template ?? {};
  const { cpu: cpus = "?", memory = "?" } = containers?.[0]?.resources?.limits ?? {};
  const job = `Cloud Run job "${name.slice(name.lastIndexOf("/") + 1)}"`;
  return [
    ...(maxRetries === 0
      ? []
      : [
          `${job} retries ${maxRetries} times by itself: set its maxRetries to 0, another machine takes up a job that died`,
        ]),
    ...(Number.parseInt(timeout, 10) <= 600 ? [`${job} ends its machines after ${timeout}: raise its timeout`] : []),
    ...(cpu === undefined
      ? [`${job} has no price: give cloudRun() its cpu and memoryMb, which are ${cpus} vCPU and ${memory} there`]
      : []),
  ];
}

export function pairs(env: Readonly<Record<string, string>>): { name: string; value: string }[] {
  return Object.entries(env).map(([name, value]) => ({ name, value }));
}
