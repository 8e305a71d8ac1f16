// One file per peer, all with the same few functions:
//   install(url)          the peer's tables in an empty database
//   producer(url)         one(data), many(list), close()
//   worker(url, handle)   begins to work; handle(data) is the job and answers nothing. stop()
//   judge(url)            what the store itself says: busy() while a job waits or runs, counts() of jobs open and ended, close()
import pg from "pg";

export const peers = {
  stillwake: { title: "Stillwake", store: "postgres", package: undefined },
  graphile: { title: "graphile", store: "postgres", package: "graphile-worker" },
  "pg-boss": { title: "pg-boss", store: "postgres", package: "pg-boss" },
  bullmq: { title: "BullMQ", store: "redis", package: "bullmq" },
  "bullmq-synced": { title: "BullMQ, synced", store: "redis", package: "bullmq" },
  bare: { title: "bare SQL", store: "postgres", package: undefined },
};

export function loadPeer(name) {
  return import(new URL(`${name}.mjs`, import.meta.url));
}

/** A judge of one statement for the jobs that wait or run, and one for those that ended where a peer keeps them. */
export function sqlJudge(url, open, ended) {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  pool.on("error", () => {});
  const one = async (text) => Object.values((await pool.query(text)).rows[0])[0];
  return {
    busy: () => one(`select exists (select ${open})`),
    counts: async () => ({
      open: Number(await one(`select count(*) ${open}`)),
      ended: ended ? Number(await one(`select count(*) ${ended}`)) : undefined,
    }),
    close: () => pool.end(),
  };
}
