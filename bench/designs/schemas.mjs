// The table designs under comparison. `schema` creates the tables of a design and the plpgsql function step(), which settles
// the last batch and claims the next one in one commit. The other SQL of a design:
//   fill:  adds waiting jobs; $1..$2 = a range of numbers
//   past:  adds finished jobs; $1..$2 as above
//   hold:  leases $1 jobs to another worker
//   finished, left:  count the finished jobs and all others
// step(worker, pool, limit, new lease, old lease, <settlements>) returns the claimed jobs in one of several forms.

const id7 = `(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(g & 4095), 3, '0')
  || '8' || substr(md5(g::text), 1, 15))::uuid`;
const input60 = `jsonb_build_object('n', g, 'repo', 'acme/warehouse', 'branch', 'main', 'ref', 'abcdef0123')`;

const jobColumns = `pipeline text not null, input jsonb not null, created_at timestamptz not null default now(),
  key text, tenant text, expires_at timestamptz, parent_id uuid`;
const queueColumns = `pool text not null, priority smallint not null default 0, run_at timestamptz not null default now(),
  attempt smallint not null default 0, epoch bigint not null default 0`;
const lease = "lease_id uuid, worker text, claimed_at timestamptz";
const failure = "failure jsonb";

// job_ids are stored uncompressed: random UUIDs do not compress
const leases = `create table leases (id uuid primary key, worker text not null, until timestamptz not null, job_ids uuid[])
  with (fillfactor = 50); alter table leases alter column job_ids set storage external;`;
const claimIndex = (table, where = "") => `create index on ${table} (pool, priority, run_at, id) ${where};`;

function history({ partitions = false, indexes = [] } = {}) {
  const columns = `id uuid not null, state text not null, output jsonb, started_at timestamptz not null, finished_at timestamptz not null,
    worker text, keep_until timestamptz not null, ${jobColumns}, ${queueColumns}, ${failure}`;
  const more = indexes.map((i) => `create index on history ${i};`).join("\n");
  if (!partitions) return `create table history (${columns}, primary key (id)); ${more}`;
  return `create table history (${columns}, primary key (id, keep_until)) partition by range (keep_until);
    do $$ begin for d in 0..29 loop execute format('create table history_%s partition of history for values from (%L) to (%L)',
      d, current_date + d + 1, current_date + d + 2); end loop; end $$; ${more}`;
}
const historyColumns = `id, state, output, started_at, finished_at, worker, keep_until, pipeline, input, created_at, key, tenant, expires_at,
  parent_id, pool, priority, run_at, attempt, epoch, failure`;
const toHistory = (from) => `insert into history (${historyColumns})
    select id, 'completed', output, claimed_at, v_now, worker, v_now + interval '29 days', pipeline, input, created_at, key, tenant, expires_at,
      parent_id, pool, priority, run_at, attempt, epoch, failure from ${from}`;

// The fence compares with columns of the materialized settlements, never with a parameter: with `lease_id = parameter` the
// planner expects one row, starts from the jobs and reads their whole index for every settle.

// ---- input of settlements -------------------------------------------------------------------------------------
export const settlementForms = {
  arrays: {
    params: "p_ids uuid[], p_epochs bigint[], p_outputs jsonb",
    condition: "p_ids is not null",
    rows: "select * from rows from (unnest(p_ids), unnest(p_epochs), jsonb_array_elements(p_outputs)) as s (id, epoch, output)",
    pack: (jobs) => [jobs.map((j) => j.id), jobs.map((j) => j.epoch), `[${jobs.map((j) => j.output).join(",")}]`],
    none: [null, null, null],
  },
  // array literals built here: UUIDs and integers need no quoting
  literals: {
    params: "p_ids uuid[], p_epochs bigint[], p_outputs jsonb",
    condition: "p_ids is not null",
    rows: "select * from rows from (unnest(p_ids), unnest(p_epochs), jsonb_array_elements(p_outputs)) as s (id, epoch, output)",
    pack(jobs) {
      let ids = "";
      let epochs = "";
      let outputs = "";
      for (const job of jobs) {
        ids += `,${job.id}`;
        epochs += `,${job.epoch}`;
        outputs += `,${job.output}`;
      }
      return [`{${ids.slice(1)}}`, `{${epochs.slice(1)}}`, `[${outputs.slice(1)}]`];
    },
    none: [null, null, null],
  },
  jsonb: {
    params: "p_settled jsonb",
    condition: "p_settled is not null",
    rows: "select * from jsonb_to_recordset(p_settled) as s (id uuid, epoch bigint, output jsonb)",
    pack: (jobs) => [JSON.stringify(jobs.map((j) => ({ id: j.id, epoch: j.epoch, output: null })))],
    none: [null],
  },
  json: {
    params: "p_settled json",
    condition: "p_settled is not null",
    rows: "select * from json_to_recordset(p_settled) as s (id uuid, epoch bigint, output jsonb)",
    pack: (jobs) => [JSON.stringify(jobs.map((j) => ({ id: j.id, epoch: j.epoch, output: null })))],
    none: [null],
  },
  // all jobs of the lease completed: only the lease id, the job ids are in its row
  lease: {
    params: "p_outputs jsonb",
    condition: "p_old is not null",
    rows: `select * from rows from (unnest((select l.job_ids from leases l where l.id = p_old)), jsonb_array_elements(p_outputs)) as s (id, output)`,
    epochless: true,
    pack: (jobs) => [`[${jobs.map((j) => j.output).join(",")}]`],
    none: [null],
  },
};
// ---- output of claimed jobs --------------------------------------------------------------------------------------
export const claimForms = {
  rows: {
    returns: "table (id uuid, epoch bigint, pipeline text, attempt smallint, input jsonb)",
    query: (from) => `return query ${from.with} select ${from.columns} from ${from.table}`,
    unpack: (result) => result.rows,
  },
  // one row, one column: the text of a json array of objects
  json: {
    returns: "json",
    scalar: true,
    query: (from) =>
      `${from.with} select json_agg(json_build_object('id', id, 'epoch', epoch, 'pipeline', pipeline, 'attempt', attempt, 'input', input)) into v_jobs from (select ${from.columns} from ${from.table}) t; return v_jobs`,
    unpack: (result) => result.rows[0].jobs ?? [],
  },
  rowjson: {
    returns: "json",
    scalar: true,
    query: (from) =>
      `${from.with} select json_agg(t) into v_jobs from (select ${from.columns} from ${from.table}) t; return v_jobs`,
    unpack: (result) => result.rows[0].jobs ?? [],
  },
  // arrays of arrays: field names are not repeated
  tuples: {
    returns: "json",
    scalar: true,
    query: (from) =>
      `${from.with} select json_agg(json_build_array(id, epoch, pipeline, attempt, input)) into v_jobs from (select ${from.columns} from ${from.table}) t; return v_jobs`,
    unpack: (result) =>
      (result.rows[0].jobs ?? []).map(([id, epoch, pipeline, attempt, input]) => ({
        id,
        epoch,
        pipeline,
        attempt,
        input,
      })),
  },
};

// Pins one plan for every table size: otherwise the planner uses hash joins over the whole table while it is small, and plans
// each call again.
const pinned = `set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
  set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off`;
function stepFunction({ settle, claim, settlements, claims, pin = true }) {
  return `create function step(p_worker text, p_pool text, p_limit integer, p_new uuid, p_old uuid, ${settlements.params})
  returns ${claims.returns} language plpgsql ${pin === "generic" ? "set plan_cache_mode = force_generic_plan" : pin ? pinned : ""} as $$
  #variable_conflict use_column
  declare v_now timestamptz := now(); v_jobs json;
  begin
    if ${settlements.condition} then
      ${settle}
    end if;
    ${claim};
  end $$;`;
}
const columns = (t) => `${t}.id, ${t}.epoch, ${t}.pipeline, ${t}.attempt, ${t}.input`;

// ---- D1: one hot row; the claim is a HOT update, one lease row per batch -------------------------------------------
export function oneHotRow({
  join = "id",
  fillfactor = 40,
  partitions = false,
  indexes,
  partial = false,
  pin,
  jobIds = "external",
  loose = false,
  settlements = settlementForms.arrays,
  claims = claimForms.rows,
} = {}) {
  const fence = `${settlements.epochless ? "" : "and j.epoch = s.epoch"} and j.lease_id = ${loose ? "p_old" : "s.lease_id"}`;
  return {
    settlements,
    claims,
    tables: ["jobs", "history", "leases"],
    schema:
      `create table jobs (id uuid primary key, ${jobColumns}, ${queueColumns}, ${lease}, ${failure}) with (fillfactor = ${fillfactor});
      ${claimIndex("jobs", partial ? "where lease_id is null" : "")} ${leases} ${history({ partitions, indexes })}` +
      stepFunction({
        settlements,
        claims,
        pin,
        settle: `perform 1 from leases where id = p_old for update;
          with s as materialized (select s.*, p_old as lease_id from (${settlements.rows}) s),
          d as (delete from jobs j using s where j.id = s.id ${fence} returning j.*, s.output)
          ${toHistory("d")};
          delete from leases where id = p_old;`,
        claim: claims.query({
          with: `with c as materialized (
              select ${join} from jobs where pool = p_pool and lease_id is null and run_at <= v_now
               order by priority, run_at, id limit p_limit for update skip locked),
            u as (update jobs j set epoch = j.epoch + 1, attempt = j.attempt + 1, lease_id = p_new, worker = p_worker, claimed_at = v_now
              from c where j.${join} = c.${join} returning ${columns("j")}),
            l as (insert into leases select p_new, p_worker, v_now + interval '30 s', ${jobIds === "none" ? "null" : "array_agg(id)"} from u having count(*) > 0)`,
          columns: columns("u"),
          table: "u",
        }),
      }) +
      (jobIds === "compressed" ? "alter table leases alter column job_ids set storage extended;" : ""),
    fill: `insert into jobs (id, pipeline, pool, input) select ${id7}, 'extraction', 'scan', ${input60} from generate_series($1::int, $2::int) g`,
    past: `insert into history (id, state, started_at, finished_at, keep_until, pipeline, pool, input)
      select ${id7}, 'completed', now(), now(), now() + interval '29 days', 'extraction', 'scan', ${input60} from generate_series($1::int, $2::int) g`,
    hold: `with c as (select id from jobs where pool = 'scan' and lease_id is null order by priority, run_at, id limit $1)
      update jobs j set lease_id = gen_random_uuid(), epoch = epoch + 1, worker = 'other', claimed_at = now() from c where j.id = c.id`,
    finished: "select count(*)::int as n from history",
    left: "select count(*)::int as n from jobs",
  };
}

// ---- D2: cold columns stay in the row of enqueue; narrow queue and result rows -------------------------------
export function split({ settlements = settlementForms.arrays, claims = claimForms.rows } = {}) {
  return {
    settlements,
    claims,
    tables: ["facts", "queue", "results", "leases"],
    schema:
      `create table facts (id uuid primary key, ${jobColumns});
      create table queue (id uuid primary key, ${queueColumns}, ${lease}, ${failure}) with (fillfactor = 33); ${claimIndex("queue")} ${leases}
      create table results (id uuid primary key, state text not null, output jsonb, started_at timestamptz not null, finished_at timestamptz not null,
        epoch bigint not null, attempt smallint not null, worker text, keep_until timestamptz not null, ${failure});` +
      stepFunction({
        settlements,
        claims,
        settle: `perform 1 from leases where id = p_old for update;
          with s as materialized (select s.*, p_old as lease_id from (${settlements.rows}) s),
          d as (delete from queue j using s where j.id = s.id and j.epoch = s.epoch and j.lease_id = s.lease_id returning j.*, s.output)
          insert into results select id, 'completed', output, claimed_at, v_now, epoch, attempt, worker, v_now + interval '29 days', failure from d;
          delete from leases where id = p_old;`,
        claim: claims.query({
          with: `with c as materialized (
              select id from queue where pool = p_pool and lease_id is null and run_at <= v_now
               order by priority, run_at, id limit p_limit for update skip locked),
            u as (update queue j set epoch = j.epoch + 1, attempt = j.attempt + 1, lease_id = p_new, worker = p_worker, claimed_at = v_now
              from c where j.id = c.id returning j.id, j.epoch, j.attempt),
            l as (insert into leases select p_new, p_worker, v_now + interval '30 s', array_agg(id) from u having count(*) > 0)`,
          columns: "u.id, u.epoch, f.pipeline, u.attempt, f.input",
          table: "u join facts f on f.id = u.id",
        }),
      }),
    fill: `with f as (insert into facts (id, pipeline, input) select ${id7}, 'extraction', ${input60} from generate_series($1::int, $2::int) g returning id)
      insert into queue (id, pool) select id, 'scan' from f`,
    past: `with f as (insert into facts (id, pipeline, input) select ${id7}, 'extraction', ${input60} from generate_series($1::int, $2::int) g returning id)
      insert into results (id, state, started_at, finished_at, epoch, attempt, keep_until) select id, 'completed', now(), now(), 1, 1, now() from f`,
    hold: `with c as (select id from queue where pool = 'scan' and lease_id is null order by priority, run_at, id limit $1)
      update queue j set lease_id = gen_random_uuid(), epoch = epoch + 1, worker = 'other', claimed_at = now() from c where j.id = c.id`,
    finished: "select count(*)::int as n from results",
    left: "select count(*)::int as n from queue",
  };
}

// ---- D3: move ready -> running -> history -----------------------------------------------------------------------------
export function move({ settlements = settlementForms.arrays, claims = claimForms.rows, join = "id" } = {}) {
  const moved =
    "id, pipeline, input, created_at, key, tenant, expires_at, parent_id, pool, priority, run_at, attempt, epoch, failure";
  return {
    settlements,
    claims,
    tables: ["ready", "running", "history", "leases"],
    schema:
      `create table ready (id uuid primary key, ${jobColumns}, ${queueColumns}, ${failure}); ${claimIndex("ready")}
      create table running (id uuid primary key, ${jobColumns}, ${queueColumns}, ${lease}, ${failure}); ${leases} ${history()}` +
      stepFunction({
        settlements,
        claims,
        settle: `perform 1 from leases where id = p_old for update;
          with s as materialized (select s.*, p_old as lease_id from (${settlements.rows}) s),
          d as (delete from running j using s where j.id = s.id and j.epoch = s.epoch and j.lease_id = s.lease_id returning j.*, s.output)
          ${toHistory("d")};
          delete from leases where id = p_old;`,
        claim: claims.query({
          with: `with c as materialized (
              select ${join} from ready where pool = p_pool and run_at <= v_now order by priority, run_at, id limit p_limit for update skip locked),
            m as (delete from ready j using c where j.${join} = c.${join} returning j.*),
            u as (insert into running (${moved}, lease_id, worker, claimed_at)
              select id, pipeline, input, created_at, key, tenant, expires_at, parent_id, pool, priority, run_at, attempt + 1, epoch + 1, failure, p_new, p_worker, v_now from m
              returning ${columns("running")}),
            l as (insert into leases select p_new, p_worker, v_now + interval '30 s', array_agg(id) from u having count(*) > 0)`,
          columns: columns("u"),
          table: "u",
        }),
      }),
    fill: `insert into ready (id, pipeline, pool, input) select ${id7}, 'extraction', 'scan', ${input60} from generate_series($1::int, $2::int) g`,
    past: oneHotRow().past,
    hold: `with c as (select id from ready where pool = 'scan' order by priority, run_at, id limit $1),
      m as (delete from ready j using c where j.id = c.id returning j.*)
      insert into running (${moved}, lease_id, worker, claimed_at) select ${moved}, gen_random_uuid(), 'other', now() from m`,
    finished: "select count(*)::int as n from history",
    left: "select (select count(*) from ready)::int + (select count(*) from running)::int as n",
  };
}

// ---- D4: lease expiry in every job row, indexed: the claim is not a HOT update ------------------------------------------------
export function leasePerJob({ settlements = settlementForms.arrays, claims = claimForms.rows } = {}) {
  const d1 = oneHotRow({ settlements, claims });
  return {
    ...d1,
    schema:
      `create table jobs (id uuid primary key, ${jobColumns}, ${queueColumns}, ${lease}, lease_until timestamptz, ${failure}) with (fillfactor = 50);
      ${claimIndex("jobs")} create index on jobs (lease_until) where lease_until is not null; ${history()}` +
      stepFunction({
        settlements,
        claims,
        settle: `with s as materialized (select s.*, p_old as lease_id from (${settlements.rows}) s),
          d as (delete from jobs j using s where j.id = s.id and j.epoch = s.epoch and j.lease_id = s.lease_id returning j.*, s.output)
          ${toHistory("d")};`,
        claim: claims.query({
          with: `with c as materialized (
              select id from jobs where pool = p_pool and lease_id is null and run_at <= v_now
               order by priority, run_at, id limit p_limit for update skip locked),
            u as (update jobs j set epoch = j.epoch + 1, attempt = j.attempt + 1, lease_id = p_new, worker = p_worker, claimed_at = v_now,
                lease_until = v_now + interval '30 s' from c where j.id = c.id returning ${columns("j")})`,
          columns: columns("u"),
          table: "u",
        }),
      }),
    hold: d1.hold.replace("worker = 'other'", "worker = 'other', lease_until = now() + interval '1 h'"),
  };
}

// ---- D0: upper bound: no fence, no history ------------------------------------------------------------------------------
export function bare({ settlements = settlementForms.arrays, claims = claimForms.rows } = {}) {
  return {
    ...oneHotRow(),
    settlements,
    claims,
    schema:
      `create table jobs (id uuid primary key, ${jobColumns}, ${queueColumns}, ${lease}, ${failure}) with (fillfactor = 40); ${claimIndex("jobs")}` +
      stepFunction({
        settlements,
        claims,
        settle: "delete from jobs where id = any (p_ids);",
        claim: claims.query({
          with: `with c as materialized (
              select id from jobs where pool = p_pool and lease_id is null and run_at <= v_now
               order by priority, run_at, id limit p_limit for update skip locked),
            u as (update jobs j set lease_id = p_new, claimed_at = v_now from c where j.id = c.id returning ${columns("j")})`,
          columns: columns("u"),
          table: "u",
        }),
      }),
    finished: null,
    past: null,
  };
}
