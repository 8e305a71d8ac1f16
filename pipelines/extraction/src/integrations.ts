// Credentials of GitLab and Bitbucket accounts. They are sealed before they are stored, with keys that only the server and
// the workers have, and are never returned. A job gets the credential that is stored when it is enqueued.
import { notFound, Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { type SealKeys, seal } from "stillwake";
import { extraction, type Input, PROVIDER_NAMES, type Provider } from "./contract.ts";
import type { CredentialChange, NewIntegration } from "./web/requests.ts";

export interface Integration {
  id: string;
  provider: "gitlab" | "bitbucket";
  name: string;
  createdAt: Date;
}

const COLUMNS = `id, provider, name, created_at as "createdAt"`;
/** Number of projects named in the message that an integration is in use. */
const MAX_NAMED = 3;

export async function createIntegration(
  pool: pg.Pool,
  organization: string,
  { provider, name, credential }: NewIntegration,
  sealKeys: SealKeys | string | undefined,
): Promise<Integration> {
  const { rows } = await pool.query(
    `insert into extraction.integrations (organization_id, provider, name, credential) values ($1, $2, $3, $4) returning ${COLUMNS}`,
    [organization, provider, name, sealCredential(credential, organization, sealKeys)],
  );
  return rows[0];
}

export async function replaceCredential(
  pool: pg.Pool,
  organization: string,
  id: string,
  { credential, name }: CredentialChange,
  sealKeys: SealKeys | string | undefined,
): Promise<Integration> {
  const { rows } = await pool.query(
    `update extraction.integrations set credential = $3, name = coalesce($4, name) where id = $1 and organization_id = $2 returning ${COLUMNS}`,
    [id, organization, sealCredential(credential, organization, sealKeys), name],
  );
  if (rows.length === 0) throw notFound("integration");
  return rows[0];
}

export async function listIntegrations(pool: pg.Pool, organization: string): Promise<Integration[]> {
  const { rows } = await pool.query(
    `select ${COLUMNS} from extraction.integrations where organization_id = $1 order by created_at desc limit 200`,
    [organization],
  );
  return rows;
}

/** Throws if it belongs to another provider or organization. Locks the row until the transaction ends. */
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
  throw new Refusal(400, "INVALID_INPUT", `integrationId: is not an integration of ${PROVIDER_NAMES[provider]}`, {
    field: "integrationId",
    remedy: "Create one in Organization Settings (POST /integrations), or choose an existing one",
  });
}

export async function deleteIntegration(tx: pg.PoolClient, organization: string, id: string): Promise<void> {
  // A concurrent checkIntegration() waits for this lock and then finds no row.
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
  if (rows.length > 0) throw inUseRefusal(rows);
  await tx.query("delete from extraction.integrations where id = $1", [id]);
}

function inUseRefusal(rows: { name: string; number: number }[]): Refusal {
  const number = rows[0]!.number;
  const names = rows.map(({ name }) => name).join(", ");
  const more = number > rows.length ? ` and ${number - rows.length} more` : "";
  const users = number === 1 ? "A project uses" : `${number} projects use`;
  return new Refusal(409, "INTEGRATION_IN_USE", `${users} this integration: ${names}${more}`, {
    remedy:
      "Choose another integration, or none, in their settings first (PATCH /projects/:id), or replace its credential",
  });
}

/** The sealed value is bound to this pipeline and organization: it cannot be opened in a row of another one. */
function sealCredential(credential: string, organization: string, sealKeys: SealKeys | string | undefined): string {
  if (!sealKeys) {
    throw new Refusal(409, "NO_SEAL_KEYS", "The server has no keys to seal credentials", {
      remedy:
        "Set STILLWAKE_SEAL_KEYS for the server and the workers: k1: followed by the output of `openssl rand -base64 32`",
    });
  }
  return JSON.stringify(seal(extraction, { credential } as Input, { sealKeys, tenant: organization }).credential);
}
