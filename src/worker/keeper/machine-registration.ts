// Reports the worker of a machine to the database: that it has started, whether it may exit because it is idle, and
// that it has exited. None of this blocks jobs: what the database does not learn from here it learns from the provider.

import { leaveMachine, machineRegistered } from "../../db/calls/machines.ts";
import type { Database } from "../../db/database.ts";
import { withTimeout } from "../../timeout.ts";
import { claimableBy, type LoadedPipeline } from "../runner/port.ts";

/** A database that becomes unreachable during the exit must not keep the machine running. */
const LEAVE_TIMEOUT_MS = 5000;

export class MachineRegistration {
  readonly #database: Database;
  readonly #machine: { machine: string; pool: string; slots: number };
  #pipelines: readonly LoadedPipeline[] = [];

  constructor(database: Database, { machine, pool, slots }: { machine: string; pool: string; slots: number }) {
    this.#database = database;
    this.#machine = { machine, pool, slots };
  }

  /** False: the machine is about to be stopped, or another one has replaced it. */
  async register(pipelines: readonly LoadedPipeline[], isWorking: () => boolean): Promise<boolean> {
    const { machine, pool, slots } = this.#machine;
    this.#pipelines = pipelines;
    return machineRegistered(this.#database, machine, pool, slots).catch((error) => {
      if (isWorking()) throw error;
      return false;
    });
  }

  /** False when there is a job that this worker could claim. */
  async mayLeave(): Promise<boolean> {
    return this.#leave(null).catch(() => true);
  }

  async leave(reason: string): Promise<void> {
    await this.#leave(reason).catch(() => {});
  }

  #leave(reason: string | null): Promise<boolean> {
    const { machine, pool } = this.#machine;
    const request = { machine, pool, ...claimableBy([pool], this.#pipelines) };
    return withTimeout(leaveMachine(this.#database, request, reason), LEAVE_TIMEOUT_MS, true);
  }
}
