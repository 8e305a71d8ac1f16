// The minimal queue in Postgres, as an upper bound: one update takes a batch, one delete ends it. No fence, no history, no
// retries, no recovery of a dead worker.
import pg from "pg";
import { sqlJudge } from "./index.mjs";

const TABLE = `
  create table waiting (
    id       bigint generated always as identity primary key,
    payload  jsonb not null,
    taken_at timestamptz
  );
  create index waiting_free on waiting (id) where taken_at is null;`;
const TAKE = `
  update waiting w set taken_at = now()
  from (select id from waiting where taken_at is null order by id limit 500 for update skip locked) next
  where w.id = next.id returning w.id, w.payload`;
const END = "delete from waiting where id = any ($1::bigint[])";
const INSERT_ONE = "insert into waiting (payload) values ($1) returning id";
const INSERT_MANY = "insert into waiting (payload) select * from jsonb_array_elements($1::jsonb)";
const CHUNK = 10_000;

function openPool(url, max) {
  const pool = new pg.Pool({ connectionString: url, max });
  pool.on("error", () => {});
  return pool;
}

export async function install(url) {
  const pool = openPool(url, 1);
  await pool.query(TABLE);
  await pool.end();
}

export async function producer(url) {
  const pool = openPool(url, 20);
  return {
    one: (data) => pool.query({ name: "one", text: INSERT_ONE, values: [JSON.stringify(data)] }),
    async many(list) {
      for (let from = 0; from < list.length; from += CHUNK) {
        const values = [JSON.stringify(list.slice(from, from + CHUNK))];
        await pool.query({ name: "many", text: INSERT_MANY, values });
      }
    },
    close: () => pool.end(),
  };
}

export async function worker(url, handle) {
  const pool = openPool(url, 2);
  async function lane() {
    for (;;) {
      const { rows } = await pool.query({ name: "take", text: TAKE });
      if (rows.length === 0) return;
      const ids = new Array(rows.length);
      for (let index = 0; index < rows.length; index++) {
        handle(rows[index].payload);
        ids[index] = rows[index].id;
      }
      await pool.query({ name: "end", text: END, values: [ids] });
    }
  }
  const lanes = Promise.all([lane(), lane()]);
  return {
    async stop() {
      await lanes;
      await pool.end();
    },
  };
}

export function judge(url) {
  return sqlJudge(url, "from waiting");
}
