// Prints tables, appends JSON lines to results/bench.jsonl, and compares with the targets.
import fs from "node:fs";
import { median } from "./machine.mjs";
import { ISOLATION_SLOTS, peers, STEPS } from "./peers/index.mjs";
import { workloads } from "./workloads.mjs";

const FILE = new URL("../results/bench.jsonl", import.meta.url);

export function keep(record) {
  fs.mkdirSync(new URL(".", FILE), { recursive: true });
  fs.appendFileSync(FILE, `${JSON.stringify({ at: new Date().toISOString(), ...record })}\n`);
}

/** Medians of the rounds of one peer, with the range of the rate. */
export function summarise(rounds) {
  const names = ["rate", "nodeUs", "storeUs", "walBytes", "commits", "pages", "foreign"];
  const medians = names.map((name) => [name, median(rounds.map((round) => round[name] ?? Number.NaN))]);
  const rates = rounds.map((round) => round.rate);
  return { ...Object.fromEntries(medians), min: Math.min(...rates), max: Math.max(...rates), rounds: rounds.length };
}

export function printWorkload(workload, jobs, summaries) {
  const head = [
    "",
    "jobs/s",
    "min–max",
    peers[Object.keys(summaries).at(-1)].of ? "" : "Stillwake is",
    "Node µs",
    "store µs",
    "WAL B",
    "commits/1000",
    "others",
  ];
  const rows = Object.entries(summaries).map(([peer, s]) => [
    peers[peer].title,
    whole(s.rate),
    `${whole(s.min)}–${whole(s.max)}`,
    comparison(peer, summaries),
    short(s.nodeUs),
    short(s.storeUs),
    whole(s.walBytes),
    short(s.commits * 1000),
    percent(s.foreign),
  ]);
  print(`${workloads[workload].title}: ${whole(jobs)} jobs`, [head, ...rows]);
}

export function printScale(states) {
  const head = ["", "samples", "p50 ms", "p99 ms", "p50 ratio", "p99 ratio", "min–max", "others"];
  const rows = states.map((state) => [
    state.name,
    whole(state.samples),
    state.p50.toFixed(2),
    state.p99.toFixed(2),
    state.p50Ratio.toFixed(2),
    state.p99Ratio.toFixed(2),
    `${state.p99RatioMin.toFixed(2)}–${state.p99RatioMax.toFixed(2)}`,
    percent(state.foreign),
  ]);
  print("claim of 10 jobs by database state", [head, ...rows]);
}

/** Targets without figures are omitted. */
export function printVerdict(results, scale) {
  const rate = (workload, peer) => results[workload]?.[peer]?.rate;
  const ratio = (workload, ...others) => {
    const best = Math.max(...others.map((peer) => rate(workload, peer) ?? 0));
    return best > 0 && rate(workload, "stillwake") ? rate(workload, "stillwake") / best : undefined;
  };
  const targets = [
    ["drain, × graphile", ratio("drain", "graphile"), ">=", 1.5],
    ["drain, × pg-boss", ratio("drain", "pg-boss"), ">=", 2],
    ["drain, with the worker ÷ without", ratio("drain", "stillwake-verbs"), ">=", 0.85],
    [`${STEPS} durable steps, × DBOS`, ratio("steps", "dbos"), ">=", 20],
    ["bulk enqueue, × the best Postgres peer", ratio("bulk", "graphile", "pg-boss"), ">=", 2],
    ["single enqueues, × BullMQ", ratio("enqueue", "bullmq"), ">=", 1.5],
    ["single enqueues, × BullMQ synced", ratio("enqueue", "bullmq-synced")],
    ["single enqueues of 200 callers, × BullMQ", ratio("crowd", "bullmq")],
    [
      `claim p99 at ${scale?.[1].name ?? "depth"}, × that at ${scale?.[0].name ?? "20,000"}`,
      scale?.[1].p99Ratio,
      "<=",
      1.2,
    ],
    ["drain without flow control, × before", ratio("drain", "before"), ">=", 0.97],
    ["single enqueues without flow control, × before", ratio("enqueue", "before"), ">=", 0.97],
    ["bulk enqueue without flow control, × before", ratio("bulk", "before"), ">=", 0.97],
    ...flowTargets(rate),
    ["drain, of the bare limit", ratio("drain", "bare")],
    [`${STEPS} durable steps, of the bare limit`, ratio("steps", "bare")],
    ["isolation by process, ms more per job in its slot", isolationMs(rate)],
    ["bulk enqueue, of the bare limit", ratio("bulk", "bare")],
    ["single enqueues, of the bare limit", ratio("enqueue", "bare")],
  ].filter(([, value]) => value !== undefined);
  if (targets.length === 0) return;
  const rows = targets.map(([name, value, sign, target]) => {
    if (!sign) return [name, value.toFixed(2), "", ""];
    const met = sign === ">=" ? value >= target : value <= target;
    return [name, value.toFixed(2), `${sign === ">=" ? "at least" : "at most"} ${target}`, met ? "met" : "MISSED"];
  });
  print("Targets", rows);
  keep({ kind: "verdict", targets: targets.map(([name, value, , target]) => ({ name, value, target })) });
}

/** At most a quarter more time than without flow control. No target for taking from a limit, which is a separate statement. */
function flowTargets(rate) {
  const users = Object.keys(peers).filter((peer) => peers[peer].of);
  return Object.entries({ flow: "drain", "flow-bulk": "bulk enqueue" }).flatMap(([workload, verb]) =>
    users.map((peer) => {
      const of = rate(workload, peers[peer].of) ? peers[peer].of : "flow-plain";
      const value = rate(workload, peer) / rate(workload, of);
      const target = workload === "flow" && peer !== "flow-take" ? [">=", 0.8] : [];
      const name = `${verb}, ${peers[peer].title} ÷ ${peers[of].title}`;
      return [name, Number.isFinite(value) ? value : undefined, ...target];
    }),
  );
}

/** How much longer a job holds its slot if its handler runs in a separate process. */
function isolationMs(rate) {
  const [none, process] = ["stillwake-none", "stillwake-process"].map((peer) => rate("isolation", peer));
  return none && process ? 1000 * ISOLATION_SLOTS * (1 / process - 1 / none) : undefined;
}

function comparison(peer, summaries) {
  const { rate } = summaries[peer];
  const of = summaries[peers[peer].of] ? peers[peer].of : "flow-plain";
  if (peers[peer].of) return summaries[of] ? `${(rate / summaries[of].rate).toFixed(2)} of ${peers[of].title}` : "";
  if (peer === "stillwake" || !summaries.stillwake) return "";
  const ratio = summaries.stillwake.rate / rate;
  return peer === "bare" ? `${ratio.toFixed(2)} of bare limit` : `${ratio.toFixed(2)} × ${peers[peer].title}`;
}

function print(title, rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  console.log(`\n${title}`);
  for (const row of rows) {
    const cells = row.map((cell, column) => (column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column])));
    console.log(`  ${cells.join("  ")}`.trimEnd());
  }
}

export function whole(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en") : "–";
}

function short(value) {
  return Number.isFinite(value) ? value.toFixed(value < 10 ? 1 : 0) : "–";
}

export function percent(share) {
  return Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–";
}
