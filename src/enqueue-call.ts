// A call to enqueue on its way to the database, and the statement that several of them share.
import type { Labels } from "./options.ts";
import type { EnqueueBatch } from "./verbs.ts";

export interface EnqueueCall extends Labels {
  pipeline: string;
  id: string;
  input: string;
  options: Record<string, unknown>;
  idempotencyKey: string | null;
  trace: Record<string, string> | undefined;
}

export function batchOf(calls: EnqueueCall[]): EnqueueBatch {
  const first = calls[0]!;
  const keyed = calls.some((call) => call.idempotencyKey !== null);
  const traced = calls.some((call) => call.trace !== undefined);
  let { options } = first;
  if (keyed) options = { ...options, idempotency_keys: calls.map((call) => call.idempotencyKey) };
  if (traced) options = { ...options, traces: calls.map((call) => call.trace ?? null) };
  if (calls.some((call) => call.key !== null)) options = { ...options, keys: calls.map((call) => call.key) };
  if (calls.some((call) => call.tenant !== null)) options = { ...options, tenants: calls.map((call) => call.tenant) };
  return {
    pipeline: first.pipeline,
    ids: calls.map((call) => call.id),
    inputs: calls.map((call) => call.input),
    options,
  };
}
