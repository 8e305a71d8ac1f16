// Records the start and the completion of an extraction in the application's tables. The completion is one transaction with
// the checkpoint of its step, so that readers always see the findings of exactly one extraction.
import type pg from "pg";
import type { Output } from "./contract.ts";
import type { Coverage, Exploitation, Exploited, Finding, Vulnerability } from "./model.ts";
import { type ExtractionRef, failIfProjectDeleted, isSuperseded, recordListSources } from "./project-state.ts";
import type { Report } from "./reports/reports.ts";

export interface Results {
  /** Undefined, for each list: not scanned; the stored list stays. */
  vulnerabilities: Vulnerability[] | undefined;
  /** How many dependencies were checked for vulnerabilities; null if it is not known. */
  coverage: Coverage | null;
  /** Undefined: no feed was read; the stored data stays. */
  exploited: Exploited | undefined;
  code: Finding[] | undefined;
  secrets: Finding[] | undefined;
  reports: Report[];
  result: Output;
}

export interface Completion {
  /** Since the start of its first attempt, or of the first attempt after a manual retry. */
  tookMs: number;
  /** A later extraction has stored its findings, which stay. */
  superseded: boolean;
}

/**
 * Called by every attempt. Only informative: the state of the job is authoritative. It may arrive late, from an attempt that
 * lost its lease; the project keeps showing its newest extraction.
 */
export async function recordStart(pool: pg.Pool, { extractionId, projectId }: ExtractionRef): Promise<void> {
  const started = pool.query(
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
  await failIfProjectDeleted(started);
}

export function recordCompletion(tx: pg.PoolClient, ref: ExtractionRef, found: Results): Promise<Completion> {
  return failIfProjectDeleted(storeCompletion(tx, ref, found));
}

async function storeCompletion(tx: pg.PoolClient, ref: ExtractionRef, found: Results): Promise<Completion> {
  const { extractionId, projectId } = ref;
  const superseded = await isSuperseded(tx, ref);
  if (!superseded) await replaceResults(tx, ref, found);
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

async function replaceResults(tx: pg.PoolClient, ref: ExtractionRef, found: Results): Promise<void> {
  const { vulnerabilities, coverage, exploited, code, secrets } = found;
  if (vulnerabilities) await replaceVulnerabilities(tx, ref, vulnerabilities, exploited);
  if (code) await replaceFindings(tx, ref, "code", code);
  if (secrets) await replaceFindings(tx, ref, "secret", secrets);
  await recordListSources(tx, ref, {
    ...(vulnerabilities && { vulnerabilities: coverage ? { coverage } : {} }),
    ...(code && { code: {} }),
    ...(secrets && { secrets: {} }),
  });
}

/** Rows that still exist keep first_seen_at. */
async function replaceVulnerabilities(
  tx: pg.PoolClient,
  { extractionId, projectId }: ExtractionRef,
  found: readonly Vulnerability[],
  exploited: Exploited | undefined,
): Promise<void> {
  const stored = await readExploitation(tx, projectId);
  for (const chunk of chunksOf(found)) {
    const rows = chunk.map((row) => ({
      ...row,
      ...(row.cve !== null && mergeExploitation(row.cve, exploited, stored)),
    }));
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

/** Stored data by CVE. */
async function readExploitation(tx: pg.PoolClient, projectId: string): Promise<Map<string, Exploitation>> {
  const { rows } = await tx.query(
    "select distinct on (cve) cve, epss, percentile, kev from extraction.vulnerabilities where project_id = $1 and cve is not null order by cve",
    [projectId],
  );
  return new Map(rows.map(({ cve, ...rest }) => [cve, rest]));
}

/** The new data of feeds that were read, the stored data of the others. */
function mergeExploitation(
  cve: string,
  exploited: Exploited | undefined,
  stored: ReadonlyMap<string, Exploitation>,
): Exploitation {
  const current = exploited?.byCve[cve];
  const previous = stored.get(cve);
  const scored = exploited?.read.epss ? current : previous;
  const listed = exploited?.read.kev ? current : previous;
  return { epss: scored?.epss ?? null, percentile: scored?.percentile ?? null, kev: listed?.kev ?? null };
}

async function replaceFindings(
  tx: pg.PoolClient,
  { extractionId, projectId }: ExtractionRef,
  kind: Finding["kind"],
  found: readonly Finding[],
): Promise<void> {
  for (const chunk of chunksOf(found)) {
    await tx.query(
      `insert into extraction.findings (project_id, extraction_id, fingerprint, kind, rule, severity, path, line, end_line, message, cwe, engine)
       select $1, $2, r.fingerprint, $4, r.rule, r.severity, r.path, r.line, r."endLine", r.message, r.cwe, r.engine
       from jsonb_to_recordset($3) as r (fingerprint text, rule text, severity text, path text, line integer, "endLine" integer, message text, cwe text[], engine text)
       on conflict (project_id, kind, fingerprint) do update set extraction_id = excluded.extraction_id, rule = excluded.rule, severity = excluded.severity,
         path = excluded.path, line = excluded.line, end_line = excluded.end_line, message = excluded.message, cwe = excluded.cwe, engine = excluded.engine`,
      [projectId, extractionId, JSON.stringify(chunk), kind],
    );
  }
  await tx.query("delete from extraction.findings where project_id = $1 and kind = $3 and extraction_id <> $2", [
    projectId,
    extractionId,
    kind,
  ]);
}

function* chunksOf<Row>(rows: readonly Row[]): Iterable<readonly Row[]> {
  for (let at = 0; at < rows.length; at += 1000) yield rows.slice(at, at + 1000);
}
