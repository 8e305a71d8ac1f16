// The API description is valid OpenAPI, responses match it, a generated client works, and Prometheus can parse the metrics.
import { execFile, execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { Validator } from "@seriousme/openapi-schema-validator";
import { EventSource } from "eventsource";
import { generate } from "openapi-typescript-codegen";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { docsPage } from "../../src/server/docs-page.ts";
import { createServer } from "../../src/server/index.ts";
import { describeApi } from "../../src/server/openapi.ts";
import { routes } from "../../src/server/routes.ts";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { checkMetrics, findPromtool } from "../support/processes/promtool.ts";
import { type Described, document, operations, wrongIn } from "../support/server/api-description.ts";
import { callerOf } from "../support/server/callers.ts";
import { furnish } from "../support/server/sample-data.ts";

const database = await freshDatabase();
const { server, admin, jobs, webhook } = await furnish(database);
const call = callerOf(server, admin);
const listening = await server.listen({ port: 0 });
afterAll(() => server.close());

describe("the description", () => {
  it("is valid OpenAPI 3.1 without warnings and without external references", async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(structuredClone(document));
    expect(errors ?? []).toEqual([]);
    expect(valid).toBe(true);
    expect(validator.version).toBe("3.1");
    const text = JSON.stringify(document);
    const known = Object.keys(document.components.schemas).map((name) => `#/components/schemas/${name}`);
    const referred = new Set([...text.matchAll(/"\$ref":"([^"]+)"/g)].map(([, one]) => one));
    expect([...referred].filter((name) => !known.includes(name!))).toEqual([]);
    expect(text).not.toMatch(/\$defs|\$schema|__shared/);
  });

  it("has every route once, with access, parameters and error responses", async () => {
    expect(operations.map(({ operationId }) => operationId).sort()).toEqual(routes.map(({ name }) => name).sort());
    for (const { path: where, method, parameters } of operations) {
      const described = document.paths[where][method.toLowerCase()];
      expect(described.description).toMatch(/Access: \w/);
      expect(described.responses["4XX"].content["application/problem+json"]).toBeDefined();
      const inPath = [...where.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      expect(parameters.filter((parameter) => parameter.in === "path").map(({ name }) => name)).toEqual(inPath);
    }
    const { json } = await call("GET", "/openapi.json", { token: undefined });
    expect(json).toEqual(document);
  });

  it("is a page in which no name can become a script", async () => {
    const { text, headers } = await call("GET", "/docs", { token: undefined });
    expect(text).not.toMatch(/<script|onerror=|javascript:|src=/i);
    expect(headers.get("content-security-policy")).toMatch(/default-src 'none'; style-src 'sha256-/);
    for (const { path: where } of routes) expect(text).toContain(where.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}"));
    const evil = '"><img src=x onerror=alert(1)>';
    const described = describeApi(
      routes.map((route) => ({
        ...route,
        path: `/${evil}/:id`,
        operation: { ...route.operation, summary: evil, about: evil },
      })),
    );
    expect(docsPage(described)).not.toContain("<img");
  });
});

describe("every response matches the description", () => {
  const paths = ({ path: where }: Described): string[] => {
    if (where.includes("/artifacts/")) return [];
    if (where.startsWith("/v1/jobs/{id}")) return Object.values(jobs).map((id) => where.replace("{id}", id));
    const names: Record<string, string[]> = {
      pipelines: ["held", "aside", "work"],
      schedules: ["minutely", "nightly"],
      budgets: ["side"],
    };
    if (where.includes("{name}"))
      return names[where.split("/")[2]!]!.map((name) => where.replace("{name}", name).replace("{scope}", "pool"));
    return [where.replace("{id}", webhook)];
  };
  const more: Record<string, string[]> = {
    listJobs: ["?limit=2", "?state=failed", "?state=completed&limit=1", "?text=a", "?tenant=acme", "?since=2020-01-01"],
    listSteps: ["?outputs=true"],
    listLogs: ["?after=1", "?limit=1"],
    stats: ["?span=1h&parts=4", "?span=24h"],
    listAuditEntries: ["?limit=1"],
    getCosts: ["?month=2026-11", "?by=tenant", "?since=2026-01-01&until=2026-02-01&by=day"],
    listWebhooks: ["?state=delivered", "?endpoint=deaf&limit=1"],
  };

  it.each(
    operations
      .filter(({ method, answers }) => method === "GET" && answers[200])
      .map((operation) => [operation.operationId, operation] as const),
  )("%s", async (_, operation) => {
    if (operation.operationId === "getBudget") await call("PUT", "/v1/budgets/pool/side", { body: { amount: 1000 } });
    const requested = paths(operation).flatMap((where) =>
      ["", ...(more[operation.operationId] ?? [])].map((query) => where + query),
    );
    expect(requested.length).toBeGreaterThan(0);
    for (const where of requested) {
      const { status, json, text } = await call("GET", where);
      expect(status, `${where}: ${text}`).toBe(200);
      expect(wrongIn(operation, status, json), where).toEqual([]);
    }
  });

  it("also that of a server without an artifact store to a download: 501, with the option to set", async () => {
    const bare = createServer({ url: database.url, auth: "none" });
    onTestFinished(() => bare.close());
    const where = `/v1/jobs/${jobs.good}/artifacts/deep/report.txt`;
    const response = await bare.fetch(new Request(`http://localhost${where}`));
    expect({ status: response.status, problem: await response.json() }).toMatchObject({
      status: 501,
      problem: {
        code: "NO_STORE",
        detail: expect.stringMatching(/^This server /),
        remedy: expect.stringContaining("createServer({ store"),
      },
    });
    await expect(bare.stillwake.download(jobs.good!, "deep/report.txt")).rejects.toMatchObject({ code: "NO_STORE" });
  });

  it("and is tested with data", async () => {
    const read = async (where: string) => (await call("GET", where)).json;
    const of = `/v1/jobs/${jobs.good}`;
    expect(
      (await read(`/v1/jobs/${jobs.bad}/attempts`)).attempts.map(({ outcome }: { outcome: string }) => outcome),
    ).toEqual(["failed", "failed"]);
    expect((await read(`${of}/steps?outputs=true`)).steps.length).toBeGreaterThan(0);
    expect((await read(`${of}/children`)).jobs).toHaveLength(2);
    expect((await read(`${of}/logs`)).lines).toContainEqual(expect.objectContaining({ epoch: "1" }));
    expect((await read(`${of}/artifacts`)).artifacts).toMatchObject([{ name: "deep/report.txt" }]);
    expect((await read(`${of}/webhooks`)).webhooks.length).toBeGreaterThan(0);
    expect(await read(of)).toMatchObject({
      state: "completed",
      missing: ["extra"],
      children: { total: 2, completed: 2 },
    });
    expect((await read("/v1/machines")).machines.length).toBeGreaterThan(0);
    const { schedules } = await read("/v1/schedules");
    expect(schedules.map(({ last }: { last: unknown }) => last !== null)).toContain(true);
    const strange = { ...(await read(of)), surprise: 1 };
    expect(wrongIn(operations.find(({ operationId }) => operationId === "getJob")!, 200, strange)).not.toEqual([]);
  });
});

describe("a client generated from the description", () => {
  const program = `
import { JobsService, OpenAPI, ApiError, type Job, type LogLine } from "./client/index";
OpenAPI.BASE = process.env.URL!;
OpenAPI.TOKEN = process.env.TOKEN!;
async function main(): Promise<void> {
  const made = await JobsService.enqueue({ requestBody: { pipeline: "work", input: { note: "from afar" }, tenant: "acme" } });
  if (!("id" in made)) throw new Error("many");
  let job: Job = await JobsService.getJob({ id: made.id });
  const lines: LogLine[] = [];
  let after = "0";
  for (;;) {
    const page = await JobsService.listLogs({ id: made.id, after });
    lines.push(...page.lines);
    after = page.next;
    if (job.endedAt !== null) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
    job = await JobsService.getJob({ id: made.id });
  }
  const refused = await JobsService.getJob({ id: "00000000-0000-4000-8000-000000000000" }).catch((error: ApiError) => error);
  const code = refused instanceof ApiError ? refused.body.code : "none";
  console.log(JSON.stringify({ id: made.id, state: job.state, output: job.output, lines: lines.map(({ message }) => message), code }));
}
void main();
declare const process: { env: Record<string, string | undefined> };
`;

  it("compiles, enqueues a job and follows it to its end", { timeout: 120_000 }, async () => {
    const dir = temporaryDirectory("client");
    await generate({
      input: structuredClone(document),
      output: path.join(dir, "client"),
      httpClient: "fetch",
      useOptions: true,
    });
    fs.writeFileSync(path.join(dir, "main.ts"), program);
    fs.writeFileSync(path.join(dir, "package.json"), '{"type":"commonjs"}');
    const compilerOptions = {
      target: "es2022",
      module: "nodenext",
      strict: true,
      outDir: "out",
      rootDir: ".",
      lib: ["es2023", "dom", "dom.iterable"],
      types: [],
    };
    fs.writeFileSync(path.join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["**/*.ts"] }));
    execFileSync(path.join(ROOT, "node_modules/.bin/tsc"), ["-p", dir], { stdio: "inherit" });
    const { PATH = "" } = process.env;
    const printed = await new Promise<string>((resolve, reject) => {
      const env = { PATH, URL: listening.url, TOKEN: admin };
      execFile(process.execPath, [path.join(dir, "out/main.js")], { env }, (error, stdout, stderr) =>
        error ? reject(new Error(stderr, { cause: error })) : resolve(stdout),
      );
    });
    const { id, ...rest } = JSON.parse(printed);
    expect(rest).toMatchObject({ state: "completed", output: { parts: [1, 2] }, code: "JOB_NOT_FOUND" });
    expect(rest.lines).toContain("Looked at it");

    // The same job by its stream, as in a browser.
    const stream = new EventSource(`${listening.url}/v1/jobs/${id}/stream`, {
      fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, authorization: `Bearer ${admin}` } }),
    });
    onTestFinished(() => stream.close());
    const messages: string[] = [];
    let end: { state: string } | undefined;
    stream.addEventListener("log", ({ data }) => messages.push(JSON.parse(data).message));
    stream.addEventListener("end", ({ data }) => {
      end = JSON.parse(data);
    });
    await waitFor(() => end !== undefined, { timeout: 20_000, what: "the end of the stream" });
    expect(end).toMatchObject({ state: "completed" });
    expect(messages).toEqual(rest.lines);
    // It reconnects with the id of the end, gets 204 and stops.
    await waitFor(() => stream.readyState === EventSource.CLOSED, { timeout: 20_000, what: "the stream to be closed" });
  });
});

describe("the metrics", () => {
  const found = findPromtool();
  it.skipIf(typeof found === "string")(
    `are as Prometheus wants them${typeof found === "string" ? `: ${found}` : ""}`,
    async () => {
      const { program } = found as { program: string };
      const { text } = await call("GET", "/metrics");
      expect(checkMetrics(program, text)).toEqual({ code: 0, output: "" });
      // The checker detects errors.
      expect(checkMetrics(program, `${text}\n1no 1\n`).code).not.toBe(0);
      recordFigure(
        "metrics of a server",
        text.split("\n").filter((line) => line && !line.startsWith("#")).length,
        "lines",
      );
    },
  );
});
