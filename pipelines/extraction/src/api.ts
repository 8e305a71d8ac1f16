// The HTTP API: projects, their extractions, and results. A project and its first extraction are stored in one transaction;
// the orchestrator is poked after it has committed. The page uses this API like any other client.
import { inTransaction } from "@stillwake/kit/database";
import { type GuardedOptions, guardedApi, readToken } from "@stillwake/kit/web/guarded-api";
import { notFound } from "@stillwake/kit/web/problems";
import { checkId, emptyBody, pageQuery, parseBody, parseQuery, parseWith } from "@stillwake/kit/web/requests";
import type { Context, Hono } from "hono";
import type pg from "pg";
import { type Actor, type Enqueued, type SealKeys, type Stillwake, StillwakeError } from "stillwake";
import * as integrations from "./integrations.ts";
import * as projects from "./projects.ts";
import { readCosts, readDetail } from "./web/detail.ts";
import { listDependencies, listFindings, listVulnerabilities } from "./web/lists.ts";
import { listReports, sendReport } from "./web/reports.ts";
import * as requests from "./web/requests.ts";

export interface ApiOptions extends Omit<GuardedOptions, "name"> {
  /** A login with the roles extraction_api and stillwake_app. */
  pool: pg.Pool;
  /** With the workers' store for downloads, and the secret of the live view for read tokens. */
  stillwake: Stillwake;
  /** Keys to seal the credentials of integrations. */
  sealKeys?: SealKeys | string | undefined;
  /** The organization of all requests. */
  organization?: string | undefined;
  /** A sample repository that the page offers. */
  sample?: Sample | undefined;
}

interface Sample {
  name: string;
  repository: string;
  provider?: "github" | "gitlab" | "bitbucket";
  branch?: string;
  packagePath?: string;
}

/** The organization of a server without EXTRACTION_ORGANIZATION. */
export const DEFAULT_ORGANIZATION = "00000000-0000-4000-8000-000000000001";

const ACTOR: Actor = { by: "the extraction's API" };

export function createApi(options: ApiOptions): Hono {
  const { pool, stillwake, organization = DEFAULT_ORGANIZATION, sample } = options;
  const { token, path, onError } = options;
  const api = guardedApi({ name: "extraction", token, path, onError });

  // What the first page needs to know, in one request.
  api.get("/me", (c) => c.json({ organization, open: token === undefined, sample: sample?.name ?? null }));

  api.post("/projects", async (c) => {
    const project = await parseBody(requests.newProject, c.req.raw);
    const created = await inTransaction(pool, async (tx) => {
      const id = await projects.createProject(tx, organization, project);
      return {
        id,
        extraction: project.extract ? await projects.startExtraction(tx, stillwake, organization, id) : null,
      };
    });
    if (created.extraction) await stillwake.poke();
    return c.json(created, 201);
  });
  api.get("/projects", async (c) => {
    const page = parseQuery(pageQuery, c.req.raw);
    await projects.recordOutcomes(pool);
    return c.json(await projects.listProjects(pool, organization, page));
  });
  api.get("/projects/:id", async (c) => {
    await projects.recordOutcomes(pool);
    return c.json(await projects.readProject(pool, organization, projectId(c)));
  });
  api.patch("/projects/:id", async (c) => {
    const change = await parseBody(requests.projectChange, c.req.raw);
    return c.json(await inTransaction(pool, (tx) => projects.changeProject(tx, organization, projectId(c), change)));
  });
  api.delete("/projects/:id", async (c) => {
    const open = await inTransaction(pool, (tx) => projects.deleteProject(tx, organization, projectId(c)));
    for (const id of open) await cancel(id, { ...ACTOR, reason: "The project was deleted" });
    return c.body(null, 204);
  });

  const respondStarted = async (c: Context, started: Enqueued) => {
    await stillwake.poke();
    return c.json(started, 202);
  };
  api.post("/projects/:id/extractions", async (c) => {
    await parseBody(emptyBody, c.req.raw);
    const id = projectId(c);
    return respondStarted(
      c,
      await inTransaction(pool, (tx) => projects.startExtraction(tx, stillwake, organization, id)),
    );
  });
  api.get("/projects/:id/extractions", async (c) => {
    const page = parseQuery(pageQuery, c.req.raw);
    await projects.recordOutcomes(pool);
    return c.json(await projects.listExtractions(pool, await ownProject(c), page));
  });
  api.get("/projects/:id/dependencies", async (c) => {
    const query = parseQuery(requests.dependenciesQuery, c.req.raw);
    return c.json(await listDependencies(pool, await ownProject(c), query));
  });
  api.get("/projects/:id/vulnerabilities", async (c) => {
    const query = parseQuery(requests.vulnerabilitiesQuery, c.req.raw);
    return c.json(await listVulnerabilities(pool, await ownProject(c), query));
  });
  api.get("/projects/:id/findings", async (c) => {
    const query = parseQuery(requests.findingsQuery, c.req.raw);
    return c.json(await listFindings(pool, await ownProject(c), query));
  });

  api.get("/extractions/:id", async (c) => {
    await projects.recordOutcomes(pool);
    return c.json(await readDetail(stillwake, await ownExtraction(c)));
  });
  api.post("/extractions/:id/cancel", async (c) => {
    await parseBody(emptyBody, c.req.raw);
    const { id } = await ownExtraction(c);
    const state = await cancel(id, ACTOR);
    await projects.recordOutcomes(pool);
    return c.json({ id, state }, 202);
  });
  api.get("/extractions/:id/reports", async (c) => {
    const { id } = await ownExtraction(c);
    return c.json({ reports: await listReports(pool, stillwake, id) });
  });
  api.get("/extractions/:id/reports/*", async (c) => {
    const { id } = await ownExtraction(c);
    return sendReport(stillwake, id, reportName(c.req.raw), c.req.raw);
  });
  api.get("/extractions/:id/token", async (c) => {
    const { id } = await ownExtraction(c);
    return c.json({ token: readToken(stillwake, id) });
  });

  api.get("/integrations", async (c) =>
    c.json({ integrations: await integrations.listIntegrations(pool, organization) }),
  );
  api.post("/integrations", async (c) => {
    const integration = await parseBody(requests.newIntegration, c.req.raw);
    return c.json(await integrations.createIntegration(pool, organization, integration, options.sealKeys), 201);
  });
  api.put("/integrations/:id", async (c) => {
    const change = await parseBody(requests.credentialChange, c.req.raw);
    const id = integrationId(c);
    return c.json(await integrations.replaceCredential(pool, organization, id, change, options.sealKeys));
  });
  api.delete("/integrations/:id", async (c) => {
    await inTransaction(pool, (tx) => integrations.deleteIntegration(tx, organization, integrationId(c)));
    return c.body(null, 204);
  });
  api.get("/costs", async (c) => c.json(await readCosts(stillwake, organization)));

  api.get("/sample", (c) => {
    if (!sample) throw notFound("sample");
    return c.json({ name: sample.name });
  });
  api.post("/sample", async (c) => {
    await parseBody(emptyBody, c.req.raw);
    if (!sample) throw notFound("sample");
    const sampleProject = parseWith(requests.newProject, sample);
    const started = await inTransaction(pool, async (tx) => {
      const known = await projects.findProject(tx, organization, sampleProject);
      const project = known ?? (await projects.createProject(tx, organization, sampleProject));
      return { project, ...(await projects.startExtraction(tx, stillwake, organization, project)) };
    });
    return respondStarted(c, started);
  });

  const projectId = (c: Context) => checkId(c.req.param("id") ?? "", "project");
  const integrationId = (c: Context) => checkId(c.req.param("id") ?? "", "integration");
  const ownProject = (c: Context) => projects.checkProject(pool, organization, projectId(c));
  const ownExtraction = (c: Context) =>
    projects.readExtraction(pool, organization, checkId(c.req.param("id") ?? "", "extraction"));
  /** A job that Stillwake has already deleted needs no cancel. */
  const cancel = (id: string, actor: Actor) =>
    stillwake.cancel(id, actor).catch((error) => {
      if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND") return null;
      throw error;
    });
  return api;
}

function reportName(request: Request): string {
  const [, name = ""] = /\/extractions\/[^/]+\/reports\/(.+)$/.exec(new URL(request.url).pathname) ?? [];
  try {
    return decodeURIComponent(name);
  } catch {
    throw notFound("report");
  }
}
