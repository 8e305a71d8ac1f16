// Credentials of GitLab and Bitbucket accounts. They are sealed before they are stored, with keys that only enqueuers and workers have, and are given back to nobody.

import { Refusal } from "@stillwake/kit/web/problems";
import type pg from "pg";
import { type SealKeys, seal } from "stillwake";
import { extraction, type Input } from "./contract.ts";
import type { NewIntegration } from "./web/requests.ts";

export interface Integration {
  id: string;
  provider: "gitlab" | "bitbucket";
  name: string;
  createdAt: Date;
}

const SHOWN = `id, provider, name, created_at as "createdAt"`;

export async function createIntegration(
  pool: pg.Pool,
  organization: string,
  { provider, name, credential }: NewIntegration,
  sealKeys: SealKeys | string | undefined,
): Promise<Integration> {
  if (!sealKeys) {
    throw new Refusal(409, "NO_SEAL_KEYS", "This server has no key to seal credentials with", {
      remedy:
        "Set STILLWAKE_SEAL_KEYS for the server and its workers, such as k1: and what `openssl rand -base64 32` prints",
    });
  }
  // Bound to this pipeline and this organization: copied into a row of another one it does not open.
  const sealed = seal(extraction, { credential } as Input, { sealKeys, tenant: organization });
  const { rows } = await pool.query(
    `insert into extraction.integrations (organization_id, provider, name, credential) values ($1, $2, $3, $4) returning ${SHOWN}`,
    [organization, provider, name, JSON.stringify(sealed.credential)],
  );
  return rows[0];
}

export async function listIntegrations(pool: pg.Pool, organization: string): Promise<Integration[]> {
  const { rows } = await pool.query(
    `select ${SHOWN} from extraction.integrations where organization_id = $1 order by created_at desc limit 200`,
    [organization],
  );
  return rows;
}
