// What a sender can be told, checked and converted once.
import { InvalidInput } from "../errors.ts";
import { type Duration, durationMs } from "../time.ts";
import { addressGuard, type GuardOptions } from "./address-guard.ts";
import { createPoster, type Poster } from "./request.ts";

export interface WebhookSenderOptions extends GuardOptions {
  /** Tries at once. Default 50. */
  concurrency?: number;
  /** For one try as a whole, 1s to 60s. Default "15s". */
  timeout?: Duration;
  /** Certificates to trust instead of the usual ones, as PEM. */
  ca?: string;
  /** For tests: called at each moment around a try; may not return. */
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
  if (unknown) refuse(unknown, `There is no webhook option "${unknown}"`, `Options: ${known.join(", ")}`);
  const { concurrency = 50, timeout = "15s", ports = [], ca, crash = () => {} } = options;
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 1000)
    refuse("concurrency", `concurrency ${concurrency} is not a whole number from 1 to 1000`, "Give one");
  const timeoutMs = durationMs(timeout, "timeout");
  if (timeoutMs < 1000 || timeoutMs > 60_000)
    refuse("timeout", `A time limit of ${timeout} is out of range`, "Use 1s to 60s");
  if (!Array.isArray(ports) || !ports.every((port) => Number.isInteger(port) && port > 0 && port < 65_536))
    refuse("ports", "ports must be an array of port numbers", "Give some from 1 to 65535, or leave it out");
  return { poster: createPoster(addressGuard(options), ca), concurrency, timeoutMs, crash };
}

function refuse(field: string, message: string, remedy: string): never {
  throw new InvalidInput(message, { field: `webhooks.${field}`, remedy });
}
