// A job waits for a word from outside. Whether it was said, and whether the time for it is over, the database knows; what the word means, the schema.

import type { Schema } from "../../contract/pipeline.ts";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type Duration, durationMs } from "../../time.ts";
import { decode, encode } from "./checkpoint-codec.ts";
import { checkOptions, type LastingHost } from "./lasting-host.ts";

export interface WaitOptions {
  /** How long at most, counted from the first time it waits. Default: for ever. */
  timeout?: Duration;
  /** The name of this wait. Default: that of the event. */
  step?: string;
}

/** Nobody said it in time. An attempt that goes on gets the same answer. */
export class EventTimeout extends StillwakeError {
  constructor(event: string, timeout: Duration | undefined) {
    super("EVENT_TIMEOUT", `Nothing was heard of "${event}"${timeout === undefined ? "" : ` within ${timeout}`}`);
  }
}

export async function waitForEvent<Data>(
  host: LastingHost,
  event: string,
  schema: Schema<unknown, Data> | undefined,
  { timeout, step = event, ...rest }: WaitOptions,
): Promise<Data> {
  if (schema !== undefined && typeof schema?.["~standard"]?.validate !== "function") {
    throw new InvalidInput(`waitFor("${event}") was given no schema`, {
      field: "schema",
      remedy: "Pass a Standard Schema, such as one of zod, or undefined for any data",
    });
  }
  checkOptions({ timeout, step, ...rest }, ["timeout", "step"]);
  const timeoutMs = timeout === undefined ? null : durationMs(timeout, "timeout");
  const { port, steps, log } = host;
  await steps.begin(step);
  for (;;) {
    const { answer, id, data, until } = await port.lookForSignal({ event, step, timeoutMs });
    host.check();
    if (answer === "kept" && !isTimeout(data)) return decode(data) as Data;
    if (answer === "timeout" || answer === "kept") throw new EventTimeout(event, timeout);
    if (answer === "waiting") {
      const words = `The job waits for "${event}"`;
      return host.end({ kind: "slept", waitingFor: "event", awaits: event, ...(until && { until }) }, words);
    }
    const read = schema ? await schema["~standard"].validate(data) : { value: data as Data };
    if ("issues" in read && read.issues) {
      const issues = read.issues.map(({ message }) => message).join("; ");
      log.warn(`What was said of "${event}" is not what was asked for: ${issues}`);
      await port.takeSignal({ step, id: id!, output: "null", accepted: false });
      continue;
    }
    const output = encode((read as { value: Data }).value, `The data of event "${event}"`);
    // Another wait may have been quicker.
    if ((await port.takeSignal({ step, id: id!, output, accepted: true })) === "gone") continue;
    steps.saved += 1;
    return decode(JSON.parse(output)) as Data;
  }
}

function isTimeout(output: unknown): boolean {
  return (output as { $stillwake?: unknown[] } | null)?.$stillwake?.[0] === "timeout";
}
