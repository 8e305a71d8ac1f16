// Files are given to a program by name, many at a time. One that it fails on must not take the others with it: such a batch is halved until the file stands
// alone, and that one is left out and said.
import { ExecError, type StepHandle } from "stillwake/worker";
import type { SourceFile } from "./source-files.ts";

interface Batch {
  files: number;
  bytes: number;
}

interface InBatches<Found> {
  step: Pick<StepHandle, "log">;
  most: Batch;
  /** No more are looked at when so many are found. */
  enough: number;
  look(files: readonly SourceFile[]): Promise<Found[]>;
}

/** A single argument may be longer, all of them together not by much. */
const ARGUMENT_BYTES = 256 * 1024;
/** To find one file in a thousand takes ten calls that fail. A program that fails on everything is not asked again and again. */
const MAX_FAILURES = 50;

/** What a program says is more than is read of it. */
export class TooMuch extends Error {}

export async function inBatches<Found>(
  files: AsyncIterable<SourceFile>,
  { step, most, enough, look }: InBatches<Found>,
): Promise<Found[]> {
  const found: Found[] = [];
  const left: SourceFile[] = [];
  let failures = 0;
  let worked = false;
  let last: unknown;
  for await (const batch of batches(files, most)) {
    const open = [batch];
    for (let part = open.pop(); part !== undefined && found.length < enough; part = open.pop()) {
      try {
        for (const one of await look(part)) found.push(one);
        worked = true;
      } catch (error) {
        failures += 1;
        if (!isOfAFile(error) || failures > MAX_FAILURES) throw error;
        last = error;
        const middle = Math.ceil(part.length / 2);
        if (part.length > 1) open.push(part.slice(middle), part.slice(0, middle));
        else left.push(part[0]!);
      }
    }
    if (found.length >= enough) break;
  }
  if (left.length > 0 && !worked) throw last;
  if (left.length > 0)
    step.log.warn(
      `${left.length === 1 ? "1 file" : `${left.length} files`} could not be searched - what is there is missing`,
      { files: left.slice(0, 20).map((one) => one.path.slice(0, 300)) },
    );
  return found;
}

async function* batches(files: AsyncIterable<SourceFile>, most: Batch): AsyncGenerator<SourceFile[]> {
  let batch: SourceFile[] = [];
  let bytes = 0;
  let argumentBytes = 0;
  for await (const one of files) {
    const named = Buffer.byteLength(one.file) + 9;
    const full = batch.length >= most.files || bytes + one.bytes > most.bytes || argumentBytes + named > ARGUMENT_BYTES;
    if (batch.length > 0 && full) {
      yield batch;
      batch = [];
      bytes = argumentBytes = 0;
    }
    batch.push(one);
    bytes += one.bytes;
    argumentBytes += named;
  }
  if (batch.length > 0) yield batch;
}

/** Time, memory of the machine and an absent program are matters of the machine, and a half would meet the same. */
function isOfAFile(error: unknown): boolean {
  return error instanceof TooMuch || (error instanceof ExecError && (error.kind === "exit" || error.kind === "signal"));
}
