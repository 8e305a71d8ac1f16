// Projects and their extractions in the application's tables. All functions filter by organization. An extraction and its
// job are stored in one transaction.
import { type Paged, type PageRequest, queryPage } from "@stillwake/kit/web/paging";
import { notFound } from "@stillwake/kit/web/problems";
import type pg from "pg";
import type { Enqueued, Stillwake } from "stillwake";
import { extraction, type Output, type Provider } from "./contract.ts";
import { checkIntegration } from "./integrations.ts";
import type { Severity } from "./model.ts";
import type { ListSources } from "./project-state.ts";
import type { NewProject, ProjectChange } from "./web/requests.ts";

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
  /** The latest one. */
  extraction: Extraction | null;
  /** Counts by severity, of the last extraction that scanned for them. */
  vulnerabilities: Partial<Record<Severity, number>>;
  dependencies: number;
  /** The extraction and time of each list. */
  looked: ListSources;
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

/** Records jobs that ended without pipeline code, such as crashed ones. Call it before reading. */
export async function recordOutcomes(pool: pg.Pool): Promise<void> {
  await pool.query("select extraction.record_outcomes()");
}

export async function createProject(tx: pg.PoolClient, organization: string, project: NewProject): Promise<string> {
  const { integrationId, provider } = project;
  if (integrationId !== undefined) await checkIntegration(tx, organization, provider, integrationId);
  const { rows } = await tx.query(
    "insert into extraction.projects (organization_id, name) values ($1, $2) returning id",
    [organization, project.name ?? defaultName(project.repository)],
  );
  const { id } = rows[0];
  await tx.query(
    `insert into extraction.repositories (project_id, provider, full_name, branch, package_path, ecosystem, installation_id, integration_id)
     values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      id,
      provider,
      project.repository,
      project.branch,
      project.packagePath,
      project.ecosystem,
      project.installationId,
      integrationId,
    ],
  );
  return id;
}

/** The project of the same repository and package path, if there is one. */
export async function findProject(
  tx: pg.PoolClient,
  organization: string,
  project: Pick<NewProject, "provider" | "repository" | "packagePath">,
): Promise<string | undefined> {
  // Serializes concurrent requests.
  await tx.query("select pg_advisory_xact_lock(hashtext($1))", [`${organization} ${project.repository}`]);
  const { rows } = await tx.query(
    `select p.id from extraction.projects p join extraction.repositories r on r.project_id = p.id
     where p.organization_id = $1 and r.provider = $2 and r.full_name = $3 and r.package_path = $4 order by p.created_at limit 1`,
    [organization, project.provider, project.repository, project.packagePath],
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

/** Throws if it does not exist or belongs to another organization. */
export async function checkProject(pool: Queries, organization: string, id: string): Promise<string> {
  const { rowCount } = await pool.query("select from extraction.projects where organization_id = $1 and id = $2", [
    organization,
    id,
  ]);
  if (rowCount === 0) throw notFound("project");
  return id;
}

export function listProjects(pool: Queries, organization: string, page: PageRequest): Promise<Paged<Project>> {
  return queryPage(pool, {
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

/** Fields of a repository that can be changed, and their columns. The provider cannot. */
const CHANGEABLE = [
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
  change: ProjectChange,
): Promise<Project> {
  await lockProject(tx, organization, id);
  const before = await readProject(tx, organization, id);
  if (change.integrationId) await checkIntegration(tx, organization, before.provider, change.integrationId);
  const name = change.name ?? renamedWith(before, change.repository);
  if (name !== undefined) await tx.query("update extraction.projects set name = $2 where id = $1", [id, name]);
  const changed = CHANGEABLE.filter(([field]) => change[field] !== undefined);
  const assignments = changed.map(([, column], index) => `${column} = $${index + 2}`);
  await tx.query(
    `update extraction.repositories set ${[...assignments, "updated_at = now()"].join(", ")} where project_id = $1`,
    [id, ...changed.map(([field]) => change[field])],
  );
  return readProject(tx, organization, id);
}

/** Returns the extractions to cancel. A retried one may be active although its end was recorded. */
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

/** Enqueues a job and stores its row, or returns the active one. Concurrent calls for the same project wait for its row. */
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
  const [repository] = rows;
  const input = {
    projectId: id,
    organizationId: organization,
    provider: repository.provider as Provider,
    repository: repository.full_name as string,
    packagePath: repository.package_path as string,
    ...optionalField("branch", repository.branch),
    ...optionalField("ecosystem", repository.ecosystem),
    ...optionalField("installationId", repository.installation_id),
    ...optionalField("integrationId", repository.integration_id),
    // Still sealed: only the worker opens it.
    ...optionalField("credential", repository.credential),
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

export function listExtractions(pool: Queries, projectId: string, page: PageRequest): Promise<Paged<Extraction>> {
  return queryPage(pool, {
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

/** Name of a project without a given name. */
const defaultName = (repository: string) => repository.slice(0, 200);

/** A project that has the name of its repository is renamed with it. */
function renamedWith(before: Pick<Project, "name" | "repository">, repository: string | undefined): string | undefined {
  return repository !== undefined && before.name === defaultName(before.repository)
    ? defaultName(repository)
    : undefined;
}

async function lockProject(tx: pg.PoolClient, organization: string, id: string): Promise<void> {
  const { rowCount } = await tx.query(
    "select from extraction.projects where id = $1 and organization_id = $2 for update",
    [id, organization],
  );
  if (rowCount === 0) throw notFound("project");
}

function optionalField<Name extends string>(name: Name, value: string | null): { [name in Name]?: string } {
  return value === null ? {} : ({ [name]: value } as { [name in Name]: string });
}
