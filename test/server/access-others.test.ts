// Jobs of another tenant are reported as not found, a read token shows one job without internal fields, and tokens
// cannot be read from the database.
import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { signReadToken } from "../../src/client/read-token.ts";
import { createServer } from "../../src/server/index.ts";
import { routes } from "../../src/server/routes.ts";
import { connect } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";
import { countMentions } from "../support/database/tenant-rows.ts";
import { recordFigure } from "../support/figures.ts";
import { round } from "../support/processes/fault-checks.ts";
import { callerOf, makeTokens, signed } from "../support/server/callers.ts";
import { furnish, held, SECRET } from "../support/server/sample-data.ts";

const database = await freshDatabase();
const client = await connect(database.url);
const { server, admin, jobs } = await furnish(database);
const sw = server.stillwake;
const call = callerOf(server, admin);
const tokens = await makeTokens(server, client);
let created = 0;

async function fresh(): Promise<{ job: string; key: string }> {
  const key = `own-${++created}`;
  return { job: (await sw.enqueue(held, {}, { tenant: "acme", key })).id, key };
}

describe("a job of another tenant", () => {
  const token = () => tokens["globex operator"]!;

  it.each(
    routes
      .filter(({ path, access }) => path.startsWith("/v1/jobs/:id") && access !== "oversee")
      .map((route) => [`${route.method} ${route.path}`, route] as const),
  )("is not found: %s", async (_, route) => {
    const { job } = await fresh();
    const body = route.name === "signalJob" ? { event: "go" } : undefined;
    const send = async (id: string) => {
      const path = route.path.replace(":id", id).replace(/:name.*/, "report.txt");
      const { status, text } = await call(route.method, path, { token: token(), body });
      return { status, text: text.replaceAll(id, "ID") };
    };
    const missing = await send(randomUUID());
    expect(missing.status).toBe(404);
    expect(await send(job)).toEqual(missing);
  });

  it("is in no list, is not found by its key or its text, and cannot be controlled in bulk", async () => {
    const { job, key } = await fresh();
    for (const query of ["", "?tenant=acme", `?key=${key}`, `?parent=${jobs.good}`, "?state=completed", "?text=a"]) {
      const { json } = await call("GET", `/v1/jobs${query}`, { token: token() });
      expect(json.jobs.filter(({ tenant }: { tenant: string }) => tenant !== "globex")).toEqual([]);
    }
    const { json } = await call("POST", "/v1/jobs/cancel", { token: token(), body: { ids: [job] } });
    expect(json.jobs).toMatchObject([{ id: job, problem: { status: 404 } }]);
    expect((await sw.get(job)).state).toBe("queued");
  });

  it.each(["join", "wait", "replace", "reject"])(
    "keeps its key when another tenant enqueues with %s",
    async (onConflict) => {
      const { job, key } = await fresh();
      const mine = await call("POST", "/v1/jobs", {
        token: token(),
        body: { pipeline: "held", input: {}, key, onConflict },
      });
      expect(mine).toMatchObject({ status: 201, json: { existing: false } });
      expect(mine.json.id).not.toBe(job);
      expect(await sw.get(job)).toMatchObject({ state: "queued", cancel: null });
      const theirs = await sw.enqueue(held, {}, { tenant: "acme", idempotencyKey: key });
      const twice = await call("POST", "/v1/jobs", {
        token: token(),
        body: { pipeline: "held", input: {}, idempotencyKey: key },
      });
      expect(twice).toMatchObject({ status: 201, json: { existing: false } });
      expect(twice.json.id).not.toBe(theirs.id);
    },
  );

  it("cannot be created with a token of one tenant for another", async () => {
    const body = { pipeline: "held", input: {}, tenant: "acme" };
    expect((await call("POST", "/v1/jobs", { token: token(), body })).status).toBe(400);
  });

  it("takes about as long to reject as a job that does not exist", async () => {
    const times: Record<"foreign" | "missing", number[]> = { foreign: [], missing: [] };
    const id = (await fresh()).job;
    for (let n = 0; n < 120; n++) {
      const kind = n % 2 === 0 ? "foreign" : "missing";
      const startedAt = performance.now();
      await call("GET", `/v1/jobs/${kind === "foreign" ? id : randomUUID()}`, { token: token() });
      times[kind].push(performance.now() - startedAt);
    }
    const median = (list: number[]) => [...list].sort((a, b) => a - b)[list.length / 2]!;
    const [foreign, missing] = [median(times.foreign), median(times.missing)];
    recordFigure(
      "a job of another tenant: time to reject it, compared with one that does not exist",
      round(foreign / missing),
      "×",
      "medians of 60",
    );
    expect(foreign / missing).toBeGreaterThan(1 / 20);
    expect(foreign / missing).toBeLessThan(20);
  });
});

describe("a caller with a read token", () => {
  it("sees the state of the job, and no internal fields", async () => {
    for (const token of [
      signReadToken([SECRET], { job: jobs.bad }),
      signReadToken([SECRET], { pipeline: "work", key: "bad", tenant: "acme" }),
    ]) {
      const { json } = await call("GET", `/v1/jobs/${jobs.bad}`, { token });
      expect(json).toMatchObject({ state: "failed", input: null, worker: null, tenant: null, idempotencyKey: null });
      expect(json.failure.stack ?? json.failure.cause).toBeUndefined();
      const { text } = await call("GET", `/v1/jobs/${jobs.bad}/steps?outputs=true`, { token });
      expect(text).not.toContain('"output"');
    }
    const token = signReadToken([SECRET], { pipeline: "work", key: "k", tenant: "acme" });
    const { json } = await call("GET", "/v1/jobs?state=completed", { token });
    expect(json.jobs.map(({ id }: { id: string }) => id)).toEqual([jobs.good]);
  });

  it("may use a token signed with a previous secret, as long as the server has it", async () => {
    const both = createServer({
      url: database.url,
      secret: `a newer secret of thirty-two letters, ${SECRET}`.split(", "),
    });
    const send = new Request(`http://x/v1/jobs/${jobs.good}`, {
      headers: { authorization: `Bearer ${signed({ j: jobs.good }, 60)}` },
    });
    expect((await both.fetch(send)).status).toBe(200);
    await both.close();
  });
});

describe("tokens", () => {
  it("are not stored in the database", async () => {
    const { json } = await call("POST", "/v1/tokens", { body: { name: "made here", role: "operator" } });
    const { json: read } = await call("POST", "/v1/read-tokens", { body: { job: jobs.good } });
    await call("GET", "/v1/jobs", { token: json.token });
    await call("POST", "/v1/session", { body: { token: json.token } });
    const text = [...Object.values(tokens), admin, json.token, read.token].flatMap((token) => [token, token.slice(4)]);
    expect(await countMentions(client, text)).toEqual({});
    const { rows } = await client.query("select prefix, length(hash) as length from stillwake.tokens");
    expect(rows.every(({ prefix, length }) => prefix.length === 8 && length === 32)).toBe(true);
  });
});
