// The minimal durable steps, as an upper bound: concurrent calls of the slots (take a job, store a result, end a job) share one
// statement, and each slot continues after its commit. No fence, no history, no retries, no recovery of a dead worker.
import pg from "pg";
import * as bare from "../bare.mjs";
import { STEP_SLOTS, STEPS, sqlJudge } from "../index.mjs";

export const { producer } = bare;

const TABLE = "create table kept (job bigint, step text, output jsonb, primary key (job, step))";
const TAKE = `
  update waiting w set taken_at = now()
  from (select id from waiting where taken_at is null order by id limit $1 for update skip locked) next
  where w.id = next.id returning w.id, w.payload`;
const KEEP = "insert into kept select * from unnest($1::bigint[], $2::text[], $3::jsonb[])";
const END = "delete from waiting where id = any ($1::bigint[])";

export async function install(url) {
  await bare.install(url);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(TABLE);
  await client.end();
}

export async function worker(url, handle, { begin, between }) {
  const pool = new pg.Pool({ connectionString: url, max: 3 });
  pool.on("error", () => {});
  const query = async (name, text, values) => (await pool.query({ name, text, values })).rows;
  const take = shared((calls) => query("take", TAKE, [calls.length]));
  const end = shared((ids) => query("end", END, [ids]));
  const keep = shared((results) => {
    const column = (name) => results.map((result) => result[name]);
    return query("keep", KEEP, [column("job"), column("step"), column("output")]);
  });
  async function slot() {
    for (let job = await take(); job; job = await take()) {
      begin();
      for (let i = 1; i <= STEPS; i++) {
        await keep({ job: job.id, step: `s${i}`, output: i });
        if (between) await between();
      }
      handle(job.payload);
      await end(job.id);
    }
  }
  const slots = Promise.all(Array.from({ length: STEP_SLOTS }, slot));
  return {
    async stop() {
      await slots;
      await pool.end();
    },
  };
}

/** Calls during a running statement share the next one; call n gets row n. A failed statement terminates the process. */
function shared(send) {
  let waiting = [];
  let sending = false;
  async function flush() {
    while (waiting.length > 0) {
      const batch = waiting;
      waiting = [];
      const rows = await send(batch.map(({ value }) => value));
      for (let index = 0; index < batch.length; index++) batch[index].resolve(rows[index]);
      // Slots that got their row call again before the next statement is sent.
      await new Promise(setImmediate);
    }
    sending = false;
  }
  return (value) =>
    new Promise((resolve) => {
      waiting.push({ value, resolve });
      if (sending) return;
      sending = true;
      setImmediate(flush);
    });
}

export function judge(url) {
  return sqlJudge(url, "from waiting", undefined, "from kept where step = 's' || output::text");
}
