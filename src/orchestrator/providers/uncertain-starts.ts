// Machines of which a provider does not know whether they were started: an answer was lost. Until one is found, no later refusal makes it certain that it is not
// there, and whoever asked must not take it for one that never was.
import { ProviderError } from "../provider.ts";

/** More than any fleet has at once; what is forgotten is found by list() as a stray. */
const MOST = 1000;

export class Doubts {
  readonly #names = new Set<string>();

  /** Starts a machine; the error of one that is in doubt is never certain. */
  async about<T>(name: string, start: () => Promise<T>): Promise<T> {
    try {
      const done = await start();
      this.#names.delete(name);
      return done;
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      if (!error.certain) this.#names.add(name);
      if (this.#names.size > MOST) this.#names.clear();
      throw this.#names.has(name) ? doubtful(error) : error;
    }
  }
}

/** As an error of a call that may have done something. */
export function doubtful(error: ProviderError): ProviderError {
  const { trouble, message, remedy, retryAfterMs } = error;
  if (!error.certain) return error;
  // Its message ends with the remedy, which is added again.
  return new ProviderError(trouble, remedy === undefined ? message : message.slice(0, -`. ${remedy}`.length), {
    certain: false,
    cause: error,
    ...(remedy !== undefined && { remedy }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}
