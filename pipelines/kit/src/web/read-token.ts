// What the page opens the live view of one job with.
import { type Stillwake, StillwakeError } from "stillwake";

/** Null where the live view needs none, because nobody signs any: a server without a secret on one's own machine. */
export function readToken(stillwake: Stillwake, job: string): string | null {
  try {
    return stillwake.readToken({ job, expiresIn: "1h" });
  } catch (error) {
    if (error instanceof StillwakeError && error.field === "secret") return null;
    throw error;
  }
}
