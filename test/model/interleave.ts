// Runs the steps of several actors in one given order, each actor on a separate connection. A step that waits for a lock
// is detected by pg_blocking_pids and left waiting; the later steps of its actor follow once it has continued.
import type pg from "pg";
import { connect } from "./actors.ts";

export interface Statement {
  text: string;
  values?: unknown[];
}

export interface InterleavingResult {
  /** The result of each statement of each actor: rows, or the SQLSTATE. */
  results: unknown[][];
  /** How often an actor had to wait. */
  waits: number;
}

/** Every order of the steps of actors with the given numbers of steps. */
export function ordersOf(counts: number[]): number[][] {
  if (counts.every((count) => count === 0)) return [[]];
  return counts.flatMap((count, actor) =>
    count === 0 ? [] : ordersOf(counts.with(actor, count - 1)).map((rest) => [actor, ...rest]),
  );
}

interface Actor {
  client: pg.Client;
  pid: number;
}

export class Interleaver {
  readonly #actors: Actor[];
  readonly #watcher: pg.Client;

  private constructor(actors: Actor[], watcher: pg.Client) {
    this.#actors = actors;
    this.#watcher = watcher;
  }

  static async open(url: string, size: number): Promise<Interleaver> {
    const actors: Actor[] = [];
    for (let n = 0; n < size; n++) {
      const client = await connect(url);
      const { rows } = await client.query("set synchronous_commit = off; select pg_backend_pid() as pid").then(last);
      actors.push({ client, pid: rows[0].pid });
    }
    return new Interleaver(actors, await connect(url));
  }

  /** `before` is called before each step, with the results of its actor so far. */
  async run(
    scripts: Statement[][],
    order: number[],
    before?: (actor: number, answers: unknown[]) => Promise<void>,
  ): Promise<InterleavingResult> {
    const answers: unknown[][] = scripts.map(() => []);
    const waiting = new Map<number, Promise<void>>();
    const ahead = scripts.map(() => 0);
    const held = scripts.map(() => 0);
    let waits = 0;

    const begin = async (actor: number) => {
      await before?.(actor, answers[actor]!);
      const statement = scripts[actor]![ahead[actor]!++]!;
      const step = this.#send(actor, statement).then((answer) => {
        answers[actor]!.push(answer);
        waiting.delete(actor);
      });
      waiting.set(actor, step);
      if (await this.#isBlocked(actor, waiting)) waits += 1;
    };
    /** Continues actors whose lock became free, with the steps they have missed. */
    const release = async () => {
      for (const actor of [...waiting.keys()]) await this.#isBlocked(actor, waiting);
      const free = held.findIndex((owed, actor) => owed > 0 && !waiting.has(actor));
      if (free < 0) return;
      held[free]! -= 1;
      await begin(free);
      await release();
    };

    try {
      for (const actor of order) {
        if (waiting.has(actor)) held[actor]! += 1;
        else await begin(actor);
        await release();
      }
      // Only a deadlock can be left here, and Postgres resolves it.
      while (waiting.size > 0) {
        await Promise.race(waiting.values());
        await release();
      }
    } catch (error) {
      await this.#clear(waiting);
      throw error;
    }
    return { results: answers, waits };
  }

  /** An interrupted run leaves no open transaction behind. */
  async #clear(waiting: Map<number, Promise<void>>): Promise<void> {
    for (const actor of waiting.keys()) {
      await this.#watcher.query("select pg_cancel_backend($1)", [this.#actors[actor]!.pid]);
    }
    await Promise.all(waiting.values());
    for (const { client } of this.#actors) await client.query("rollback");
  }

  async #send(actor: number, { text, values }: Statement): Promise<unknown> {
    try {
      const result = await this.#actors[actor]!.client.query({ text, values: values ?? [], rowMode: "array" });
      return result.rows;
    } catch (error) {
      return (error as { code?: string }).code;
    }
  }

  /** Polls until the step has a result or waits for a lock. */
  async #isBlocked(actor: number, waiting: Map<number, unknown>): Promise<boolean> {
    const { pid } = this.#actors[actor]!;
    const look = { name: "blocked", text: "select cardinality(pg_blocking_pids($1)) > 0 as blocked", values: [pid] };
    while (waiting.has(actor)) {
      const { rows } = await this.#watcher.query(look);
      if (rows[0].blocked && waiting.has(actor)) return true;
    }
    return false;
  }
}

function last(result: pg.QueryResult | pg.QueryResult[]): pg.QueryResult {
  return Array.isArray(result) ? result.at(-1)! : result;
}
