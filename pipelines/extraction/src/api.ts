// The API of the application: projects, their extractions, and what was found. A project and its first extraction are one transaction; the machines are told when it
// has committed. The page is a client of this, like everybody else.
import { type Context, Hono } from "hono";
import type pg from "pg";
import { type Actor, type Enqueued, type SealKeys, type Stillwake, StillwakeError } from "stillwake";
import { createIntegration, listIntegrations } from "./integrations.ts";
import * as projects from "./projects.ts";
import { accessBy } from "./web/access.ts";
import { costsOf, detailOf } from "./web/detail.ts";
import { listDependencies, listFindings, listVulnerabilities } from "./web/lists.ts";
import { notFound, problemOf } from "./web/problems.ts";
import { listReports, sendReport } from "./web/reports.ts";
import * as requests from "./web/requests.ts";

export interface ApiOptions {
  /** A login that may do what extraction_api and stillwake_app may. */
  pool: pg.Pool;
  /** With the store of the workers for downloads, and the secret of the server that follows jobs for read tokens. */
  stillwake: Stillwake;
  /** To seal credentials of integrations with. */
  sealKeys?: SealKeys | string | undefined;
  /** Who comes in needs it. Without one, only this machine may. */
  token?: string | undefined;
  /** Whose everything is that comes in here. */
  organization?: string | undefined;
  /** A repository to try it with, at one click. */
  sample?: Sample | undefined;
  /** Where the API is reached, for its cookie. Default "/". */
  path?: string;
  /** Told what the caller is not told. */
  onError?: (error: unknown, request: { method: string; path: string }) => void;
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

/** Nothing of an answer may be kept, framed, sniffed or run. */
const guards = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
};

const BY: Actor = { by: "the extraction's API" };

export function createApi(options: ApiOptions): Hono {
  const { pool, stillwake, organization = DEFAULT_ORGANIZATION, sample } = options;
  const onError = options.onError ?? ((error, { method, path }) => console.error(`${method} ${path}`, error));
  const access = accessBy(options.token, options.path ?? "/");
  const api = new Hono();

  api.use(async (c, next) => {
    await next();
    for (const [name, value] of Object.entries(guards)) if (!c.res.headers.has(name)) c.res.headers.set(name, value);
  });
  api.onError((error, c) => {
    const { problem, inside } = problemOf(error);
    if (inside) onError(error, { method: c.req.method, path: c.req.path });
    return new Response(JSON.stringify(problem), {
      status: problem.status,
      headers: { "content-type": "application/problem+json", ...guards },
    });
  });
  api.notFound(() => {
    throw notFound("address");
  });

  api.post("/session", async (c) => {
    const { token } = await requests.body(requests.signIn, c.req.raw);
    c.header("set-cookie", access.signIn(token, c.req.raw));
    return c.body(null, 204);
  });
  // Everything below is for those who may.
  api.use(async (c, next) => {
    access.check(c.req.raw);
    await next();
  });
  api.delete("/session", (c) => {
    c.header("set-cookie", access.signOut());
    return c.body(null, 204);
  });
  // With what the first page wants to know, so that it need not ask for what is not there.
  api.get("/me", (c) => c.json({ organization, open: options.token === undefined, sample: sample?.name ?? null }));

  api.post("/projects", async (c) => {
    const given = await requests.body(requests.newProject, c.req.raw);
    const made = await inTransaction(pool, async (tx) => {
      const id = await projects.createProject(tx, organization, given);
      return { id, extraction: given.extract ? await projects.startExtraction(tx, stillwake, organization, id) : null };
    });
    if (made.extraction) await stillwake.poke();
    return c.json(made, 201);
  });
  api.get("/projects", async (c) => {
    const page = requests.asked(requests.page, c.req.raw);
    await projects.recordEnds(pool);
    return c.json(await projects.listProjects(pool, organization, page));
  });
  api.get("/projects/:id", async (c) => {
    await projects.recordEnds(pool);
    return c.json(await projects.readProject(pool, organization, projectId(c)));
  });
  api.patch("/projects/:id", async (c) => {
    const given = await requests.body(requests.changedProject, c.req.raw);
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
    await requests.body(requests.nothing, c.req.raw);
    const id = projectId(c);
    return answerStarted(
      c,
      await inTransaction(pool, (tx) => projects.startExtraction(tx, stillwake, organization, id)),
    );
  });
  api.get("/projects/:id/extractions", async (c) => {
    const page = requests.asked(requests.page, c.req.raw);
    await projects.recordEnds(pool);
    return c.json(await projects.listExtractions(pool, await ownProject(c), page));
  });
  api.get("/projects/:id/dependencies", async (c) => {
    const question = requests.asked(requests.dependenciesAsked, c.req.raw);
    return c.json(await listDependencies(pool, await ownProject(c), question));
  });
  api.get("/projects/:id/vulnerabilities", async (c) => {
    const question = requests.asked(requests.vulnerabilitiesAsked, c.req.raw);
    return c.json(await listVulnerabilities(pool, await ownProject(c), question));
  });
  api.get("/projects/:id/findings", async (c) => {
    const question = requests.asked(requests.findingsAsked, c.req.raw);
    return c.json(await listFindings(pool, await ownProject(c), question));
  });

  api.get("/extractions/:id", async (c) => {
    await projects.recordEnds(pool);
    return c.json(await detailOf(stillwake, await ownExtraction(c)));
  });
  api.post("/extractions/:id/cancel", async (c) => {
    await requests.body(requests.nothing, c.req.raw);
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

  api.get("/integrations", async (c) => c.json({ integrations: await listIntegrations(pool, organization) }));
  api.post("/integrations", async (c) => {
    const given = await requests.body(requests.newIntegration, c.req.raw);
    return c.json(await createIntegration(pool, organization, given, options.sealKeys), 201);
  });
  api.get("/costs", async (c) => c.json(await costsOf(stillwake, organization)));

  api.get("/sample", (c) => {
    if (!sample) throw notFound("sample");
    return c.json({ name: sample.name });
  });
  api.post("/sample", async (c) => {
    await requests.body(requests.nothing, c.req.raw);
    if (!sample) throw notFound("sample");
    const given = requests.checked(requests.newProject, sample);
    const started = await inTransaction(pool, async (tx) => {
      const known = await projects.projectOf(tx, organization, given);
      const project = known ?? (await projects.createProject(tx, organization, given));
      return { project, ...(await projects.startExtraction(tx, stillwake, organization, project)) };
    });
    return answerStarted(c, started);
  });

  const projectId = (c: Context) => requests.checkId(c.req.param("id") ?? "", "project");
  const ownProject = (c: Context) => projects.checkProject(pool, organization, projectId(c));
  const ownExtraction = (c: Context) =>
    projects.readExtraction(pool, organization, requests.checkId(c.req.param("id") ?? "", "extraction"));
  /** One that the engine has forgotten has ended long ago. */
  const cancel = (id: string, actor: Actor) =>
    stillwake.cancel(id, actor).catch((error) => {
      if (error instanceof StillwakeError && error.code === "JOB_NOT_FOUND") return null;
      throw error;
    });
  return api;
}

async function inTransaction<T>(pool: pg.Pool, work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    await client.query("rollback").catch((lost: Error) => {
      broken = lost;
    });
    throw error;
  } finally {
    // One that could not roll back is of no use to the next.
    client.release(broken);
  }
}

/** Null where the live view needs none, because nobody signs any: a server without a secret on one's own machine. */
function readToken(stillwake: Stillwake, job: string): string | null {
  try {
    return stillwake.readToken({ job, expiresIn: "1h" });
  } catch (error) {
    if (error instanceof StillwakeError && error.field === "secret") return null;
    throw error;
  }
}

function reportName(request: Request): string {
  const [, name = ""] = /\/extractions\/[^/]+\/reports\/(.+)$/.exec(new URL(request.url).pathname) ?? [];
  try {
    return decodeURIComponent(name);
  } catch {
    throw notFound("report");
  }
}
