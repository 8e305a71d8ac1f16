// Credentials of GitLab and Bitbucket accounts. They are sealed before they are stored, with keys that only enqueuers and workers have, and are given back to nobody.
// A job gets what is stored when it is enqueued: one that is replaced counts from the next extraction on.

import { Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { type SealKeys, seal } from "stillwake";
import { extraction, type Input, PROVIDER_NAMES, type Provider } from "./contract.ts";
import { notFound } from "./web/not-found.ts";
import type { NewIntegration, ReplacedCredential } from "./web/requests.ts";

export interface Integration {
  id: string;
  provider: "gitlab" | "bitbucket";
  name: string;
  createdAt: Date;
}

const SHOWN = `id, provider, name, created_at as "createdAt"`;
/** So many projects are named to whoever would take their integration away. */
const MAX_NAMED = 3;

export async function createIntegration(
  pool: pg.Pool,
  organization: string,
  { provider, name, credential }: NewIntegration,
  sealKeys: SealKeys | string | undefined,
): Promise<Integration> {
  const { rows } = await pool.query(
    `insert into extraction.integrations (organization_id, provider, name, credential) values ($1, $2, $3, $4) returning ${SHOWN}`,
    [organization, provider, name, sealed(credential, organization, sealKeys)],
  );
  return rows[0];
}

export async function replaceCredential(
  pool: pg.Pool,
  organization: string,
  id: string,
  { credential, name }: ReplacedCredential,
  sealKeys: SealKeys | string | undefined,
): Promise<Integration> {
  const { rows } = await pool.query(
    `update extraction.integrations set credential = $3, name = coalesce($4, name) where id = $1 and organization_id = $2 returning ${SHOWN}`,
    [id, organization, sealed(credential, organization, sealKeys), name],
  );
  if (rows.length === 0) throw notFound("integration");
  return rows[0];
}

export async function listIntegrations(pool: pg.Pool, organization: string): Promise<Integration[]> {
  const { rows } = await pool.query(
    `select ${SHOWN} from extraction.integrations where organization_id = $1 order by created_at desc limit 200`,
    [organization],
  );
  return rows;
}

/** Refuses one of another provider or of somebody else; this one stays until the transaction ends. */
export async function checkIntegration(
  tx: pg.PoolClient,
  organization: string,
  provider: Provider,
  id: string,
): Promise<void> {
  const { rows } = await tx.query(
    "select provider from extraction.integrations where id = $1 and organization_id = $2 for share",
    [id, organization],
  );
  if (rows[0]?.provider === provider) return;
  throw new Refusal(400, "INVALID_INPUT", `integrationId: is no integration of ${PROVIDER_NAMES[provider]}`, {
    field: "integrationId",
    remedy: "Store one in Organization Settings (POST /integrations), or choose one of those",
  });
}

export async function deleteIntegration(tx: pg.PoolClient, organization: string, id: string): Promise<void> {
  // Whoever is about to choose it waits here, and finds it gone.
  const { rowCount } = await tx.query(
    "select from extraction.integrations where id = $1 and organization_id = $2 for update",
    [id, organization],
  );
  if (rowCount === 0) throw notFound("integration");
  const { rows } = await tx.query(
    `select p.name, count(*) over ()::integer as number from extraction.repositories r join extraction.projects p on p.id = r.project_id
     where r.integration_id = $1 order by p.name, p.id limit ${MAX_NAMED}`,
    [id],
  );
  if (rows.length > 0) throw inUse(rows);
  await tx.query("delete from extraction.integrations where id = $1", [id]);
}

function inUse(rows: { name: string; number: number }[]): Refusal {
  const number = rows[0]!.number;
  const names = rows.map(({ name }) => name).join(", ");
  const more = number > rows.length ? ` and ${number - rows.length} more` : "";
  const who = number === 1 ? "A project uses" : `${number} projects use`;
  return new Refusal(409, "INTEGRATION_IN_USE", `${who} this integration: ${names}${more}`, {
    remedy:
      "Choose another integration, or none, in their settings first (PATCH /projects/:id), or replace its credential",
  });
}

/** As it is stored: bound to this pipeline and this organization, copied into a row of another one it does not open. */
function sealed(credential: string, organization: string, sealKeys: SealKeys | string | undefined): string {
  if (!sealKeys) {
    throw new Refusal(409, "NO_SEAL_KEYS", "This server has no key to seal credentials with", {
      remedy:
        "Set STILLWAKE_SEAL_KEYS for the server and its workers, such as k1: and what `openssl rand -base64 32` prints",
    });
  }
  return JSON.stringify(seal(extraction, { credential } as Input, { sealKeys, tenant: organization }).credential);
}
