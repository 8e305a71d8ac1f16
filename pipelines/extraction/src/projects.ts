// Projects and their extractions in the application's tables. Everything asks for the organization: what belongs to another one is not there. An extraction is stored
// together with its job, in one transaction, so that neither is ever without the other.

import { type Page, type Paged, pageOf } from "@stillwake/kit/web/paging";
import type pg from "pg";
import type { Enqueued, Stillwake } from "stillwake";
import { extraction, type Output, type Provider } from "./contract.ts";
import { checkIntegration } from "./integrations.ts";
import type { Severity } from "./model.ts";
import type { Looked } from "./project-state.ts";
import { notFound } from "./web/not-found.ts";
import type { ChangedProject, NewProject } from "./web/requests.ts";

type Queries = pg.Pool | pg.PoolClient;

export interface Project {
  id: string;
  name: string;
  provider: Provider;
  repository: string;
  branch: string | null;
  packagePath: string;
  ecosystem: string | null;
  installationId: string | null;
  integrationId: string | null;
  status: "new" | "extracting" | "ready" | "failed" | "cancelled";
  error: string | null;
  commit: string | null;
  createdAt: Date;
  /** The last one. */
  extraction: Extraction | null;
  /** As of the last extraction that could look, by severity. */
  vulnerabilities: Partial<Record<Severity, number>>;
  dependencies: number;
  /** How old each list is, and whose. */
  looked: Looked;
}

export interface Extraction {
  id: string;
  projectId: string;
  status: "queued" | "running" | "completed" | "failed" | "cancelled";
  error: string | null;
  missing: string[];
  commit: string | null;
  summary: Output | null;
  machine: string | null;
  attempts: number;
  createdAt: Date;
  startedAt: Date | null;
  endedAt: Date | null;
}

const EXTRACTION = `e.id, e.project_id as "projectId", e.status, e.error, e.missing, e.commit, e.summary, e.machine, e.attempts,
  e.created_at as "createdAt", e.started_at as "startedAt", e.ended_at as "endedAt"`;

const PROJECT = `p.id, p.name, r.provider, r.full_name as repository, r.branch, r.package_path as "packagePath", r.ecosystem,
  r.installation_id as "installationId", r.integration_id as "integrationId", r.status, r.error, r.commit, r.looked, p.created_at as "createdAt",
  (select to_jsonb(l) from (select ${EXTRACTION} from extraction.extractions e where e.project_id = p.id order by e.created_at desc, e.id desc limit 1) l) as extraction,
  coalesce((select jsonb_object_agg(v.severity, v.number) from (select severity, count(*) as number from extraction.vulnerabilities where project_id = p.id group by severity) v), '{}') as vulnerabilities,
  (select count(*)::integer from extraction.dependencies d where d.project_id = p.id) as dependencies`;

/** What ended without any code of ours is brought first. */
export async function recordEnds(pool: pg.Pool): Promise<void> {
  await pool.query("select extraction.record_ends()");
}

export async function createProject(tx: pg.PoolClient, organization: string, given: NewProject): Promise<string> {
  const { integrationId, provider } = given;
  if (integrationId !== undefined) await checkIntegration(tx, organization, provider, integrationId);
  const { rows } = await tx.query(
    "insert into extraction.projects (organization_id, name) values ($1, $2) returning id",
    [organization, given.name ?? nameOf(given.repository)],
  );
  const { id } = rows[0];
  await tx.query(
    `insert into extraction.repositories (project_id, provider, full_name, branch, package_path, ecosystem, installation_id, integration_id)
     values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      id,
      provider,
      given.repository,
      given.branch,
      given.packagePath,
      given.ecosystem,
      given.installationId,
      integrationId,
    ],
  );
  return id;
}

/** The same repository at the same path, if a project has it. */
export async function projectOf(
  tx: pg.PoolClient,
  organization: string,
  given: Pick<NewProject, "provider" | "repository" | "packagePath">,
): Promise<string | undefined> {
  // Two who ask at once are one after the other.
  await tx.query("select pg_advisory_xact_lock(hashtext($1))", [`${organization} ${given.repository}`]);
  const { rows } = await tx.query(
    `select p.id from extraction.projects p join extraction.repositories r on r.project_id = p.id
     where p.organization_id = $1 and r.provider = $2 and r.full_name = $3 and r.package_path = $4 order by p.created_at limit 1`,
    [organization, given.provider, given.repository, given.packagePath],
  );
  return rows[0]?.id;
}

export async function readProject(pool: Queries, organization: string, id: string): Promise<Project> {
  const { rows } = await pool.query(
    `select ${PROJECT} from extraction.projects p join extraction.repositories r on r.project_id = p.id where p.organization_id = $1 and p.id = $2`,
    [organization, id],
  );
  if (rows.length === 0) throw notFound("project");
  return rows[0];
}

/** Refuses what is not there, or not theirs. */
export async function checkProject(pool: Queries, organization: string, id: string): Promise<string> {
  const { rowCount } = await pool.query("select from extraction.projects where organization_id = $1 and id = $2", [
    organization,
    id,
  ]);
  if (rowCount === 0) throw notFound("project");
  return id;
}

export function listProjects(pool: Queries, organization: string, page: Page): Promise<Paged<Project>> {
  return pageOf(pool, {
    page,
    select: PROJECT,
    from: "extraction.projects p join extraction.repositories r on r.project_id = p.id",
    where: ["p.organization_id = ?"],
    values: [organization],
    order: [
      ["p.created_at", "desc", "timestamptz"],
      ["p.id", "desc", "uuid"],
    ],
  });
}

/** What of a project's repository can be changed, and where it stands. Its provider stays: another one would be another repository. */
const COLUMNS = [
  ["repository", "full_name"],
  ["branch", "branch"],
  ["packagePath", "package_path"],
  ["installationId", "installation_id"],
  ["integrationId", "integration_id"],
] as const;

export async function changeProject(
  tx: pg.PoolClient,
  organization: string,
  id: string,
  given: ChangedProject,
): Promise<Project> {
  await lockProject(tx, organization, id);
  const before = await readProject(tx, organization, id);
  if (given.integrationId) await checkIntegration(tx, organization, before.provider, given.integrationId);
  const name = given.name ?? nameAfter(before, given.repository);
  if (name !== undefined) await tx.query("update extraction.projects set name = $2 where id = $1", [id, name]);
  const changed = COLUMNS.filter(([field]) => given[field] !== undefined);
  const sets = changed.map(([, column], place) => `${column} = $${place + 2}`);
  await tx.query(
    `update extraction.repositories set ${[...sets, "updated_at = now()"].join(", ")} where project_id = $1`,
    [id, ...changed.map(([field]) => given[field])],
  );
  return readProject(tx, organization, id);
}

/** Answers the extractions that may be under way and have to be cancelled: one that somebody has retried was recorded as ended. */
export async function deleteProject(tx: pg.PoolClient, organization: string, id: string): Promise<string[]> {
  await lockProject(tx, organization, id);
  const { rows } = await tx.query(
    `select id from extraction.extractions where project_id = $1 and recorded_at is null
     union select extraction_id from extraction.repositories where project_id = $1 and extraction_id is not null`,
    [id],
  );
  await tx.query("delete from extraction.projects where id = $1", [id]);
  return rows.map((row) => row.id);
}

/** A job and its row, or those that are on their way already: the engine lets a project have one. Whoever asks for the same project waits here, not in the engine. */
export async function startExtraction(
  tx: pg.PoolClient,
  stillwake: Stillwake,
  organization: string,
  id: string,
): Promise<Enqueued> {
  await lockProject(tx, organization, id);
  const { rows } = await tx.query(
    `select r.*, i.credential from extraction.repositories r left join extraction.integrations i on i.id = r.integration_id and i.organization_id = $2 where r.project_id = $1`,
    [id, organization],
  );
  const [it] = rows;
  const input = {
    projectId: id,
    organizationId: organization,
    provider: it.provider as Provider,
    repository: it.full_name as string,
    packagePath: it.package_path as string,
    ...given("branch", it.branch),
    ...given("ecosystem", it.ecosystem),
    ...given("installationId", it.installation_id),
    ...given("integrationId", it.integration_id),
    // Sealed since it was given to us, and opened by nobody but the worker.
    ...given("credential", it.credential),
  };
  const enqueued = await stillwake.enqueue(extraction, input, { tx });
  await tx.query("insert into extraction.extractions (id, project_id) values ($1, $2) on conflict (id) do nothing", [
    enqueued.id,
    id,
  ]);
  if (!enqueued.existing) {
    await tx.query(
      "update extraction.repositories set status = 'extracting', error = null, extraction_id = $2, updated_at = now() where project_id = $1",
      [id, enqueued.id],
    );
  }
  return enqueued;
}

export async function readExtraction(pool: Queries, organization: string, id: string): Promise<Extraction> {
  const { rows } = await pool.query(
    `select ${EXTRACTION} from extraction.extractions e join extraction.projects p on p.id = e.project_id where p.organization_id = $1 and e.id = $2`,
    [organization, id],
  );
  if (rows.length === 0) throw notFound("extraction");
  return rows[0];
}

export function listExtractions(pool: Queries, projectId: string, page: Page): Promise<Paged<Extraction>> {
  return pageOf(pool, {
    page,
    select: EXTRACTION,
    from: "extraction.extractions e",
    where: ["e.project_id = ?"],
    values: [projectId],
    order: [
      ["e.created_at", "desc", "timestamptz"],
      ["e.id", "desc", "uuid"],
    ],
  });
}

/** Of a project that nobody has given one. */
const nameOf = (repository: string) => repository.slice(0, 200);

/** One that is called as its repository is goes on being so. */
function nameAfter(before: Pick<Project, "name" | "repository">, repository: string | undefined): string | undefined {
  return repository !== undefined && before.name === nameOf(before.repository) ? nameOf(repository) : undefined;
}

async function lockProject(tx: pg.PoolClient, organization: string, id: string): Promise<void> {
  const { rowCount } = await tx.query(
    "select from extraction.projects where id = $1 and organization_id = $2 for update",
    [id, organization],
  );
  if (rowCount === 0) throw notFound("project");
}

function given<Name extends string>(name: Name, value: string | null): { [name in Name]?: string } {
  return value === null ? {} : ({ [name]: value } as { [name in Name]: string });
}
