// A crew that is made when the worker starts: what it needs (modules, tracing) is only known then.
import type { Assignment, Crew, Port, Run } from "./port.ts";

export class LazyCrew implements Crew {
  readonly #make: () => Promise<Crew>;
  #crew: Crew | undefined;

  constructor(make: () => Promise<Crew>) {
    this.#make = make;
  }

  async start(): ReturnType<Crew["start"]> {
    this.#crew = await this.#make();
    return this.#crew.start();
  }

  run(assignment: Assignment, port: Port): Run {
    return this.#crew!.run(assignment, port);
  }

  async stop(): Promise<void> {
    await this.#crew?.stop();
  }
}
