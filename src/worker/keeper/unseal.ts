// Unseals sealed values of an input and looks up its secret references, in the keeper: runners have neither the keys nor access to the
// secrets. The runner receives the plain values with the input and redacts them in everything it writes.
import { readSecret } from "../../config.ts";
import { isSealedValue, mapPaths, readPaths } from "../../contract/sealed-paths.ts";
import type { Failure } from "../../db/calls/job.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type KeyRing, openSealed, readSealKeys, type SealKeys, sealInput } from "../../secrets/seal.ts";
import { type Outcome, outcomeOfStop, type StopReason } from "../attempt/outcome.ts";
import type { Assignment, Port, Run, Runners, SpawnCall } from "../runner/port.ts";

/** The job that a secret is looked up for, so that a lookup can restrict secrets to pipelines and tenants. */
export interface SecretUse {
  pipeline: string;
  tenant: string | null;
  job: string;
}

/** Returns the value of a secret, or undefined if the name is unknown or not available to this job. */
export type FindSecret = (name: string, use: SecretUse) => unknown;

export class Unsealer {
  readonly #ring: KeyRing | undefined;
  readonly #find: FindSecret;

  constructor(
    sealKeys: SealKeys | string | undefined,
    find: FindSecret | undefined,
    env: Readonly<Record<string, string | undefined>>,
  ) {
    if (find !== undefined && typeof find !== "function") {
      throw new InvalidInput("secrets is not a function", {
        field: "secrets",
        remedy: "Pass (name, { pipeline, tenant }) => value or a promise; return undefined for an unknown name",
      });
    }
    this.#ring = readSealKeys(sealKeys);
    this.#find = find ?? ((name) => readSecret(env, name));
  }

  /** Runs the attempt with the unsealed input. If that fails, the attempt fails before any of its code has run. */
  run(runners: Runners, assignment: Assignment, port: Port, paths: readonly string[]): Run {
    let run: Run | undefined;
    let stopped: StopReason | undefined;
    let stopEarly: (outcome: Outcome) => void = () => {};
    const stoppedEarly = new Promise<Outcome>((resolve) => {
      stopEarly = resolve;
    });
    const outcome = this.#unseal(assignment, paths).then(
      (unsealed) => {
        if (stopped) return outcomeOfStop(stopped);
        run = runners.run(unsealed, port);
        return run.outcome;
      },
      (error: StillwakeError) => failUnsealed(error, port),
    );
    return {
      outcome: Promise.race([outcome, stoppedEarly]),
      stop: async (reason) => {
        if (run) return run.stop(reason);
        stopped = reason;
        stopEarly(outcomeOfStop(reason));
      },
      kill: async () => (run ? run.kill() : true),
    };
  }

  /** Seals the inputs of children before they are stored. */
  sealInputs({ pipeline, inputs, keys, tenants }: SpawnCall, ids: string[]): string[] {
    const { sealed } = pipeline.settings as { sealed?: readonly string[] };
    if (!sealed?.length) return inputs;
    return inputs.map((input, index) => {
      const tenant = tenants[index] ?? null;
      const owner = { pipeline: pipeline.name, tenant, job: ids[index]! };
      return JSON.stringify(sealInput(this.#ring, sealed, JSON.parse(input), owner, [keys[index] ?? null, tenant]));
    });
  }

  async #unseal(assignment: Assignment, paths: readonly string[]): Promise<Assignment> {
    const { job, pipeline, tenant } = assignment;
    const references = new Map<string, string>();
    const unsealed = mapPaths(assignment.input, paths, (value, at) => {
      if (!isSealedValue(value)) return value;
      if ("$sealed" in value) return openSealed(this.#ring, value.$sealed, { job, pipeline, tenant }, at);
      references.set(at, value.$secret);
      return value;
    });
    const secrets = new Map<string, unknown>();
    for (const name of new Set(references.values()))
      secrets.set(name, await this.#findSecret(name, { job, pipeline, tenant }));
    const input = mapPaths(unsealed, paths, (value, at) => {
      const name = references.get(at);
      return name === undefined ? value : secrets.get(name);
    });
    return { ...assignment, input, secrets: readPaths(input, paths) };
  }

  async #findSecret(name: string, use: SecretUse): Promise<unknown> {
    let value: unknown;
    try {
      value = await this.#find(name, use);
    } catch (error) {
      // The error text may contain a secret and is not repeated.
      const { code, name: kind } = error as { code?: unknown; name?: unknown };
      throw new StillwakeError(
        "SECRET_UNAVAILABLE",
        `Secret "${name}" could not be looked up (${String(code ?? kind)})`,
        {
          retryable: true,
          remedy: "Check that the worker can reach its secret store",
        },
      );
    }
    if (value !== undefined && value !== null) return value;
    throw new StillwakeError("SECRET_UNKNOWN", `Secret "${name}" is not known to this worker`, {
      remedy:
        "Set STILLWAKE_SECRET_<NAME> for the worker, or return a value from its secrets() option, then retry the job",
    });
  }
}

/** The job's code has not run, so the failure is logged here. */
function failUnsealed(error: StillwakeError, port: Port): Outcome {
  const { name, message, code = "SEALED", retryable } = error;
  const failure: Failure = { name, message, code };
  port.log([{ level: "error", message, data: { code }, at: performance.now() }]);
  return { kind: "failed", failure, fatal: !retryable };
}
