// How an extraction begins and ends in the application's own tables. The end is one transaction with the checkpoint of its step: whoever looks sees the findings
// of one extraction, whole, and never those of two.
import type pg from "pg";
import type { Output } from "./contract.ts";
import type { Exploitation, Finding, Vulnerability } from "./model.ts";
import type { Report } from "./reports/reports.ts";

export interface Found {
  /** Undefined: nobody could look, and what was known stays. */
  vulnerabilities: Vulnerability[] | undefined;
  exploited: Record<string, Exploitation>;
  code: Finding[] | undefined;
  secrets: Finding[] | undefined;
  reports: Report[];
  result: Output;
}

/** An attempt has begun. Repeated by every attempt, and of no weight: the engine knows better. */
export async function begin(pool: pg.Pool, extractionId: string, projectId: string): Promise<void> {
  await pool.query(
    `with this as (
       insert into extraction.extractions (id, project_id, status, started_at) values ($1, $2, 'running', now())
       on conflict (id) do update set status = 'running', started_at = coalesce(extractions.started_at, now()), error = null, ended_at = null, recorded_at = null
         where extractions.status <> 'completed'
     )
     update extraction.repositories set status = 'extracting', error = null, extraction_id = $1, updated_at = now() where project_id = $2`,
    [extractionId, projectId],
  );
}

/** Answers how long it took, from the beginning of its first attempt. */
export async function complete(
  tx: pg.PoolClient,
  extractionId: string,
  projectId: string,
  found: Found,
): Promise<number> {
  if (found.vulnerabilities)
    await replaceVulnerabilities(tx, extractionId, projectId, found.vulnerabilities, found.exploited);
  if (found.code) await replaceFindings(tx, extractionId, projectId, "code", found.code);
  if (found.secrets) await replaceFindings(tx, extractionId, projectId, "secret", found.secrets);
  for (const { name, size, sha256 } of found.reports) {
    await tx.query(
      `insert into extraction.reports (extraction_id, name, size, sha256) values ($1, $2, $3, $4)
       on conflict (extraction_id, name) do update set size = excluded.size, sha256 = excluded.sha256`,
      [extractionId, name, size, sha256],
    );
  }
  const { result } = found;
  const { rows } = await tx.query(
    `update extraction.extractions set status = 'completed', error = null, commit = $2, summary = $3, ended_at = now() where id = $1
     returning round(extract(epoch from now() - coalesce(started_at, now())) * 1000)::float as took`,
    [extractionId, result.commit, JSON.stringify(result)],
  );
  await tx.query(
    `update extraction.repositories set status = 'ready', error = null, commit = $2, updated_at = now() where project_id = $1`,
    [projectId, result.commit],
  );
  return rows[0]?.took ?? 0;
}

/** Those that are still there keep the day they were first seen. */
async function replaceVulnerabilities(
  tx: pg.PoolClient,
  extractionId: string,
  projectId: string,
  found: readonly Vulnerability[],
  exploited: Record<string, Exploitation>,
): Promise<void> {
  for (const part of partsOf(found)) {
    const rows = part.map((one) => ({ ...one, ...(one.cve ? exploited[one.cve] : undefined) }));
    await tx.query(
      `insert into extraction.vulnerabilities
         (project_id, extraction_id, id, purl, name, version, aliases, cve, severity, score, summary, fixed, reachable, source, url, epss, percentile, kev)
       select $1, $2, r.id, r.purl, r.name, r.version, r.aliases, r.cve, r.severity, r.score, r.summary, r.fixed, r.reachable, r.source, r.url, r.epss, r.percentile, r.kev
       from jsonb_to_recordset($3) as r (id text, purl text, name text, version text, aliases text[], cve text, severity text, score double precision, summary text,
         fixed text[], reachable boolean, source text, url text, epss double precision, percentile double precision, kev jsonb)
       on conflict (project_id, id, purl) do update set extraction_id = excluded.extraction_id, aliases = excluded.aliases, cve = excluded.cve,
         severity = excluded.severity, score = excluded.score, summary = excluded.summary, fixed = excluded.fixed, reachable = excluded.reachable,
         source = excluded.source, url = excluded.url, epss = excluded.epss, percentile = excluded.percentile, kev = excluded.kev`,
      [projectId, extractionId, JSON.stringify(rows)],
    );
  }
  await tx.query("delete from extraction.vulnerabilities where project_id = $1 and extraction_id <> $2", [
    projectId,
    extractionId,
  ]);
}

async function replaceFindings(
  tx: pg.PoolClient,
  extractionId: string,
  projectId: string,
  kind: Finding["kind"],
  found: readonly Finding[],
): Promise<void> {
  for (const part of partsOf(found)) {
    await tx.query(
      `insert into extraction.findings (project_id, extraction_id, fingerprint, kind, rule, severity, path, line, end_line, message, cwe, engine)
       select $1, $2, r.fingerprint, $4, r.rule, r.severity, r.path, r.line, r."endLine", r.message, r.cwe, r.engine
       from jsonb_to_recordset($3) as r (fingerprint text, rule text, severity text, path text, line integer, "endLine" integer, message text, cwe text[], engine text)
       on conflict (project_id, kind, fingerprint) do update set extraction_id = excluded.extraction_id, rule = excluded.rule, severity = excluded.severity,
         path = excluded.path, line = excluded.line, end_line = excluded.end_line, message = excluded.message, cwe = excluded.cwe, engine = excluded.engine`,
      [projectId, extractionId, JSON.stringify(part), kind],
    );
  }
  await tx.query("delete from extraction.findings where project_id = $1 and kind = $3 and extraction_id <> $2", [
    projectId,
    extractionId,
    kind,
  ]);
}

function* partsOf<One>(rows: readonly One[]): Iterable<readonly One[]> {
  for (let at = 0; at < rows.length; at += 1000) yield rows.slice(at, at + 1000);
}
