// Paginated lists of a project: dependencies by name, vulnerabilities and findings by severity.
import { containsPattern, type Paged, queryPage } from "@stillwake/kit/web/paging";
import type pg from "pg";
import type { z } from "zod";
import { type Dependency, type Exploitation, type Finding, SEVERITIES, type Vulnerability } from "../model.ts";
import type { dependenciesQuery, findingsQuery, vulnerabilitiesQuery } from "./requests.ts";

export type ListedDependency = Dependency & { firstSeenAt: Date };
export type ListedVulnerability = Vulnerability & Exploitation & { firstSeenAt: Date };
export type ListedFinding = Finding & { firstSeenAt: Date };

const rank = `array_position('{${SEVERITIES.join(",")}}'::text[], severity)`;

export function listDependencies(
  pool: pg.Pool,
  projectId: string,
  { direct, ecosystem, q, ...page }: z.output<typeof dependenciesQuery>,
): Promise<Paged<ListedDependency>> {
  const filter = new Filter(projectId);
  if (direct !== undefined) filter.add("direct = ?", direct);
  if (ecosystem !== undefined) filter.add("ecosystem = ?", ecosystem);
  if (q !== undefined) filter.add("purl ilike ?", containsPattern(q));
  return queryPage(pool, {
    page,
    select: `purl, name, version, ecosystem, direct, scope, licenses, first_seen_at as "firstSeenAt"`,
    from: "extraction.dependencies",
    ...filter,
    order: [
      ["name", "asc", "text"],
      ["purl", "asc", "text"],
    ],
  });
}

export function listVulnerabilities(
  pool: pg.Pool,
  projectId: string,
  { severity, kev, reachable, q, ...page }: z.output<typeof vulnerabilitiesQuery>,
): Promise<Paged<ListedVulnerability>> {
  const filter = new Filter(projectId);
  if (severity !== undefined) filter.add("severity = any (?)", severity);
  if (kev !== undefined) filter.add(`coalesce(jsonb_typeof(kev), 'null') ${kev ? "<>" : "="} 'null'`);
  if (reachable !== undefined) filter.add("reachable = ?", reachable);
  if (q !== undefined) filter.add("concat_ws(' ', id, cve, purl, aliases::text) ilike ?", containsPattern(q));
  return queryPage(pool, {
    page,
    select: `id, aliases, cve, purl, name, version, severity, score, summary, fixed, reachable, source, url, epss, percentile, nullif(kev, 'null') as kev,
      first_seen_at as "firstSeenAt"`,
    from: "extraction.vulnerabilities",
    ...filter,
    order: [
      [rank, "asc", "integer"],
      ["coalesce(epss, -1)", "desc", "double precision"],
      ["id", "asc", "text"],
      ["purl", "asc", "text"],
    ],
  });
}

export function listFindings(
  pool: pg.Pool,
  projectId: string,
  { kind, severity, q, ...page }: z.output<typeof findingsQuery>,
): Promise<Paged<ListedFinding>> {
  const filter = new Filter(projectId);
  if (kind !== undefined) filter.add("kind = ?", kind);
  if (severity !== undefined) filter.add("severity = any (?)", severity);
  if (q !== undefined) filter.add("concat_ws(' ', rule, path, message) ilike ?", containsPattern(q));
  return queryPage(pool, {
    page,
    select: `kind, rule, severity, path, line, end_line as "endLine", message, cwe, engine, fingerprint, first_seen_at as "firstSeenAt"`,
    from: "extraction.findings",
    ...filter,
    order: [
      [rank, "asc", "integer"],
      ["path", "asc", "text"],
      ["line", "asc", "integer"],
      ["kind", "asc", "text"],
      ["fingerprint", "asc", "text"],
    ],
  });
}

class Filter {
  readonly where: string[] = ["project_id = ?"];
  readonly values: unknown[];

  constructor(projectId: string) {
    this.values = [projectId];
  }

  add(condition: string, ...values: unknown[]): void {
    this.where.push(condition);
    this.values.push(...values);
  }
}
