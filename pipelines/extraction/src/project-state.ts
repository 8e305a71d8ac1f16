// An extraction in relation to its project: it writes nothing for a deleted project and overwrites no results of a later
// extraction (an operator can retry an old job at any time). Also records which extraction each list comes from.
import { userError } from "@stillwake/kit/failures";
import type pg from "pg";
import type { Coverage } from "./model.ts";

export interface ExtractionRef {
  projectId: string;
  extractionId: string;
}

export type ListName = "dependencies" | "vulnerabilities" | "code" | "secrets";

/** Where a list comes from. */
export interface ListSource {
  extraction: string;
  at: string;
  /** Of the vulnerabilities: how many dependencies were checked. */
  coverage?: Coverage;
}

/** A list that is absent was never scanned. */
export type ListSources = Partial<Record<ListName, ListSource>>;

/** Whether a later extraction has stored results. None can do so concurrently: a project has one active job at a time. */
export async function isSuperseded(tx: pg.PoolClient, { extractionId }: ExtractionRef): Promise<boolean> {
  const { rows } = await tx.query(
    `select exists (
       select from extraction.extractions this join extraction.extractions later on later.project_id = this.project_id
       where this.id = $1 and (later.created_at, later.id) > (this.created_at, this.id) and later.summary is not null
     ) as superseded`,
    [extractionId],
  );
  return rows[0].superseded;
}

/** Call it in the transaction that replaces the lists. */
export async function recordListSources(
  tx: pg.PoolClient,
  { projectId, extractionId }: ExtractionRef,
  lists: Partial<Record<ListName, Pick<ListSource, "coverage">>>,
): Promise<void> {
  await tx.query(
    `update extraction.repositories r set looked = r.looked || (
       select coalesce(jsonb_object_agg(l.key, l.value || jsonb_build_object('extraction', $2::uuid, 'at', now())), '{}') from jsonb_each($3::jsonb) l
     ) where r.project_id = $1`,
    [projectId, extractionId, JSON.stringify(lists)],
  );
}

/** A violated foreign key means that the project was deleted: fatal, because no retry changes that. */
export async function failIfProjectDeleted<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if ((error as { code?: unknown }).code !== "23503") throw error;
    throw userError("The project was deleted", { code: "PROJECT_GONE", fatal: true, cause: error });
  }
}
