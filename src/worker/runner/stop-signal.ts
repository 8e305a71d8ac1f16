// The stop signal of an attempt. Its AbortSignal is created on first access, because most small jobs never use it.
import { Stopped, type StopReason } from "../attempt/outcome.ts";

export class StopSignal {
  #reason: Stopped | undefined;
  #controller: AbortController | undefined;

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#reason) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  get reason(): Stopped | undefined {
    return this.#reason;
  }

  stop(reason: StopReason): void {
    if (this.#reason) return;
    this.#reason = new Stopped(reason);
    this.#controller?.abort(this.#reason);
  }

  throwIfStopped(): void {
    if (this.#reason) throw this.#reason;
  }
}
