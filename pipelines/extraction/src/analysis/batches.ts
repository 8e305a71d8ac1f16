// Runs a program on batches of files. If it fails on a batch, the batch is halved until the failing file is found; that file
// is skipped and logged.
import { ExecError, type StepHandle } from "stillwake/worker";
import type { SourceFile } from "./source-files.ts";

interface BatchLimits {
  files: number;
  bytes: number;
}

interface BatchOptions<Found> {
  step: Pick<StepHandle, "log">;
  max: BatchLimits;
  /** Stop after this number of findings. */
  maxFound: number;
  run(files: readonly SourceFile[]): Promise<Found[]>;
}

/** Limit of all file arguments together; the system's limit is not much larger. */
const ARGUMENT_BYTES = 256 * 1024;
/** Finding one file in a thousand takes ten failed calls; a program that fails on everything is given up. */
const MAX_FAILURES = 50;

/** A program wrote more output than is read. */
export class OutputTooLarge extends Error {}

export async function runInBatches<Found>(
  files: AsyncIterable<SourceFile>,
  { step, max, maxFound, run }: BatchOptions<Found>,
): Promise<Found[]> {
  const found: Found[] = [];
  const failed: SourceFile[] = [];
  let failures = 0;
  let worked = false;
  let lastError: unknown;
  for await (const batch of batches(files, max)) {
    const open = [batch];
    for (let part = open.pop(); part !== undefined && found.length < maxFound; part = open.pop()) {
      try {
        for (const finding of await run(part)) found.push(finding);
        worked = true;
      } catch (error) {
        failures += 1;
        if (!isFileError(error) || failures > MAX_FAILURES) throw error;
        lastError = error;
        const middle = Math.ceil(part.length / 2);
        if (part.length > 1) open.push(part.slice(middle), part.slice(0, middle));
        else failed.push(part[0]!);
      }
    }
    if (found.length >= maxFound) break;
  }
  if (failed.length > 0 && !worked) throw lastError;
  if (failed.length > 0)
    step.log.warning(
      `${failed.length === 1 ? "1 file" : `${failed.length} files`} could not be searched - findings there are missing`,
      { files: failed.slice(0, 20).map((file) => file.path.slice(0, 300)) },
    );
  return found;
}

async function* batches(files: AsyncIterable<SourceFile>, max: BatchLimits): AsyncGenerator<SourceFile[]> {
  let batch: SourceFile[] = [];
  let bytes = 0;
  let argumentBytes = 0;
  for await (const file of files) {
    const argument = Buffer.byteLength(file.file) + 9;
    const full =
      batch.length >= max.files || bytes + file.bytes > max.bytes || argumentBytes + argument > ARGUMENT_BYTES;
    if (batch.length > 0 && full) {
      yield batch;
      batch = [];
      bytes = argumentBytes = 0;
    }
    batch.push(file);
    bytes += file.bytes;
    argumentBytes += argument;
  }
  if (batch.length > 0) yield batch;
}

/** A timeout, lack of memory or a missing program would affect half a batch too. */
function isFileError(error: unknown): boolean {
  return (
    error instanceof OutputTooLarge ||
    (error instanceof ExecError && (error.kind === "exit" || error.kind === "signal"))
  );
}
