// The API of the application: projects, their extractions, and what was found. A project and its first extraction are one transaction; the machines are told when it
// has committed. The page is a client of this, like everybody else.
import { inTransaction } from "@stillwake/kit/transaction";
import { type GuardedOptions, guardedApi } from "@stillwake/kit/web/guarded-api";
import { readToken } from "@stillwake/kit/web/read-token";
import { asked, body, checked, checkId, nothing, page } from "@stillwake/kit/web/requests";
import type { Context, Hono } from "hono";
import type pg from "pg";
import { type Actor, type Enqueued, type SealKeys, type Stillwake, StillwakeError } from "stillwake";
import * as integrations from "./integrations.ts";
import * as projects from "./projects.ts";
import { costsOf, detailOf } from "./web/detail.ts";
import { listDependencies, listFindings, listVulnerabilities } from "./web/lists.ts";
import { notFound } from "./web/not-found.ts";
import { listReports, sendReport } from "./web/reports.ts";
import * as requests from "./web/requests.ts";

export interface ApiOptions extends Omit<GuardedOptions, "name" | "missing"> {
  /** A login that may do what extraction_api and stillwake_app may. */
  pool: pg.Pool;
  /** With the store of the workers for downloads, and the secret of the server that follows jobs for read tokens. */
  stillwake: Stillwake;
  /** To seal credentials of integrations with. */
  sealKeys?: SealKeys | string | undefined;
  /** Whose everything is that comes in here. */
  organization?: string | undefined;
  /** A repository to try it with, at one click. */
  sample?: Sample | undefined;
}

interface Sample {
  name: string;
  repository: string;
  provider?: "github" | "gitlab" | "bitbucket";
  branch?: string;
  packagePath?: string;
}

/** Of those who have not said whose they are: a machine of one's own has one organization. */
export const DEFAULT_ORGANIZATION = "00000000-0000-4000-8000-000000000001";

const BY: Actor = { by: "the extraction's API" };

export function createApi(options: ApiOptions): Hono {
  const { pool, stillwake, organization = DEFAULT_ORGANIZATION, sample } = options;
  const { token, path, onError } = options;
  const api = guardedApi({ name: "extraction", token, path, missing: notFound, onError });

  // With what the first page wants to know, so that it need not ask for what is not there.
  api.get("/me", (c) => c.json({ organization, open: token === undefined, sample: sample?.name ?? null }));

  api.post("/projects", async (c) => {
    const given = await body(requests.newProject, c.req.raw);
    const made = await inTransaction(pool, async (tx) => {
      const id = await projects.createProject(tx, organization, given);
      return { id, extraction: given.extract ? await projects.startExtraction(tx, stillwake, organization, id) : null };
    });
    if (made.extraction) await stillwake.poke();
    return c.json(made, 201);
  });
  api.get("/projects", async (c) => {
    const at = asked(page, c.req.raw);
    await projects.recordEnds(pool);
    return c.json(await projects.listProjects(pool, organization, at));
  });
  api.get("/projects/:id", async (c) => {
    await projects.recordEnds(pool);
    return c.json(await projects.readProject(pool, organization, projectId(c)));
  });
  api.patch("/projects/:id", async (c) => {
    const given = await body(requests.changedProject, c.req.raw);
    return c.json(await inTransaction(pool, (tx) => projects.changeProject(tx, organization, projectId(c), given)));
  });
  api.delete("/projects/:id", async (c) => {
    const open = await inTransaction(pool, (tx) => projects.deleteProject(tx, organization, projectId(c)));
    for (const one of open) await cancel(one, { ...BY, reason: "Its project was deleted" });
    return c.body(null, 204);
  });

  const answerStarted = async (c: Context, started: Enqueued) => {
    await stillwake.poke();
    return c.json(started, 202);
  };
  api.post("/projects/:id/extractions", async (c) => {
    await body(nothing, c.req.raw);
    const id = projectId(c);
    return answerStarted(
      c,
      await inTransaction(pool, (tx) => projects.startExtraction(tx, stillwake, organization, id)),
    );
  });
  api.get("/projects/:id/extractions", async (c) => {
    const at = asked(page, c.req.raw);
    await projects.recordEnds(pool);
    return c.json(await projects.listExtractions(pool, await ownProject(c), at));
  });
  api.get("/projects/:id/dependencies", async (c) => {
    const question = asked(requests.dependenciesAsked, c.req.raw);
    return c.json(await listDependencies(pool, await ownProject(c), question));
  });
  api.get("/projects/:id/vulnerabilities", async (c) => {
    const question = asked(requests.vulnerabilitiesAsked, c.req.raw);
    return c.json(await listVulnerabilities(pool, await ownProject(c), question));
  });
  api.get("/projects/:id/findings", async (c) => {
    const question = asked(requests.findingsAsked, c.req.raw);
    return c.json(await listFindings(pool, await ownProject(c), question));
  });

  api.get("/extractions/:id", async (c) => {
    await projects.recordEnds(pool);
    return c.json(await detailOf(stillwake, await ownExtraction(c)));
  });
  api.post("/extractions/:id/cancel", async (c) => {
    await body(nothing, c.req.raw);
    const { id } = await ownExtraction(c);
    const state = await cancel(id, BY);
    await projects.recordEnds(pool);
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
    const given = await body(requests.newIntegration, c.req.raw);
    return c.json(await integrations.createIntegration(pool, organization, given, options.sealKeys), 201);
  });
  api.put("/integrations/:id", async (c) => {
    const given = await body(requests.replacedCredential, c.req.raw);
    const id = integrationId(c);
    return c.json(await integrations.replaceCredential(pool, organization, id, given, options.sealKeys));
  });
  api.delete("/integrations/:id", async (c) => {
    await inTransaction(pool, (tx) => integrations.deleteIntegration(tx, organization, integrationId(c)));
    return c.body(null, 204);
  });
  api.get("/costs", async (c) => c.json(await costsOf(stillwake, organization)));

  api.get("/sample", (c) => {
    if (!sample) throw notFound("sample");
    return c.json({ name: sample.name });
  });
  api.post("/sample", async (c) => {
    await body(nothing, c.req.raw);
    if (!sample) throw notFound("sample");
    const given = checked(requests.newProject, sample);
    const started = await inTransaction(pool, async (tx) => {
      const known = await projects.projectOf(tx, organization, given);
      const project = known ?? (await projects.createProject(tx, organization, given));
      return { project, ...(await projects.startExtraction(tx, stillwake, organization, project)) };
    });
    return answerStarted(c, started);
  });

  const projectId = (c: Context) => checkId(c.req.param("id") ?? "", "project");
  const integrationId = (c: Context) => checkId(c.req.param("id") ?? "", "integration");
  const ownProject = (c: Context) => projects.checkProject(pool, organization, projectId(c));
  const ownExtraction = (c: Context) =>
    projects.readExtraction(pool, organization, checkId(c.req.param("id") ?? "", "extraction"));
  /** One that the engine has forgotten has ended long ago. */
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
