// The step "deps_sync": stores the dependencies of the SBOM in the application's tables, in one transaction with the
// checkpoint of the step. Repeating it changes nothing.
import { inTransaction, isDatabaseError } from "@stillwake/kit/database";
import { userError } from "@stillwake/kit/failures";
import type pg from "pg";
import type { Dependency } from "./model.ts";
import { type ExtractionRef, failIfProjectDeleted, isSuperseded, recordListSources } from "./project-state.ts";
import { readBom } from "./sbom/components.ts";

export interface SyncResult {
  direct: number;
  transitive: number;
  /** A later extraction has stored its dependencies, which stay. */
  superseded: boolean;
}

/** Rows per statement. */
const BATCH = 1000;

export async function syncDependencies(tx: pg.PoolClient, ref: ExtractionRef, sbomFile: string): Promise<SyncResult> {
  // Sorted by package URL, so that two transactions lock the same rows in the same order and cannot deadlock.
  const { dependencies } = await readBom(sbomFile);
  const direct = dependencies.filter((dependency) => dependency.direct).length;
  const superseded = await isSuperseded(tx, ref);
  if (!superseded) await failIfProjectDeleted(replaceDependencies(tx, ref, dependencies));
  return { direct, transitive: dependencies.length - direct, superseded };
}

async function replaceDependencies(
  tx: pg.PoolClient,
  ref: ExtractionRef,
  dependencies: readonly Dependency[],
): Promise<void> {
  const { projectId, extractionId } = ref;
  for (let at = 0; at < dependencies.length; at += BATCH) {
    await storeBatch(tx, ref, dependencies.slice(at, at + BATCH));
  }
  await tx.query("delete from extraction.dependencies where project_id = $1 and extraction_id <> $2", [
    projectId,
    extractionId,
  ]);
  await recordListSources(tx, ref, { dependencies: {} });
}

/** Rows that still exist keep first_seen_at. */
async function storeBatch(
  tx: pg.PoolClient,
  { projectId, extractionId }: ExtractionRef,
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
 * A transaction for job.tx() that explains database errors, from the connection to COMMIT. If only the response to COMMIT was
 * lost, job.tx() finds the checkpoint and continues.
 */
export function explainDatabaseErrors(pool: pg.Pool): (run: (tx: pg.PoolClient) => Promise<unknown>) => Promise<void> {
  return async (run) => {
    try {
      await inTransaction(pool, run);
    } catch (error) {
      if (!isDatabaseError(error)) throw error;
      throw userError("Database connection error during sync - will retry", { code: "SYNC_DATABASE", cause: error });
    }
  };
}
