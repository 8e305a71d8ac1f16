// The machine that a worker is alone on, as far as the worker has to do with it: it says that it is there, asks before it leaves for want of work, and says that it has
// left. None of it keeps the worker from its jobs: what the database does not hear from here it learns from the provider.

import { machineArrived, machineLeaves } from "../../db/calls/machines.ts";
import type { Database } from "../../db/database.ts";
import type { PipelineFacts } from "../runner/port.ts";

const PATIENCE_MS = 5000;

export class Machine {
  readonly #database: Database;
  readonly #place: { machine: string; pool: string; slots: number };
  #pipelines: readonly PipelineFacts[] = [];

  constructor(database: Database, { machine, pool, slots }: { machine: string; pool: string; slots: number }) {
    this.#database = database;
    this.#place = { machine, pool, slots };
  }

  /** False: it is about to be stopped, or another one has its place. */
  async arrive(pipelines: readonly PipelineFacts[], isWanted: () => boolean): Promise<boolean> {
    const { machine, pool, slots } = this.#place;
    this.#pipelines = pipelines;
    return machineArrived(this.#database, machine, pool, slots).catch((error) => {
      if (isWanted()) throw error;
      return false;
    });
  }

  /** False when there is a job that it could claim. */
  async mayLeave(): Promise<boolean> {
    return this.#soon(this.#ask(null)).catch(() => true);
  }

  async leave(reason: string): Promise<void> {
    await this.#soon(this.#ask(reason)).catch(() => {});
  }

  /** A database that went away in this moment would keep the machine for ever. */
  async #soon(answer: Promise<boolean>): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, PATIENCE_MS, true);
    });
    return Promise.race([answer, late]).finally(() => clearTimeout(timer));
  }

  #ask(reason: string | null): Promise<boolean> {
    const { machine, pool } = this.#place;
    const question = {
      machine,
      pool,
      pipelines: this.#pipelines.map(({ name }) => name),
      versions: this.#pipelines.map(({ version }) => version),
      oldest: this.#pipelines.map(({ version, onOlder }) => (onOlder === "wait" ? version : 1)),
    };
    return machineLeaves(this.#database, question, reason);
  }
}
