// job.tx(): a step whose rows and checkpoint commit together, in a transaction of the user's library. each.ts uses the
// same transactions for batches.
import type pg from "pg";
import { saveCheckpointInTransaction } from "../../db/calls/worker.ts";
import { checkoutClient } from "../../db/connection.ts";
import { sendThroughTransaction, type Transaction } from "../../db/transaction.ts";
import { InvalidInput, isConnectionLoss, NotAllowed } from "../../errors.ts";
import type { AttemptState } from "./attempt-state.ts";
import { checkpointKind, decodeCheckpoint, encodeCheckpoint } from "./checkpoint-codec.ts";
import { Handle, type StepHandle } from "./step-handle.ts";
import { checkStep, type StepOptions, type StepScope } from "./steps.ts";

/** Runs a function in a transaction of the user's library, such as `(run) => db.transaction(run)`; or a pg.Pool. */
export type Begin<Tx> = ((run: (tx: Tx) => Promise<unknown>) => PromiseLike<unknown>) | pg.Pool;

/** The transaction that such a function or pool passes on. */
export type TransactionOf<Begins> = Begins extends pg.Pool
  ? pg.PoolClient
  : Begins extends (run: (tx: infer Tx) => Promise<unknown>) => unknown
    ? Tx
    : undefined;

export async function inTransaction<Tx>(begin: Begin<Tx>, run: (tx: unknown) => Promise<unknown>): Promise<void> {
  if (typeof begin === "function") {
    await begin(async (tx) => {
      // Refuses a database or a pool before any code of the step runs.
      sendThroughTransaction(tx as Transaction);
      return run(tx);
    });
    return;
  }
  let broken: Error | undefined;
  const onError = (error: Error) => {
    broken = error;
  };
  const client = await checkoutClient(begin, onError);
  try {
    await client.query("begin");
    await run(client);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch((failed: Error) => (broken = failed));
    throw error;
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}

export async function runTxStep<Tx, Result>(
  attempt: AttemptState,
  name: string,
  options: StepOptions<Result>,
  begin: Begin<Tx>,
  run: (tx: Tx, step: StepHandle) => Promise<Result> | Result,
): Promise<Result> {
  const steps = attempt.beginStep();
  checkStep(name, options, run);
  checkBegin(name, begin);
  const saved = await steps.begin(name);
  if (saved && checkpointKind(saved.raw) !== "failed") return steps.resultOf(name, saved) as Result;
  const result = await steps.track(name, options, async (writeEnd) => {
    const runOnce = (scope: StepScope) => {
      const handle = new Handle(scope, attempt);
      return commitWithCheckpoint<Tx, Result>(attempt, name, begin, (tx) => run(tx, handle), writeEnd);
    };
    return steps.runWithLimits(name, options, runOnce);
  });
  steps.savedCount += 1;
  return result;
}

function checkBegin(name: string, begin: unknown): void {
  if (typeof begin === "function" || typeof (begin as pg.Pool | null | undefined)?.connect === "function") return;
  throw new InvalidInput(`The third argument of job.tx("${name}", …) begins no transaction`, {
    field: "begin",
    remedy: "Pass a pg.Pool, or a function such as (run) => db.transaction(run)",
  });
}

async function commitWithCheckpoint<Tx, Result>(
  attempt: AttemptState,
  name: string,
  begin: Begin<Tx>,
  run: (tx: Tx) => Promise<Result> | Result,
  writeEnd: (result: Result) => void,
): Promise<Result> {
  const { port, faultPoint } = attempt.host;
  const { job, epoch, lease, schema } = attempt.assignment;
  const startedAt = performance.now();
  let json = "";
  let sent = false;
  try {
    await inTransaction(begin, async (tx) => {
      json = encodeCheckpoint(await run(tx as Tx), `The result of step "${name}"`);
      attempt.check();
      writeEnd(decodeCheckpoint(JSON.parse(json)) as Result);
      await attempt.flushBeforeCommit();
      faultPoint?.("before", name);
      const call = { job, epoch, lease, step: name, output: json, tookMs: performance.now() - startedAt };
      await saveCheckpointInTransaction(sendThroughTransaction(tx as Transaction), schema, call);
      sent = true;
    });
  } catch (error) {
    // If only the response to COMMIT was lost, the step is done and its checkpoint exists.
    if (!sent && !isConnectionLoss(error) && !(error instanceof NotAllowed)) throw error;
    const found = (await port.checkpoints()).find(({ step }) => step === name);
    if (!found) throw error;
    return decodeCheckpoint(found.output) as Result;
  }
  faultPoint?.("after", name);
  return decodeCheckpoint(JSON.parse(json)) as Result;
}
