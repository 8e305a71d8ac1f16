// Measures whether the cost of a claim depends on the size of the database: claims of ten jobs from several databases in turn, so
// that a slow moment affects all of them. Claimed jobs are settled and replaced, so the backlog keeps its length.
import pg from "pg";
import { migrate } from "../dist/index.js";
import { median, nowMs, ownCpu, quantile, waitUntilIdle, watchOthers } from "./machine.mjs";

const LIMIT = 10;
const LEASED = 5_000;
const DEAD = 200_000;
const SMALL = 20_000;
const WARM = 50;
const BLOCKS = 5;

// Set-up only: rows as the verbs would have left them, written directly because a million calls would take too long.
const WAITING = `
  insert into stillwake.live_jobs (id, created_at, run_at, max_attempts, priority, pipeline, pool, input)
  select stillwake.new_id(t, (n % 33554432)::integer), t, t, 3, 0, 'bench', 'default', jsonb_build_object('id', n)
  from (select n, now() - interval '1 hour' + n * interval '1 millisecond' as t from generate_series($1::bigint, $2::bigint) n) rows`;
const FINISHED = `
  insert into stillwake.ended_jobs (id, forget_on, state, created_at, run_at, started_at, claimed_at, ended_at, epoch, seq, attempt,
    max_attempts, crashes, priority, pipeline, pool, worker, input)
  select stillwake.new_id(t, (n % 33554432)::integer), stillwake.forget_on(now(), '14 days'), 'completed', t, t, t, t, t, 1, 0, 1, 3, 0, 0,
    'bench', 'default', 'before', jsonb_build_object('id', n)
  from (select n, now() - interval '1 day' + n * interval '1 millisecond' as t from generate_series($1::bigint, $2::bigint) n) rows`;
// The oldest jobs are running, fifty per lease: a claim must skip them.
const LEASE = `
  with front as (
    select id, (row_number() over (order by run_at, id) - 1) / 50 as part from stillwake.live_jobs order by run_at, id limit $1
  ), lease as (
    insert into stillwake.leases (id, pool, worker, claimed_at, until, span, job_ids)
    select gen_random_uuid(), 'default', 'busy', now(), now() + interval '1 day', interval '1 day', array_agg(id) from front group by part
    returning id, job_ids
  )
  update stillwake.live_jobs j
  set state = 'running', lease_id = lease.id, epoch = 1, attempt = 1, worker = 'busy', claimed_at = now(), started_at = now()
  from lease where j.id = any (lease.job_ids)`;
// The state after a busy minute before autovacuum: the first jobs are deleted, their index entries remain.
const FORGET =
  "delete from stillwake.live_jobs where id in (select id from stillwake.live_jobs order by run_at, id limit $1)";
const CLAIM = "select * from stillwake.claim('bench', 'default', array['bench'], $1, '15 seconds')";
const SETTLE = "select count(*) filter (where state = 'lost')::integer as lost from stillwake.settle($1)";
const REFILL = "select stillwake.enqueue_many('bench', $1)";

export async function measureScale({ postgres, deep, samples, maxWaitMs, log }) {
  const number = (value) => value.toLocaleString("en");
  const states = [
    { name: `${number(SMALL)} waiting`, waiting: SMALL },
    { name: `${number(deep)} waiting, ${number(deep)} finished`, waiting: deep, finished: deep },
    { name: `${number(SMALL)} waiting behind ${number(LEASED)} leased`, waiting: SMALL, leased: LEASED, lesser: true },
    { name: `${number(SMALL)} waiting behind ${number(DEAD)} not vacuumed`, waiting: SMALL, dead: DEAD, lesser: true },
  ];
  try {
    for (const state of states) {
      log(`  building ${state.name}`);
      await build(postgres, state);
    }
    for (let sample = 0; sample < WARM; sample++) for (const state of states) await claimOnce(state);
    for (const state of states) state.times = Array.from({ length: BLOCKS }, () => []);
    const foreign = [];
    for (let block = 0; block < BLOCKS; block++) {
      for (const { client, dead } of states) if (!dead) await client.query("vacuum stillwake.live_jobs");
      await postgres.sql("checkpoint");
      await waitUntilIdle(maxWaitMs);
      const others = watchOthers();
      const cpu = ownCpu() + postgres.cpu();
      await claimInTurn(states, block, Math.ceil(samples / BLOCKS));
      foreign.push(others(ownCpu() + postgres.cpu() - cpu));
    }
    for (const state of states) await checkState(state);
    return states.map((state) => ({
      ...summary(state.times, states[0].times),
      name: state.name,
      foreign: median(foreign),
    }));
  } finally {
    for (const state of states) {
      await state.client?.end();
      await state.database?.drop();
    }
  }
}

/** One sample from each state in turn, with rotating order; from the lesser states only every fifth time. */
async function claimInTurn(states, block, samples) {
  for (let sample = 0; sample < samples; sample++) {
    const sampled = sample % 5 === 0 ? states : states.filter((state) => !state.lesser);
    for (let turn = 0; turn < sampled.length; turn++) {
      const state = sampled[(sample + turn) % sampled.length];
      state.times[block].push(await claimOnce(state));
    }
  }
}

async function build(postgres, state) {
  state.database = await postgres.database("scale");
  await migrate({ url: state.database.url });
  state.client = new pg.Client({ connectionString: state.database.url });
  state.client.on("error", () => {});
  await state.client.connect();
  const { client, waiting, finished = 0, leased = 0, dead = 0 } = state;
  await client.query("select stillwake.register_pipeline('bench')");
  await client.query("select stillwake.make_partitions()");
  await insert(client, WAITING, waiting + leased + dead);
  await insert(client, FINISHED, finished);
  if (leased > 0) await client.query(LEASE, [leased]);
  await client.query("vacuum analyze");
  if (dead > 0) {
    await client.query("alter table stillwake.live_jobs set (autovacuum_enabled = off)");
    await client.query(FORGET, [dead]);
  }
}

async function insert(client, statement, rows) {
  const STEP = 100_000;
  for (let from = 0; from < rows; from += STEP) {
    await client.query(statement, [from, Math.min(from + STEP, rows) - 1]);
  }
}

/** Milliseconds from the call to its result, including the commit. */
async function claimOnce({ client }) {
  const began = nowMs();
  const { rows } = await client.query(CLAIM, [LIMIT]);
  const took = nowMs() - began;
  if (rows.length !== LIMIT) throw new Error(`claimed ${rows.length} jobs instead of ${LIMIT}`);
  const settlements = rows.map(({ job_id, epoch, lease_id }) => ({
    job: job_id,
    epoch,
    lease: lease_id,
    outcome: "completed",
  }));
  const settled = await client.query(SETTLE, [JSON.stringify(settlements)]);
  if (settled.rows[0].lost > 0) throw new Error(`${settled.rows[0].lost} settlements were refused`);
  await client.query(REFILL, [JSON.stringify(rows.map(({ input }) => input))]);
  return took;
}

async function checkState({ client, name, times, waiting, finished = 0, leased = 0 }) {
  const claimed = (times.flat().length + WARM) * LIMIT;
  const { rows } = await client.query(`
    select (select count(*) from stillwake.live_jobs where lease_id is null)::integer as waiting,
      (select count(*) from stillwake.live_jobs where lease_id is not null)::integer as leased,
      (select count(*) from stillwake.ended_jobs)::integer as finished`);
  const wanted = { waiting, leased, finished: finished + claimed };
  if (JSON.stringify(rows[0]) === JSON.stringify(wanted)) return;
  throw new Error(`${name}: found ${JSON.stringify(rows[0])}, expected ${JSON.stringify(wanted)}`);
}

/** Ratios of all samples; the range is that of the blocks. */
function summary(times, reference) {
  const ratios = times.map((block, index) => quantile(block, 0.99) / quantile(reference[index], 0.99));
  const p50 = quantile(times.flat(), 0.5);
  const p99 = quantile(times.flat(), 0.99);
  return {
    samples: times.flat().length,
    p50,
    p99,
    p50Ratio: p50 / quantile(reference.flat(), 0.5),
    p99Ratio: p99 / quantile(reference.flat(), 0.99),
    p99RatioMin: Math.min(...ratios),
    p99RatioMax: Math.max(...ratios),
  };
}
