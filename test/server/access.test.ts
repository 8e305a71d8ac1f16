// The access matrix: every route with every kind of caller. The expected statuses are written here, not derived from
// the server's code; every request is valid, so that a rejection is due to the caller.
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, it } from "vitest";
import { signReadToken } from "../../src/client/read-token.ts";
import type { Route } from "../../src/server/operation.ts";
import { routes } from "../../src/server/routes.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";

import { operations, wrongIn } from "../support/server/api-description.ts";
import { callerOf, makeTokens, signed } from "../support/server/callers.ts";
import { furnish, held, SECRET } from "../support/server/sample-data.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const { server, admin, jobs, webhook, errors } = await furnish(database, { onPoke: () => {} });
const sw = server.stillwake;
const tokens: Record<string, string> = {};
const call = callerOf(server, admin);
let cells = 0;
let wrongCells = 0;

const column = [
  "worker",
  "reader",
  "operator",
  "admin",
  "acme reader",
  "acme operator",
  "globex reader",
  "globex operator",
  "this job",
  "this key",
  "a job",
  "a key",
];
const open = "200 200 200 200 200 200 200 200 200 200 200 200";
const seen = "403 200 200 200 200 200 404 404 200 200 404 404";
const read = "403 200 200 200 200 200 404 404 403 403 403 403";
const known = "403 200 200 200 200 200 200 200 403 403 403 403";
const steered = "403 403 200 200 403 200 403 404 403 403 403 403";
const several = "403 403 200 200 403 200 403 200 403 403 403 403";
const overseen = "403 200 200 200 403 403 403 403 403 403 403 403";
const managed = "403 403 200 200 403 403 403 403 403 403 403 403";
const stored = "403 403 403 200 403 403 403 403 403 403 403 403";
/** The columns are those above. Callers without a valid token get 401, except on public routes. */
const expected: Record<string, string> = {
  health: open,
  deepHealth: "200 200 200 200 403 403 403 403 403 403 403 403",
  metrics: "200 200 200 200 403 403 403 403 403 403 403 403",
  openapi: open,
  docs: open,
  enqueue: several.replaceAll("200", "201"),
  listJobs: "403 200 200 200 200 200 200 200 403 200 403 200",
  cancelJobs: several,
  retryJobs: several,
  getJob: seen,
  listAttempts: read,
  listSteps: seen,
  listChildren: read,
  listLogs: seen,
  followJob: seen,
  listArtifacts: seen,
  getArtifact: seen,
  listJobWebhooks: overseen,
  cancelJob: steered,
  retryJob: steered,
  pauseJob: steered,
  resumeJob: steered,
  signalJob: steered,
  listPipelines: known,
  getPipeline: known,
  listPools: overseen,
  pausePool: managed,
  resumePool: managed,
  capPool: managed,
  listMachines: overseen,
  poke: "202 403 202 202 403 403 403 403 403 403 403 403",
  getCosts: known,
  getJobCost: read,
  listBudgets: overseen,
  getBudget: overseen,
  setBudget: stored,
  clearBudget: stored,
  listLimits: overseen,
  resetLimit: managed,
  listBreakers: overseen,
  openBreaker: managed,
  closeBreaker: managed,
  listSchedules: overseen,
  listOccurrences: overseen,
  setSchedule: managed,
  removeSchedule: managed,
  pauseSchedule: managed,
  resumeSchedule: managed,
  listEndpoints: overseen,
  setEndpoint: stored,
  rotateSecret: stored,
  disableEndpoint: managed,
  enableEndpoint: managed,
  listWebhooks: overseen,
  getWebhook: overseen,
  resendWebhook: managed.replaceAll("200", "202"),
  stats: overseen,
  watchdog: "200 403 200 200 403 403 403 403 403 403 403 403",
  listTokens: stored,
  createToken: stored.replaceAll("200", "201"),
  revokeToken: stored,
  createReadToken: steered.replaceAll("200", "201"),
  listAuditEntries: stored,
  me: "403 200 200 200 200 200 200 200 200 200 200 200",
  signIn: open,
  signOut: open.replaceAll("200", "204"),
};
/** Not audited: the watchdog and the poke are automatic, and sessions change nothing that others see. */
const unrecorded = ["watchdog", "poke", "signIn", "signOut"];

interface Subject {
  job: string;
  pipeline: string;
  key: string;
}

let created = 0;
const fresh = async (): Promise<Subject> => {
  const key = `cell-${++created}`;
  return { job: (await sw.enqueue(held, {}, { tenant: "acme", key })).id, pipeline: "held", key };
};
const aSchedule = async () => {
  const name = `s${++created}`;
  await call("PUT", `/v1/schedules/${name}`, { body: { cron: "0 0 1 1 *", pipeline: "held" } });
  return { name };
};
const anEndpoint = async () => {
  const name = `e${++created}`;
  await sw.webhooks.set(name, { url: "https://hook.example/" });
  return { name };
};

/** The body and objects that a route needs besides its path, created for one cell. */
const needs: Record<string, (subject: Subject) => Promise<{ name?: string; id?: string; body?: unknown } | undefined>> =
  {
    enqueue: async () => ({ body: { pipeline: "held", input: {} } }),
    cancelJobs: async ({ job }) => ({ body: { ids: [job] } }),
    retryJobs: async ({ job }) => {
      await sw.cancel(job);
      return { body: { ids: [job] } };
    },
    getArtifact: async () => ({ name: "deep/report.txt" }),
    cancelJob: async () => ({ body: { reason: "the test" } }),
    retryJob: async ({ job }) => void (await sw.cancel(job)),
    resumeJob: async ({ job }) => void (await sw.pause(job)),
    signalJob: async () => ({ body: { event: "go", data: { on: true } } }),
    getPipeline: async () => ({ name: "held" }),
    pausePool: async () => ({ name: "side", body: { reason: "the test" } }),
    resumePool: async () => {
      await sw.pause({ pool: "side" }, { by: "root" });
      return { name: "side" };
    },
    capPool: async () => ({ name: "side", body: { concurrency: 7 } }),
    getBudget: async () => {
      await sw.costs.setBudget("pool", "side", 1000);
      return { name: "side" };
    },
    setBudget: async () => ({ name: "side", body: { amount: 1000, period: "day" } }),
    clearBudget: async () => ({ name: "side" }),
    resetLimit: async () => ({ name: "api" }),
    openBreaker: async () => ({ name: "shop", body: { for: "1h" } }),
    closeBreaker: async () => ({ name: "shop" }),
    listOccurrences: async () => ({ name: "minutely" }),
    setSchedule: async () => ({
      name: `s${++created}`,
      body: { cron: "0 0 1 1 *", pipeline: "held", input: { n: 1 } },
    }),
    removeSchedule: aSchedule,
    pauseSchedule: aSchedule,
    resumeSchedule: aSchedule,
    setEndpoint: async () => ({ name: `e${++created}`, body: { url: "https://hook.example/" } }),
    rotateSecret: anEndpoint,
    disableEndpoint: anEndpoint,
    enableEndpoint: anEndpoint,
    getWebhook: async () => ({ id: webhook }),
    resendWebhook: async () => ({ id: webhook }),
    createToken: async () => ({ body: { name: `t${++created}`, role: "reader" } }),
    revokeToken: async () => ({ id: (await sw.tokens.create({ name: "short", role: "reader" })).id }),
    createReadToken: async ({ job }) => ({ body: { job } }),
    signIn: async () => ({ body: { token: tokens.reader } }),
  };

beforeAll(async () => {
  Object.assign(tokens, await makeTokens(server, client));
});

function tokenOf(caller: string, { job, pipeline: of, key }: Subject): string | undefined {
  const followers: Record<string, () => string | undefined> = {
    nobody: () => undefined,
    "this job": () => signReadToken([SECRET], { job }),
    "a job": () => signReadToken([SECRET], { job: randomUUID() }),
    "this key": () => signReadToken([SECRET], { pipeline: of, key, tenant: "acme" }),
    "a key": () => signReadToken([SECRET], { pipeline: of, key: `${key}x`, tenant: "acme" }),
    "expired read token": () => signed({ j: job }, -1),
    "forged read token": () => signed({ j: job }, 3600, "some secret that is not the server's own"),
    "changed read token": () =>
      signReadToken([SECRET], { job: randomUUID() }).replace(/^swr_[^.]+/, signed({ j: job }, 60).split(".")[0]!),
  };
  return followers[caller] ? followers[caller]() : tokens[caller];
}

async function cell(route: Route, caller: string) {
  const ofJob = route.path.startsWith("/v1/jobs") || route.name === "createReadToken";
  const subject = route.method !== "GET" && ofJob ? await fresh() : { job: jobs.good, pipeline: "work", key: "k" };
  const need = await needs[route.name]?.(subject);
  const path = route.path
    .replace(/:name(\{.*\})?/, need?.name ?? "none")
    .replace(":id", need?.id ?? subject.job)
    .replace(":scope", "pool");
  const response = await call(route.method, path, { token: tokenOf(caller, subject), body: need?.body });
  cells += 1;
  const isJson = response.status < 300 && response.json && route.name !== "openapi";
  if (isJson) {
    const described = operations.find(({ operationId }) => operationId === route.name)!;
    expect(wrongIn(described, response.status, response.json)).toEqual([]);
  }
  return { ...response, subject };
}

describe("the access matrix", () => {
  it("covers every route, and no other", () => {
    expect(Object.keys(expected).sort()).toEqual(routes.map(({ name }) => name).sort());
    const classes = "public follow read operate oversee manage admin tend measure".split(" ");
    expect(routes.filter(({ access }) => !classes.includes(access))).toEqual([]);
    expect(new Set(routes.map(({ method, path }) => `${method} ${path}`)).size).toBe(routes.length);
  });

  it("accepts a read token signed by the test, so that the invalid ones below differ in one property only", async () => {
    expect((await call("GET", `/v1/jobs/${jobs.good}`, { token: signed({ j: jobs.good }, 60) })).status).toBe(200);
  });

  const invalidCallers = [
    "nobody",
    "garbage",
    "expired",
    "revoked",
    "expired read token",
    "forged read token",
    "changed read token",
  ];
  it.each(routes.map((route) => [`${route.method} ${route.path}`, route] as const))("%s", async (_, route) => {
    const line = expected[route.name]!;
    const wanted = Object.fromEntries(line.split(" ").map((status, at) => [column[at]!, Number(status)]));
    for (const caller of invalidCallers)
      wanted[caller] = /40\d/.test(line.replaceAll("204", "")) ? 401 : wanted.reader!;
    const found: Record<string, number> = {};
    for (const token of Object.keys(wanted)) {
      const { status, json, text } = await cell(route, token);
      found[token] = status;
      if (status >= 400)
        expect(json, `${token}: ${text}`).toMatchObject({ code: expect.any(String), remedy: expect.any(String) });
    }
    wrongCells += Object.keys(wanted).filter((caller) => found[caller] !== wanted[caller]).length;
    expect(found).toEqual(wanted);
  });

  it("has an audit entry for every operation, and for nothing else", async () => {
    const { rows } = await client.query(
      "select act, actor, token, tenant, target, before, after, address from stillwake.audit where actor <> 'root'",
    );
    const wrong: string[] = [];
    for (const route of routes.filter(({ method }) => method !== "GET")) {
      const statuses = expected[route.name]!.split(" ").map(Number);
      column.slice(0, 8).forEach((caller, at) => {
        const found = rows.filter(({ act, actor }) => act === route.name && actor === caller);
        const status = statuses[at]!;
        const count = unrecorded.includes(route.name) || status === 403 || status === 404 ? 0 : 1;
        if (found.length !== count) wrong.push(`${route.name} by ${caller}: ${found.length} records`);
        for (const { after, token, address: from } of found) {
          if (!token || !from || !after) wrong.push(`${route.name} by ${caller}: ${JSON.stringify(found)}`);
        }
      });
    }
    expect(wrong).toEqual([]);
    const nameless = rows.filter(({ actor }) => !column.includes(actor));
    expect(nameless).toEqual([]);
    recordFigure("who may do what: cells", cells, "", `${routes.length} routes`);
    recordFigure("who may do what: wrong", wrongCells);
    expect(errors).toEqual([]);
  });

  it("has the state before and after in its audit entries", async () => {
    const record = async (act: string) =>
      (
        await client.query("select target, before, after from stillwake.audit where act = $1 and actor = 'admin'", [
          act,
        ])
      ).rows[0];
    expect(await record("cancelJob")).toMatchObject({
      before: { state: "queued" },
      after: { state: "cancelled", reason: "the test" },
    });
    expect(await record("cancelJobs")).toMatchObject({
      before: { jobs: [{ state: "queued" }] },
      after: { jobs: [{ state: "cancelled" }] },
    });
    expect(await record("resumeJob")).toMatchObject({ before: { state: "paused" }, after: { state: "queued" } });
    expect(await record("capPool")).toMatchObject({
      target: "side",
      before: { name: "side" },
      after: { concurrency: 7 },
    });
    expect(await record("pausePool")).toMatchObject({ target: "side", after: { reason: "the test" } });
    expect(await record("resumePool")).toMatchObject({ before: { paused: { by: expect.any(String) } } });
    expect(await record("openBreaker")).toMatchObject({ before: { state: expect.any(String) }, after: { for: "1h" } });
    expect(await record("setSchedule")).toMatchObject({ before: null, after: { cron: "0 0 1 1 *", pipeline: "held" } });
    expect(await record("removeSchedule")).toMatchObject({ before: { cron: "0 0 1 1 *" } });
    expect(await record("setEndpoint")).toMatchObject({ before: null, after: { url: "https://hook.example/" } });
    expect(await record("disableEndpoint")).toMatchObject({ before: { disabledAt: null } });
    expect(await record("createToken")).toMatchObject({ after: { id: expect.any(String), role: "reader" } });
    expect(await record("revokeToken")).toMatchObject({ before: { name: "short", role: "reader" } });
    const secrets = await client.query(
      "select * from stillwake.audit where before::text ~ 'whsec_|swt_[[:alnum:]_-]{10}|swr_' or after::text ~ 'whsec_|swt_[[:alnum:]_-]{10}|swr_'",
    );
    expect(secrets.rows).toEqual([]);
  });
});
