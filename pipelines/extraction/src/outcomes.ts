// How an extraction begins and ends in the application's own tables. The end is one transaction with the checkpoint of its step: whoever looks sees the findings
// of one extraction, whole, and never those of two.
import type pg from "pg";
import type { Output } from "./contract.ts";
import type { Exploitation, Exploited, Finding, Vulnerability } from "./model.ts";
import { isSuperseded, type List, noteLooked, type Standing, unlessGone } from "./project-state.ts";
import type { Report } from "./reports/reports.ts";

export interface Found {
  /** Undefined: nobody could look, and what was known stays. */
  vulnerabilities: Vulnerability[] | undefined;
  /** Undefined: no feed was asked, and what is known of a CVE stays. */
  exploited: Exploited | undefined;
  code: Finding[] | undefined;
  secrets: Finding[] | undefined;
  reports: Report[];
  result: Output;
}

export interface Ended {
  /** From the beginning of its first attempt, or of the first since somebody retried it. */
  tookMs: number;
  /** A later one has stored its findings, and they stay. */
  superseded: boolean;
}

/**
 * An attempt has begun. Repeated by every attempt, and of no weight: the engine knows better. It may also come late, from an attempt that was given up long ago:
 * the project goes on showing its newest extraction.
 */
export async function begin(pool: pg.Pool, { extractionId, projectId }: Standing): Promise<void> {
  const begun = pool.query(
    `with this as (
       insert into extraction.extractions (id, project_id, status, started_at) values ($1, $2, 'running', now())
       on conflict (id) do update set status = 'running', error = null, ended_at = null, recorded_at = null,
         started_at = case when extractions.ended_at is null then coalesce(extractions.started_at, now()) else now() end
         where extractions.status <> 'completed'
       returning id, created_at
     )
     update extraction.repositories r set status = 'extracting', error = null, extraction_id = $1, updated_at = now()
     from this
     where r.project_id = $2 and not exists (
       select from extraction.extractions later where later.project_id = $2 and (later.created_at, later.id) > (this.created_at, this.id)
     )`,
    [extractionId, projectId],
  );
  await unlessGone(begun);
}

export function complete(tx: pg.PoolClient, standing: Standing, found: Found): Promise<Ended> {
  return unlessGone(end(tx, standing, found));
}

async function end(tx: pg.PoolClient, standing: Standing, found: Found): Promise<Ended> {
  const { extractionId, projectId } = standing;
  const superseded = await isSuperseded(tx, standing);
  if (!superseded) await replace(tx, standing, found);
  const { result } = found;
  const { rows } = await tx.query(
    `insert into extraction.extractions as e (id, project_id, status, commit, summary, ended_at) values ($1, $2, 'completed', $3, $4, now())
     on conflict (id) do update set status = 'completed', error = null, commit = excluded.commit, summary = excluded.summary, ended_at = now()
     returning round(extract(epoch from now() - coalesce(e.started_at, now())) * 1000)::float as took`,
    [extractionId, projectId, result.commit, JSON.stringify(result)],
  );
  for (const { name, size, sha256 } of found.reports) {
    await tx.query(
      `insert into extraction.reports (extraction_id, name, size, sha256) values ($1, $2, $3, $4)
       on conflict (extraction_id, name) do update set size = excluded.size, sha256 = excluded.sha256`,
      [extractionId, name, size, sha256],
    );
  }
  if (!superseded) {
    await tx.query(
      `update extraction.repositories set status = 'ready', error = null, extraction_id = $1, commit = $3, updated_at = now() where project_id = $2`,
      [extractionId, projectId, result.commit],
    );
  }
  return { tookMs: rows[0].took, superseded };
}

async function replace(tx: pg.PoolClient, standing: Standing, found: Found): Promise<void> {
  const { vulnerabilities, exploited, code, secrets } = found;
  const lists: List[] = [];
  if (vulnerabilities) {
    await replaceVulnerabilities(tx, standing, vulnerabilities, exploited);
    lists.push("vulnerabilities");
  }
  if (code) {
    await replaceFindings(tx, standing, "code", code);
    lists.push("code");
  }
  if (secrets) {
    await replaceFindings(tx, standing, "secret", secrets);
    lists.push("secrets");
  }
  await noteLooked(tx, standing, lists);
}

/** Those that are still there keep the day they were first seen. */
async function replaceVulnerabilities(
  tx: pg.PoolClient,
  { extractionId, projectId }: Standing,
  found: readonly Vulnerability[],
  exploited: Exploited | undefined,
): Promise<void> {
  const known = await knownOf(tx, projectId);
  for (const part of partsOf(found)) {
    const rows = part.map((one) => ({ ...one, ...(one.cve !== null && exploitationOf(one.cve, exploited, known)) }));
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

/** By CVE. */
async function knownOf(tx: pg.PoolClient, projectId: string): Promise<Map<string, Exploitation>> {
  const { rows } = await tx.query(
    "select distinct on (cve) cve, epss, percentile, kev from extraction.vulnerabilities where project_id = $1 and cve is not null order by cve",
    [projectId],
  );
  return new Map(rows.map(({ cve, ...rest }) => [cve, rest]));
}

/** Of a feed that was read, what it says; of one that did not answer, what it said before. */
function exploitationOf(
  cve: string,
  exploited: Exploited | undefined,
  known: ReadonlyMap<string, Exploitation>,
): Exploitation {
  const said = exploited?.byCve[cve];
  const before = known.get(cve);
  const scored = exploited?.read.epss ? said : before;
  const listed = exploited?.read.kev ? said : before;
  return { epss: scored?.epss ?? null, percentile: scored?.percentile ?? null, kev: listed?.kev ?? null };
}

async function replaceFindings(
  tx: pg.PoolClient,
  { extractionId, projectId }: Standing,
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
