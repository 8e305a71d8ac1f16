// Options of a webhook sender, checked and converted once into SenderSettings.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";
import { isInteger } from "../validate.ts";
import { addressGuard, type GuardOptions } from "./address-guard.ts";
import { createPoster, type Poster } from "./request.ts";

export interface WebhookSenderOptions extends GuardOptions {
  /** Maximum number of concurrent deliveries. Default 50. */
  concurrency?: number;
  /** Time limit of one delivery attempt, 1s to 60s. Default "15s". */
  timeout?: Duration;
  /** Certificate authorities to trust instead of the default ones, as PEM. */
  ca?: string;
  /** For tests: called at each point of a delivery attempt; may end the process. */
  crash?: (moment: SendMoment) => void;
}

export type SendMoment = "claiming" | "claimed" | "written" | "answered" | "recorded";

export interface SenderSettings {
  poster: Poster;
  concurrency: number;
  timeoutMs: number;
  crash: (moment: SendMoment) => void;
}

const known = "allowHttp ports allow resolve concurrency timeout ca crash".split(" ");

export function readSenderOptions(options: WebhookSenderOptions): SenderSettings {
  const unknown = Object.keys(options).find((key) => !known.includes(key));
  if (unknown) reject(unknown, `Unknown webhook option "${unknown}"`, `Known options: ${known.join(", ")}`);
  const { concurrency = 50, timeout = "15s", ports = [], ca, crash = () => {} } = options;
  if (!isInteger(concurrency, 1, 1000))
    reject(
      "concurrency",
      `concurrency must be a whole number from 1 to 1000, not ${concurrency}`,
      "Choose a value within that range",
    );
  const timeoutMs = durationMs(timeout, "timeout");
  if (timeoutMs < 1000 || timeoutMs > 60_000) reject("timeout", `timeout ${timeout} is out of range`, "Use 1s to 60s");
  if (!Array.isArray(ports) || !ports.every((port) => isInteger(port, 1, 65_535)))
    reject("ports", "ports must be an array of port numbers", "Use numbers from 1 to 65535");
  return { poster: createPoster(addressGuard(options), ca), concurrency, timeoutMs, crash };
}

function reject(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field: `webhooks.${field}`, remedy });
}
