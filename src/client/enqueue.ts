// A call to enqueue on its way to the database, and the statement that several of them share.

import type { Pipeline } from "../contract/pipeline.ts";
import type { EnqueueBatch } from "../db/calls/jobs.ts";
import { toJson } from "../payload.ts";
import { type KeyRing, sealInput } from "../secrets/seal.ts";
import type { Labels } from "./enqueue-options.ts";

export interface EnqueueCall extends Labels {
  pipeline: string;
  id: string;
  input: string;
  options: Record<string, unknown>;
  idempotencyKey: string | null;
  trace: Record<string, string> | undefined;
}

/** The call as it may be stored: what its contract has sealed is bound to its id. One that has none yet is only checked by it. */
export function sealed(ring: KeyRing | undefined, pipeline: Pipeline | string, call: EnqueueCall): EnqueueCall {
  const paths = typeof pipeline === "string" ? [] : (pipeline.options.sealed ?? []);
  if (paths.length === 0) return call;
  const { id, key, tenant, idempotencyKey } = call;
  const owner = { pipeline: call.pipeline, tenant, job: id || null };
  const input = sealInput(ring, paths, JSON.parse(call.input), owner, [key, tenant, idempotencyKey]);
  return { ...call, input: toJson(input, "input") };
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
