// Ways to enqueue many jobs: one connection, one statement per chunk.
import { randomFillSync } from "node:crypto";

const HEX = Array.from({ length: 256 }, (_, i) => i.toString(16).padStart(2, "0"));
/** n UUIDv7 from one block of random bytes; a counter in rand_a keeps the order within the call. */
export function id7s(n) {
  const random = randomFillSync(Buffer.allocUnsafe(n * 8));
  const out = new Array(n);
  let at = Date.now();
  let count = 0;
  let stamp = stampOf(at);
  for (let i = 0; i < n; i++) {
    if (count === 4096) {
      count = 0;
      stamp = stampOf(++at);
    }
    const o = i * 8;
    out[i] =
      stamp +
      (0x7000 | count++).toString(16) +
      "-" +
      HEX[(random[o] & 0x3f) | 0x80] +
      HEX[random[o + 1]] +
      "-" +
      HEX[random[o + 2]] +
      HEX[random[o + 3]] +
      HEX[random[o + 4]] +
      HEX[random[o + 5]] +
      HEX[random[o + 6]] +
      HEX[random[o + 7]];
  }
  return out;
}
const stampOf = (ms) => {
  const h = ms.toString(16).padStart(12, "0");
  return `${h.slice(0, 8)}-${h.slice(8)}-`;
};
const literal = (ids) => `{${ids.join(",")}}`;

const sqlId7 = `create function id7() returns uuid language sql volatile parallel safe as $$
  select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
    from 1 for 6), 52, 1), 53, 1), 'hex')::uuid $$;`;
const insertJobs = "insert into jobs (id, pipeline, pool, input)";

export const enqueueWays = {
  "rows from (unnest(uuid[]), jsonb_array_elements)": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id, 'extraction', 'scan', input from rows from (unnest($1::uuid[]), jsonb_array_elements($2::jsonb)) as s (id, input)`,
        values: [literal(ids), JSON.stringify(inputs)],
      }),
  },
  "the same, returning id": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id, 'extraction', 'scan', input from rows from (unnest($1::uuid[]), jsonb_array_elements($2::jsonb)) as s (id, input) returning id`,
        values: [literal(ids), JSON.stringify(inputs)],
      }),
  },
  "the same, on conflict do nothing": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id, 'extraction', 'scan', input from rows from (unnest($1::uuid[]), jsonb_array_elements($2::jsonb)) as s (id, input) on conflict do nothing`,
        values: [literal(ids), JSON.stringify(inputs)],
      }),
  },
  "jsonb_array_elements, id by an SQL function": {
    serverIds: true,
    setup: sqlId7,
    insert: (c, _ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id7(), 'extraction', 'scan', input from jsonb_array_elements($1::jsonb) as s (input)`,
        values: [JSON.stringify(inputs)],
      }),
  },
  "jsonb_array_elements, id gen_random_uuid (v4)": {
    serverIds: true,
    insert: (c, _ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select gen_random_uuid(), 'extraction', 'scan', input from jsonb_array_elements($1::jsonb) as s (input)`,
        values: [JSON.stringify(inputs)],
      }),
  },
  "jsonb_to_recordset (id, input)": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id, 'extraction', 'scan', input from jsonb_to_recordset($1::jsonb) as s (id uuid, input jsonb)`,
        values: [JSON.stringify(inputs.map((input, i) => ({ id: ids[i], input })))],
      }),
  },
  "jsonb_to_recordset, 8 columns": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `insert into jobs (id, pipeline, pool, priority, run_at, input, key, tenant, expires_at)
        select id, pipeline, pool, coalesce(priority, 0), coalesce(run_at, now()), input, key, tenant, expires_at
          from jsonb_to_recordset($1::jsonb) as s (id uuid, pipeline text, pool text, priority smallint, run_at timestamptz, input jsonb, key text, tenant text, expires_at timestamptz)`,
        values: [
          JSON.stringify(inputs.map((input, i) => ({ id: ids[i], pipeline: "extraction", pool: "scan", input }))),
        ],
      }),
  },
  "json_to_recordset (id, input)": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id, 'extraction', 'scan', input from json_to_recordset($1::json) as s (id uuid, input jsonb)`,
        values: [JSON.stringify(inputs.map((input, i) => ({ id: ids[i], input })))],
      }),
  },
  "unnest(uuid[], jsonb[])": {
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `${insertJobs} select id, 'extraction', 'scan', input from unnest($1::uuid[], $2::jsonb[]) as s (id, input)`,
        values: [literal(ids), inputs.map((i) => JSON.stringify(i))],
      }),
  },
  "split (facts + queue), rows from": {
    design: "split",
    insert: (c, ids, inputs) =>
      c.query({
        name: "a",
        text: `with f as (insert into facts (id, pipeline, input) select id, 'extraction', input from rows from (unnest($1::uuid[]), jsonb_array_elements($2::jsonb)) as s (id, input) returning id)
      insert into queue (id, pool) select id, 'scan' from f`,
        values: [literal(ids), JSON.stringify(inputs)],
      }),
  },
};
