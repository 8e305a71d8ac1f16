// The dependencies of a project in the application's tables, as the bill of materials has them. It is one transaction with the checkpoint of its step:
// what another attempt finds is all of it or nothing, and doing it again changes nothing.

import { tell } from "@stillwake/kit/user-error";
import type pg from "pg";
import type { Dependency } from "./model.ts";
import { isSuperseded, noteLooked, type Standing, unlessGone } from "./project-state.ts";
import { readBom } from "./sbom/components.ts";

export interface Synced {
  direct: number;
  transitive: number;
  /** A later extraction has stored its own, and they stay. */
  superseded: boolean;
}

/** Small enough for a statement of a moment, large enough that 50,000 components are 50 of them. */
const BATCH = 1000;

export async function syncDependencies(tx: pg.PoolClient, standing: Standing, sbomFile: string): Promise<Synced> {
  // Sorted by package URL, so that two transactions on the same rows wait for one another instead of both failing.
  const { dependencies } = await readBom(sbomFile);
  const direct = dependencies.filter((one) => one.direct).length;
  const superseded = await isSuperseded(tx, standing);
  if (!superseded) await unlessGone(replace(tx, standing, dependencies));
  return { direct, transitive: dependencies.length - direct, superseded };
}

async function replace(tx: pg.PoolClient, standing: Standing, dependencies: readonly Dependency[]): Promise<void> {
  const { projectId, extractionId } = standing;
  for (let at = 0; at < dependencies.length; at += BATCH) {
    await store(tx, standing, dependencies.slice(at, at + BATCH));
  }
  await tx.query("delete from extraction.dependencies where project_id = $1 and extraction_id <> $2", [
    projectId,
    extractionId,
  ]);
  await noteLooked(tx, standing, ["dependencies"]);
}

/** Those that are still there keep the day they were first seen. */
async function store(
  tx: pg.PoolClient,
  { projectId, extractionId }: Standing,
  batch: readonly Dependency[],
): Promise<void> {
  await tx.query(
    `insert into extraction.dependencies (project_id, extraction_id, purl, name, version, ecosystem, direct, scope, licenses)
     select $1, $2, r.purl, r.name, r.version, r.ecosystem, r.direct, r.scope, r.licenses
     from jsonb_to_recordset($3) as r (purl text, name text, version text, ecosystem text, direct boolean, scope text, licenses text[])
     on conflict (project_id, purl) do update set extraction_id = excluded.extraction_id, name = excluded.name, version = excluded.version,
       ecosystem = excluded.ecosystem, direct = excluded.direct, scope = excluded.scope, licenses = excluded.licenses`,
    [projectId, extractionId, JSON.stringify(batch)],
  );
}

/**
 * A transaction for job.tx(), whose trouble with the database is told as what it is: from getting a connection to the answer to COMMIT. If it was that
 * answer that got lost, job.tx() finds the checkpoint and goes on.
 */
export function reaching(pool: pg.Pool): (run: (tx: pg.PoolClient) => Promise<unknown>) => Promise<void> {
  return async (run) => {
    try {
      await within(pool, run);
    } catch (error) {
      if (!isTrouble(error)) throw error;
      throw tell("Database connection error during sync - will retry", { code: "SYNC_DATABASE", cause: error });
    }
  };
}

async function within(pool: pg.Pool, run: (tx: pg.PoolClient) => Promise<unknown>): Promise<void> {
  let broken: Error | undefined;
  const onError = (error: Error) => {
    broken = error;
  };
  const client = await taken(pool, onError);
  try {
    await client.query("begin");
    await run(client);
    await client.query("commit");
  } catch (error) {
    await client.query("rollback").catch((failed: Error) => {
      broken = failed;
    });
    throw error;
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}

/** Listened to from the moment it is taken: a connection can break before whoever asked for it gets it, and an error nobody hears ends the process. */
function taken(pool: pg.Pool, onError: (error: Error) => void): Promise<pg.PoolClient> {
  return new Promise((resolve, reject) => {
    pool.connect((error, client) => {
      if (!client) return reject(error);
      client.on("error", onError);
      resolve(client);
    });
  });
}

/**
 * The database, and not what we asked of it: no connection, a lost one (08), a server that shuts down, starts or cancels (57), has no room (53) or met
 * another transaction (40), a disk that fails (58).
 */
function isTrouble(thrown: unknown): boolean {
  const { code, message, errors } = thrown as { code?: unknown; message?: unknown; errors?: unknown[] };
  if (errors?.some(isTrouble)) return true;
  if (typeof code === "string") {
    return /^(?:08|40|53|57|58)\w{3}$|^(?:ECONN\w+|E(?:PIPE|TIMEDOUT|NOTFOUND|AI_AGAIN|HOSTUNREACH|HOSTDOWN|NETUNREACH|NETDOWN))$/.test(
      code,
    );
  }
  return /Connection terminated|timeout exceeded when trying to connect|Query read timeout|connection error|not queryable/.test(
    String(message),
  );
}
