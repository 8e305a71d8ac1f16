// Compares Stillwake with its peers. Started by `npm run bench`, which installs the peers and chooses the Node version.
import os from "node:os";
import { parseArgs } from "node:util";
import { versionOf } from "./install.mjs";
import { CORES } from "./machine.mjs";
import { peers } from "./peers/index.mjs";
import { keep, percent, printScale, printVerdict, printWorkload, summarise, whole } from "./report.mjs";
import { measureScale } from "./scale.mjs";
import { openPostgres, openRedis } from "./servers.mjs";
import { workloads } from "./workloads.mjs";

const HELP = `npm run bench -- [options]
  --only       ${[...Object.keys(workloads), "scale"].join(",")}
  --peers      ${Object.keys(peers).join(",")}
  --before     a built checkout of another commit: its Stillwake takes part in enqueue, crowd, bulk and drain as "before"
  --rounds     rounds, interleaved over the peers (3)
  --jobs       jobs of bulk and drain (100000)
  --step-jobs  jobs of steps and isolation (2000)
  --flow-jobs  jobs of flow and flow-bulk (50000)
  --singles    jobs enqueued one by one (20000)
  --deep       waiting and finished jobs of scale (1000000)
  --samples    claims of scale from the shallow and the deep state (10000)
  --tries      maximum of measurements while other processes use more than a fifth of the machine (2)
  --max-wait   seconds to wait for an idle moment before each measurement (10)`;
const DISTURBED = 0.2;

const options = readOptions();
const servers = { postgres: await openPostgres(), redis: undefined };
const stop = stopOnce();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => stop().finally(() => process.exit(1)));
try {
  if (chosenPeers().some(needsRedis)) await addRedis();
  describeRun();
  const results = await measurePeers();
  for (const [workload, summaries] of Object.entries(results)) printWorkload(workload, jobsOf(workload), summaries);
  const scale = options.only.includes("scale") ? await measureScaleAlone() : undefined;
  printVerdict(results, scale);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await stop();
}

async function measurePeers() {
  const rounds = {};
  for (let round = 1; round <= options.rounds; round++) {
    for (const workload of options.only.filter((name) => name in workloads)) {
      // Every other round runs the peers in reverse order.
      const order = round % 2 === 1 ? peersOf(workload) : peersOf(workload).toReversed();
      for (const peer of order) {
        const jobs = jobsOf(workload);
        const setting = { workload, peer, jobs, servers, maxWaitMs: options["max-wait"] * 1000 };
        const figures = await leastDisturbed(() => workloads[workload].measure(setting));
        console.log(
          `  ${round} ${workload} ${peer}: ${whole(figures.rate)} jobs/s, others ${percent(figures.foreign)}`,
        );
        keep({ kind: "round", round, workload, peer, jobs, ...figures });
        rounds[workload] ??= Object.fromEntries(peersOf(workload).map((name) => [name, []]));
        rounds[workload][peer].push(figures);
      }
    }
  }
  const results = {};
  for (const [workload, byPeer] of Object.entries(rounds)) {
    results[workload] = Object.fromEntries(Object.entries(byPeer).map(([peer, all]) => [peer, summarise(all)]));
    for (const [peer, summary] of Object.entries(results[workload]))
      keep({ kind: "summary", workload, peer, ...summary });
  }
  return results;
}

/** Repeats a disturbed measurement and keeps the least disturbed one, whatever its result. */
async function leastDisturbed(measure) {
  let best;
  for (let attempt = 0; attempt < options.tries; attempt++) {
    const figures = await measure();
    if (!best || figures.foreign < best.foreign) best = figures;
    if (!(figures.foreign > DISTURBED)) break;
  }
  return best;
}

async function measureScaleAlone() {
  const { deep, samples, "max-wait": maxWait } = options;
  console.log("  scale");
  const setting = { postgres: servers.postgres, deep, samples, maxWaitMs: maxWait * 1000, log: console.log };
  const states = await measureScale(setting);
  for (const state of states) keep({ kind: "scale", ...state });
  printScale(states);
  return states;
}

function jobsOf(workload) {
  return options[workloads[workload].jobs];
}

function peersOf(workload) {
  return options.peers.filter((peer) => workloads[workload].peers.includes(peer));
}

/** Peers of the selected workloads. */
function chosenPeers() {
  const selected = options.only.filter((name) => name in workloads);
  return options.peers.filter((peer) => selected.some((workload) => peersOf(workload).includes(peer)));
}

async function addRedis() {
  servers.redis = await openRedis();
  if (servers.redis) return;
  console.log("BullMQ skipped: redis-server is not installed (apt-get install redis-server)");
  options.peers = options.peers.filter((peer) => !needsRedis(peer));
}

function needsRedis(peer) {
  return peers[peer].store === "redis";
}

function describeRun() {
  const packages = new Set(
    chosenPeers()
      .map((peer) => peers[peer].package)
      .filter(Boolean),
  );
  const versions = [...packages].map((name) => `${name} ${versionOf(name)}`);
  const redis = servers.redis ? [`Redis ${servers.redis.version}`] : [];
  const parts = [`Node ${process.versions.node}`, `Postgres ${servers.postgres.version}`, ...redis, ...versions];
  console.log(`${parts.join(", ")}; ${CORES} cores, load ${os.loadavg()[0].toFixed(1)}`);
  keep({ kind: "run", parts, cores: CORES, load: os.loadavg(), options });
}

function stopOnce() {
  let stopped;
  return () => {
    stopped ??= Promise.all([servers.redis?.stop(), servers.postgres.stop()]);
    return stopped;
  };
}

function readOptions() {
  const text = (value) => ({ type: "string", default: value });
  const { values } = parseArgs({
    options: {
      only: text([...Object.keys(workloads), "scale"].join(",")),
      peers: text(Object.keys(peers).join(",")),
      before: { type: "string" },
      rounds: text("3"),
      jobs: text("100000"),
      "step-jobs": text("2000"),
      "flow-jobs": text("50000"),
      singles: text("20000"),
      deep: text("1000000"),
      samples: text("10000"),
      tries: text("2"),
      "max-wait": text("10"),
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) exit(HELP, 0);
  if (values.before) process.env.BENCH_BEFORE = values.before;
  else
    values.peers = list(values.peers)
      .filter((peer) => peer !== "before")
      .join(",");
  const read = { only: list(values.only), peers: list(values.peers) };
  const unknown = [
    ...read.only.filter((name) => !(name in workloads) && name !== "scale"),
    ...read.peers.filter((name) => !(name in peers)),
  ];
  if (unknown.length > 0) exit(`Unknown: ${unknown.join(", ")}\n${HELP}`, 1);
  for (const workload of read.only.filter((name) => name in workloads)) {
    const able = workloads[workload].peers;
    const none = !able.some((peer) => read.peers.includes(peer));
    if (none) exit(`None of these peers supports ${workload}; use ${able.join(", ")}`, 1);
  }
  for (const name of ["rounds", "jobs", "step-jobs", "flow-jobs", "singles", "deep", "samples", "tries", "max-wait"]) {
    read[name] = Number(values[name]);
    const min = name === "max-wait" ? 0 : 1;
    if (!Number.isInteger(read[name]) || read[name] < min) {
      exit(`--${name} must be an integer of at least ${min}\n${HELP}`, 1);
    }
  }
  return read;
}

function list(text) {
  return text.split(",").map((part) => part.trim());
}

function exit(message, status) {
  console.log(message);
  process.exit(status);
}
