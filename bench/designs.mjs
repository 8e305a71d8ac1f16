#!/usr/bin/env node
// Measures the cost of table designs with hand-written SQL, one Node process, 2 connections.
//   node bench/designs.mjs drain   [--jobs 100000] [--rounds 3] [--batch 500] [--only D1,D3]
//   node bench/designs.mjs claim   [--rounds 3] [--calls 400] [--only D1]      latency of small batches at depth
//   node bench/designs.mjs enqueue [--jobs 100000] [--rounds 3] [--chunk 10000]
// Rounds are interleaved over the designs; the table shows medians. BENCH_JSON=file appends every run.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import { parseArgs } from "node:util";
import { enqueueWays, id7s } from "./designs/enqueue.mjs";
import { bare, claimForms, leasePerJob, move, oneHotRow, settlementForms, split } from "./designs/schemas.mjs";
import {
  connect,
  freshDatabase,
  machineCpu,
  median,
  nowMs,
  quantile,
  quiet,
  serverCpu,
  sleep,
  startServer,
  within,
  workCounters,
} from "./designs/server.mjs";

const {
  positionals: [command = "drain"],
  values: option,
} = parseArgs({
  allowPositionals: true,
  options: {
    jobs: { type: "string", default: "100000" },
    rounds: { type: "string", default: "3" },
    batch: { type: "string", default: "500" },
    chunk: { type: "string", default: "10000" },
    calls: { type: "string", default: "400" },
    only: { type: "string" },
    depth: { type: "string" },
    deep: { type: "string", default: "1000000" },
  },
});
const JOBS = Number(option.jobs);
const ROUNDS = Number(option.rounds);
const BATCH = Number(option.batch);
const DB = "designs";

const form = (options) => oneHotRow({ join: "ctid", ...options });
const designs = {
  "D0 bare: update, delete; no fence, no history": bare(),
  "D1 one hot row": oneHotRow(),
  "D1 loose: the fence compares with a parameter": oneHotRow({ loose: true }),
  "D1 unpinned: the planner is free": oneHotRow({ pin: false }),
  "D1 generic: only plan_cache_mode set": oneHotRow({ pin: "generic" }),
  "D1 compressed: lease.job_ids compressed": oneHotRow({ jobIds: "compressed" }),
  "D1 noids: lease without job_ids": oneHotRow({ jobIds: "none" }),
  "D1 ctid: claim joins on ctid": oneHotRow({ join: "ctid" }),
  "D1 ff50": oneHotRow({ fillfactor: 50 }),
  "D1 ff70": oneHotRow({ fillfactor: 70 }),
  "D1 ff100": oneHotRow({ fillfactor: 100 }),
  "D1 parts: history in 30 partitions": oneHotRow({ partitions: true }),
  "D1 index: history with one more index": oneHotRow({ indexes: ["(pipeline, finished_at)"] }),
  "D1 partial: claim index where lease_id is null": oneHotRow({ partial: true }),
  "D1 partial ctid": oneHotRow({ partial: true, join: "ctid" }),
  "D1 partial ff90": oneHotRow({ partial: true, fillfactor: 90 }),
  "D1 partial ctid parts": oneHotRow({ partial: true, join: "ctid", partitions: true }),
  "D2 split": split(),
  "D3 move": move(),
  "D3 ctid": move({ join: "ctid" }),
  "D4 lease_until per job, indexed": leasePerJob(),
  // forms of input and output, all on the best D1
  "F0 rows out, arrays in": form(),
  "F0 rows out, arrays in, join on id": form({ join: "id" }),
  "F1 out json_agg(json_build_object)": form({ claims: claimForms.json }),
  "F2 out json_agg(row)": form({ claims: claimForms.rowjson }),
  "F3 out json tuples": form({ claims: claimForms.tuples }),
  "F4 in array literals by hand": form({ settlements: settlementForms.literals }),
  "F5 in jsonb_to_recordset": form({ settlements: settlementForms.jsonb }),
  "F6 in json_to_recordset": form({ settlements: settlementForms.json }),
  "F7 in lease id only": form({ settlements: settlementForms.lease }),
  "F8 json tuples out, literals in, partitions": form({
    claims: claimForms.tuples,
    settlements: settlementForms.literals,
    partitions: true,
  }),
  "F9 like F8, partial claim index": form({
    claims: claimForms.tuples,
    settlements: settlementForms.literals,
    partitions: true,
    partial: true,
  }),
};
const selected = Object.entries(designs).filter(
  ([name]) => !option.only || option.only.split(",").some((o) => name.startsWith(o)),
);

function stepCall(design) {
  const extra = design.settlements.none.map((_, i) => `$${6 + i}`).join(", ");
  const args = `$1, $2, $3, $4, $5, ${extra}`;
  return design.claims.scalar ? `select step(${args}) as jobs` : `select * from step(${args})`;
}
/** Settles the last batch and claims the next until no job is left or `calls` are used up. Returns the number of jobs. */
async function work(client, design, { limit, calls = Infinity, latencies }) {
  const text = stepCall(design);
  let old = null;
  let jobs = [];
  let done = 0;
  while (calls-- > 0) {
    const fresh = randomUUID();
    const settled = jobs.length ? design.settlements.pack(jobs) : design.settlements.none;
    const t = latencies && nowMs();
    const result = await client.query({
      name: "step",
      text,
      values: ["worker-1", "scan", limit, fresh, old, ...settled],
    });
    latencies?.push(nowMs() - t);
    const settledNow = jobs.length;
    jobs = design.claims.unpack(result);
    for (const job of jobs) {
      job.output = "null";
      done++;
    }
    old = jobs.length ? fresh : null;
    if (!jobs.length && !settledNow) break;
  }
  return done;
}

async function prepare(design, { waiting, past = 0, held = 0 }) {
  await freshDatabase(DB);
  await within(DB, design.schema);
  await within(DB, "checkpoint");
  const client = await connect(DB);
  const chunks = async (text, n) => {
    for (let i = 0; i < n; i += 10000) await client.query(text, [i, Math.min(n, i + 10000) - 1]);
  };
  await chunks(design.fill, waiting);
  if (past) await chunks(design.past, past);
  if (held) await client.query(design.hold, [held]);
  await client.query("analyze");
  if (past) await client.query("checkpoint");
  await client.end();
}

async function drainOnce(server, design) {
  await prepare(design, { waiting: JOBS });
  const admin = await connect("postgres");
  const clients = [await connect(DB), await connect(DB)];
  await quiet();
  const before = await workCounters(admin, DB);
  const cpu = serverCpu(server.pid);
  const node = process.cpuUsage();
  const machine = machineCpu();
  const t = nowMs();
  const done = (await Promise.all(clients.map((c) => work(c, design, { limit: BATCH })))).reduce((a, b) => a + b);
  const seconds = (nowMs() - t) / 1000;
  const used = process.cpuUsage(node);
  const pgCpu = serverCpu(server.pid) - cpu;
  const nodeCpu = (used.user + used.system) / 1e6;
  const foreign = (machineCpu() - machine - pgCpu - nodeCpu) / seconds / 2;
  for (const c of clients) await c.end(); // a backend reports its counters when it exits at the latest
  await sleep(300);
  const after = await workCounters(admin, DB);
  const [left] = await within(DB, design.left);
  const finished = design.finished ? (await within(DB, design.finished))[0].n : JOBS;
  if (done !== JOBS || left.n !== 0 || finished !== JOBS)
    throw new Error(`wrong result: ${done} done, ${left.n} left, ${finished} in history`);
  const [hot] = await within(
    DB,
    `select sum(n_tup_hot_upd)::float8 / nullif(sum(n_tup_upd), 0) as share from pg_stat_user_tables where relname in ('jobs', 'queue')`,
  );
  await admin.end();
  return {
    "jobs/s": JOBS / seconds,
    "PG µs": (pgCpu * 1e6) / JOBS,
    "Node µs": (nodeCpu * 1e6) / JOBS,
    "WAL B": (after.wal - before.wal) / JOBS,
    "commits/k": ((after.commits - before.commits) * 1000) / JOBS,
    "HOT %": (hot.share ?? NaN) * 100,
    "foreign %": foreign * 100,
  };
}

/** One depth of one design: the step call with batches of 1 and 10, with durable commits and without. */
async function claimOnce(server, design, depth) {
  await prepare(design, depth);
  const out = {};
  const client = await connect(DB);
  const reader = await connect(DB);
  if (depth.readerOver) {
    // an old snapshot: dead rows and index entries of these jobs must stay
    await reader.query("begin isolation level repeatable read; select 1");
    await work(client, design, { limit: 500, calls: depth.readerOver / 500 });
  }
  await quiet();
  await work(client, design, { limit: 10, calls: 30 });
  for (const sync of ["on", "off"]) {
    await client.query(`set synchronous_commit = ${sync}`);
    for (const limit of [1, 10]) {
      const latencies = [];
      const cpu = serverCpu(server.pid);
      await work(client, design, { limit, calls: Number(option.calls), latencies });
      out[`${limit} ${sync} p50`] = quantile(latencies, 0.5);
      out[`${limit} ${sync} p99`] = quantile(latencies, 0.99);
      if (sync === "off") out[`${limit} PG µs/call`] = ((serverCpu(server.pid) - cpu) * 1e6) / latencies.length;
    }
  }
  await client.end();
  await reader.end();
  return out;
}

async function enqueueOnce(server, way) {
  const design = way.design === "split" ? split() : oneHotRow();
  await freshDatabase(DB);
  await within(DB, design.schema + (way.setup ?? ""));
  await within(DB, "checkpoint");
  const client = await connect(DB);
  const admin = await connect("postgres");
  const chunk = Number(option.chunk);
  const inputs = Array.from({ length: JOBS }, (_, n) => ({
    n,
    repo: "acme/warehouse",
    branch: "main",
    ref: "abcdef0123",
  }));
  await quiet();
  const before = await workCounters(admin, DB);
  const cpu = serverCpu(server.pid);
  const node = process.cpuUsage();
  const t = nowMs();
  for (let i = 0; i < JOBS; i += chunk) {
    const part = inputs.slice(i, i + chunk);
    await way.insert(client, way.serverIds ? null : id7s(part.length), part);
  }
  const seconds = (nowMs() - t) / 1000;
  const used = process.cpuUsage(node);
  const pgCpu = serverCpu(server.pid) - cpu;
  const after = await workCounters(admin, DB);
  const [left] = await within(DB, design.left);
  if (left.n !== JOBS) throw new Error(`${left.n} rows`);
  await client.end();
  await admin.end();
  return {
    "rows/s": JOBS / seconds,
    "PG µs": (pgCpu * 1e6) / JOBS,
    "Node µs": (used.user + used.system) / JOBS,
    "WAL B": (after.wal - before.wal) / JOBS,
  };
}

const runs = new Map();
function note(name, figures) {
  if (!runs.has(name)) runs.set(name, []);
  runs.get(name).push(figures);
  if (process.env.BENCH_JSON)
    fs.appendFileSync(process.env.BENCH_JSON, `${JSON.stringify({ command, name, ...figures })}\n`);
  console.error(
    name.padEnd(60),
    Object.entries(figures)
      .map(([k, v]) => `${k} ${short(v)}`)
      .join("  "),
  );
}
const short = (v) =>
  !Number.isFinite(v) ? "–" : v >= 100 ? Math.round(v).toLocaleString("en") : v.toFixed(v < 10 ? 2 : 1);
function report() {
  const rows = [...runs.entries()];
  const columns = Object.keys(rows[0][1][0]);
  console.log(`\n| | ${columns.join(" | ")} |\n|---|${columns.map(() => "---").join("|")}|`);
  for (const [name, all] of rows)
    console.log(`| ${name} | ${columns.map((c) => short(median(all.map((r) => r[c])))).join(" | ")} |`);
}

const depths = {
  "20k waiting": { waiting: 20000 },
  "20k waiting, 5k leased in front": { waiting: 25000, held: 5000 },
  "20k waiting, old snapshot over 20k done": { waiting: 40000, readerOver: 20000 },
  "2k waiting, 2k leased in front": { waiting: 4000, held: 2000 },
  "1M waiting, 1M finished": { waiting: Number(option.deep), past: Number(option.deep) },
};
const server = await startServer();
try {
  for (let round = 0; round < ROUNDS; round++) {
    if (command === "drain") for (const [name, design] of selected) note(name, await drainOnce(server, design));
    if (command === "claim") {
      for (const [depth, how] of Object.entries(depths)) {
        if (option.depth && !option.depth.split(",").some((d) => depth.startsWith(d))) continue;
        if (how.past && round > 0) continue; // building a million rows takes long; once is enough
        for (const [name, design] of selected) {
          if (design.past || !how.past) note(`${name}; ${depth}`, await claimOnce(server, design, how));
        }
      }
    }
    if (command === "enqueue")
      for (const [name, way] of Object.entries(enqueueWays)) note(name, await enqueueOnce(server, way));
  }
  report();
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await server.stop();
}
