// What is sealed in an input is opened here, in the keeper, and references are looked up: runners have neither the keys nor the names of anything.
// What comes out goes to the runner with the input and is known to it as secret, so that nothing it writes for people shows it.
import { secretFrom } from "../../config.ts";
import { changeAt, isStandIn, valuesAt } from "../../contract/sealed-paths.ts";
import type { Failure } from "../../db/calls/jobs.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type KeyRing, openSealed, readSealKeys, type SealKeys, sealInput } from "../../secrets/seal.ts";
import { type Outcome, outcomeOfStop, type StopReason } from "../attempt/outcome.ts";
import type { Assignment, Crew, Port, Run, SpawnCall } from "../runner/port.ts";

/** For which job a secret is looked up: not every pipeline and tenant need get every one. */
export interface SecretUse {
  pipeline: string;
  tenant: string | null;
  job: string;
}

/** The value behind a name; undefined for a name that nobody knows, or not for this job. */
export type FindSecret = (name: string, use: SecretUse) => unknown;

export class Opener {
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
        remedy: "Pass (name, { pipeline, tenant }) => the value, or a promise of it; undefined for an unknown name",
      });
    }
    this.#ring = readSealKeys(sealKeys);
    this.#find = find ?? ((name) => secretFrom(env, name));
  }

  /** Runs the attempt once its input is open. What cannot be opened ends it before any of its code has run. */
  run(crew: Crew, assignment: Assignment, port: Port, paths: readonly string[]): Run {
    let run: Run | undefined;
    let stopped: StopReason | undefined;
    let withdraw: (outcome: Outcome) => void = () => {};
    const withdrawn = new Promise<Outcome>((resolve) => {
      withdraw = resolve;
    });
    const opened = this.#open(assignment, paths).then(
      (whole) => {
        if (stopped) return outcomeOfStop(stopped);
        run = crew.run(whole, port);
        return run.outcome;
      },
      (error: StillwakeError) => unopened(error, port),
    );
    return {
      outcome: Promise.race([opened, withdrawn]),
      stop: async (reason) => {
        if (run) return run.stop(reason);
        stopped = reason;
        withdraw(outcomeOfStop(reason));
      },
      kill: async () => (run ? run.kill() : true),
    };
  }

  /** The inputs of children as they may be stored. */
  seal({ pipeline, inputs, keys, tenants }: SpawnCall, ids: string[]): string[] {
    const { sealed } = pipeline.settings as { sealed?: readonly string[] };
    if (!sealed?.length) return inputs;
    return inputs.map((input, place) => {
      const tenant = tenants[place] ?? null;
      const owner = { pipeline: pipeline.name, tenant, job: ids[place]! };
      return JSON.stringify(sealInput(this.#ring, sealed, JSON.parse(input), owner, [keys[place] ?? null, tenant]));
    });
  }

  async #open(assignment: Assignment, paths: readonly string[]): Promise<Assignment> {
    const { job, pipeline, tenant } = assignment;
    const wanted = new Map<string, string>();
    const unsealed = changeAt(assignment.input, paths, (value, at) => {
      if (!isStandIn(value)) return value;
      if ("$sealed" in value) return openSealed(this.#ring, value.$sealed, { job, pipeline, tenant }, at);
      wanted.set(at, value.$secret);
      return value;
    });
    const found = new Map<string, unknown>();
    for (const name of new Set(wanted.values())) found.set(name, await this.#look(name, { job, pipeline, tenant }));
    const input = changeAt(unsealed, paths, (value, at) => {
      const name = wanted.get(at);
      return name === undefined ? value : found.get(name);
    });
    return { ...assignment, input, secrets: valuesAt(input, paths) };
  }

  async #look(name: string, use: SecretUse): Promise<unknown> {
    let value: unknown;
    try {
      value = await this.#find(name, use);
    } catch (error) {
      // Its words may be anybody's, and are not repeated.
      const { code, name: kind } = error as { code?: unknown; name?: unknown };
      throw new StillwakeError(
        "SECRET_UNAVAILABLE",
        `Secret "${name}" could not be looked up (${String(code ?? kind)})`,
        {
          retryable: true,
          remedy: "See that the worker reaches what keeps its secrets",
        },
      );
    }
    if (value !== undefined && value !== null) return value;
    throw new StillwakeError("SECRET_UNKNOWN", `Secret "${name}" is not known to this worker`, {
      remedy:
        "Set STILLWAKE_SECRET_<NAME> where the worker runs, or let its secrets() answer for it, and retry the job",
    });
  }
}

/** Before the code of the job has run, so that nobody else writes it down. */
function unopened(error: StillwakeError, port: Port): Outcome {
  const { name, message, code = "SEALED", retryable } = error;
  const failure: Failure = { name, message, code };
  port.log([{ level: "error", message, data: { code }, at: performance.now() }]);
  return { kind: "failed", failure, fatal: !retryable };
}
