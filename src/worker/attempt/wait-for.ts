// job.waitFor(): waits for a signal from outside. The database stores signals and timeouts; the schema validates the data.
import { EventTimeout } from "../../contract/job-errors.ts";
import type { Schema } from "../../contract/pipeline.ts";
import { type Duration, durationMs } from "../../time.ts";
import { checkStandardSchema, rejectUnknownOptions } from "../../validate.ts";
import type { AttemptState } from "./attempt-state.ts";
import { checkpointKind, decodeCheckpoint, encodeCheckpoint } from "./checkpoint-codec.ts";

export interface WaitOptions {
  /** Maximum wait, counted from the first attempt that waits. Default: no limit. */
  timeout?: Duration;
  /** The name of this wait. Default: the name of the event. */
  step?: string;
}

export async function waitForEvent<Data>(
  attempt: AttemptState,
  event: string,
  schema: Schema<unknown, Data> | undefined,
  { timeout, step = event, ...rest }: WaitOptions,
): Promise<Data> {
  const steps = attempt.beginStep();
  checkStandardSchema(schema, "schema", `waitFor("${event}")`);
  rejectUnknownOptions({ timeout, step, ...rest }, ["timeout", "step"]);
  const timeoutMs = timeout === undefined ? null : durationMs(timeout, "timeout");
  const { port } = attempt.host;
  await steps.begin(step);
  for (;;) {
    const { answer, id, data, until } = await port.findSignal({ event, step, timeoutMs });
    attempt.check();
    if (answer === "kept" && checkpointKind(data) !== "timeout") return decodeCheckpoint(data) as Data;
    if (answer === "timeout" || answer === "kept") throw new EventTimeout(event, timeout);
    if (answer === "waiting") {
      return attempt.suspend(
        { kind: "slept", waitingFor: "event", awaits: event, ...(until && { until }) },
        `The job waits for "${event}"`,
      );
    }
    const result = schema ? await schema["~standard"].validate(data) : { value: data as Data };
    if ("issues" in result && result.issues) {
      const issues = result.issues.map(({ message }) => message).join("; ");
      attempt.log.warning(`The data of signal "${event}" does not match the schema: ${issues}`);
      await port.takeSignal({ step, id: id!, output: "null", accepted: false });
      continue;
    }
    const output = encodeCheckpoint((result as { value: Data }).value, `The data of event "${event}"`);
    // "gone": a concurrent wait took this signal.
    if ((await port.takeSignal({ step, id: id!, output, accepted: true })) === "gone") continue;
    steps.savedCount += 1;
    return decodeCheckpoint(JSON.parse(output)) as Data;
  }
}
