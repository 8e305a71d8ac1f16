// Where an extraction stands among those of its project: it writes nothing for a project that is gone, and nothing over what a later one has stored. Somebody can
// retry an old one on the dashboard at any time. Beside each list stands whose it is, for the page to say how old it is.

import { tell } from "@stillwake/kit/user-error";
import type pg from "pg";

/** One extraction, of one project. */
export interface Standing {
  projectId: string;
  extractionId: string;
}

export type List = "dependencies" | "vulnerabilities" | "code" | "secrets";

/** Which extraction each list is of, and since when. What is not in here nobody has looked for. */
export type Looked = Partial<Record<List, { extraction: string; at: string }>>;

/** A later one has stored what it found. The engine lets a project have one at a time, so that none does so meanwhile. */
export async function isSuperseded(tx: pg.PoolClient, { extractionId }: Standing): Promise<boolean> {
  const { rows } = await tx.query(
    `select exists (
       select from extraction.extractions this join extraction.extractions later on later.project_id = this.project_id
       where this.id = $1 and (later.created_at, later.id) > (this.created_at, this.id) and later.summary is not null
     ) as superseded`,
    [extractionId],
  );
  return rows[0].superseded;
}

/** In the transaction that replaces them. */
export async function noteLooked(
  tx: pg.PoolClient,
  { projectId, extractionId }: Standing,
  lists: readonly List[],
): Promise<void> {
  await tx.query(
    `update extraction.repositories r set looked = r.looked || (select coalesce(jsonb_object_agg(l, jsonb_build_object('extraction', $2::uuid, 'at', now())), '{}') from unnest($3::text[]) l)
     where r.project_id = $1`,
    [projectId, extractionId, lists],
  );
}

/** Every row is of a project, and a row that refers to none says that it was deleted: no attempt changes that. */
export async function unlessGone<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if ((error as { code?: unknown }).code !== "23503") throw error;
    throw tell("The project was deleted", { code: "PROJECT_GONE", fatal: true, cause: error });
  }
}
