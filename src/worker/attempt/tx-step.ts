// A step whose rows and checkpoint commit together, in a transaction of the user's own.

import { saveCheckpointThrough } from "../../db/calls/worker.ts";
import { sendThrough, type Transaction } from "../../db/transaction.ts";
import { isConnectionLoss, NotAllowed } from "../../errors.ts";
import type { CrashPoint } from "../runner/fault-point.ts";
import type { Assignment, Port } from "../runner/port.ts";
import { decode, encode } from "./checkpoint-codec.ts";
import { type Begin, opened } from "./own-transaction.ts";

export interface TxStepHost {
  port: Port;
  assignment: Assignment;
  crashPoint?: CrashPoint | undefined;
  /** Throws when the attempt has ended. */
  check(): void;
}

export async function txStep<Tx, Result>(
  { port, assignment, crashPoint, check }: TxStepHost,
  name: string,
  begin: Begin<Tx>,
  run: (tx: Tx) => Promise<Result> | Result,
): Promise<Result> {
  const { job, epoch, lease, schema } = assignment;
  const began = performance.now();
  let json = "";
  let sent = false;
  try {
    await opened(begin, async (tx) => {
      json = encode(await run(tx as Tx), `The result of step "${name}"`);
      check();
      crashPoint?.("before", name);
      const call = { job, epoch, lease, step: name, output: json, tookMs: performance.now() - began };
      await saveCheckpointThrough(sendThrough(tx as Transaction), schema, call);
      sent = true;
    });
  } catch (error) {
    // The answer to COMMIT may be what was lost, and then the step is done.
    if (!sent && !isConnectionLoss(error) && !(error instanceof NotAllowed)) throw error;
    const found = (await port.checkpoints()).find(({ step }) => step === name);
    if (!found) throw error;
    return decode(found.output) as Result;
  }
  crashPoint?.("after", name);
  return decode(JSON.parse(json)) as Result;
}
