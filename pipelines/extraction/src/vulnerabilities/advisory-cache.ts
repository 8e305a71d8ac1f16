// Keeps advisories of OSV.dev in the database, so that all workers and later extractions fetch only those that have changed.
import type pg from "pg";
import type { Advisory } from "./advisories.ts";

/** Raise it when the type Advisory changes: stored advisories are then fetched again. */
const FORMAT = 1;
/** About 30 MB. */
const MAX_ADVISORIES = 20_000;
/** Larger ones are fetched each time. */
const MAX_BYTES = 32 * 1024;

/** The stored advisories among these that have not changed, by id. `modified`: the current text by id. */
export async function readCachedAdvisories(
  pool: pg.Pool,
  modified: ReadonlyMap<string, string>,
): Promise<Map<string, Advisory>> {
  const { rows } = await pool.query<{ id: string; advisory: Advisory }>(
    `select a.id, a.advisory from unnest($1::text[], $2::text[]) as wanted (id, modified)
     join extraction.advisories a on a.id = wanted.id and a.modified = wanted.modified and a.format = $3`,
    [[...modified.keys()], [...modified.values()], FORMAT],
  );
  if (rows.length > 0) {
    // At most one write per advisory and day.
    await pool.query(
      "update extraction.advisories set used_on = current_date where id = any ($1) and used_on < current_date",
      [rows.map(({ id }) => id)],
    );
  }
  return new Map(rows.map(({ id, advisory }) => [id, advisory]));
}

export interface FetchedAdvisory {
  id: string;
  modified: string;
  advisory: Advisory;
}

export async function storeAdvisories(
  pool: pg.Pool,
  fetched: readonly FetchedAdvisory[],
  { max = MAX_ADVISORIES } = {},
): Promise<void> {
  const rows = fetched
    // The versions of a package may be thousands; OSV.dev has already compared them.
    .map(({ advisory, ...key }) => ({
      ...key,
      advisory: { ...advisory, affected: advisory.affected.map((affected) => ({ ...affected, versions: [] })) },
    }))
    .filter(({ modified, advisory }) => modified !== "" && Buffer.byteLength(JSON.stringify(advisory)) <= MAX_BYTES)
    // Concurrent extractions lock the rows in the same order.
    .sort((a, b) => (a.id < b.id ? -1 : 1));
  if (rows.length === 0) return;
  for (let at = 0; at < rows.length; at += 500) {
    await pool.query(
      `insert into extraction.advisories (id, modified, format, advisory)
       select r.id, r.modified, $2, r.advisory from jsonb_to_recordset($1) as r (id text, modified text, advisory jsonb)
       on conflict (id) do update set modified = excluded.modified, format = excluded.format, advisory = excluded.advisory,
         used_on = current_date`,
      [JSON.stringify(rows.slice(at, at + 500)), FORMAT],
    );
  }
  await pool.query(
    "delete from extraction.advisories where id in (select id from extraction.advisories order by used_on desc, id desc offset $1)",
    [max],
  );
}
