// The code of docs/frameworks, run with the real frameworks: enqueue in a route and in a transaction, a worker beside
// it, the dashboard and the live log mounted with the application's sign-in, shutdown.
import { beforeAll, describe, expect, it } from "vitest";
import { connectedDatabase } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { createGuideProject, freePort, waitUntilUp } from "./guide-project.ts";

const SHARED = "docs/frameworks/README.md";
const FRAMEWORKS = ["express", "fastify", "hono", "nestjs"];
const files: Record<string, string> = { nestjs: "src/nest.js" };
/** Next.js calls the handlers of its routes; this server does the same by the paths of their files. */
const NEXT = `
import http from "node:http";
import { getRequestListener } from "@hono/node-server";
import * as orders from "./app/api/orders/route.js";
import * as jobs from "./app/admin/jobs/[[...path]]/route.js";
import { closeOrders } from "./stillwake/orders.js";
import { dashboard } from "./stillwake/dashboard.js";
import { worker } from "./stillwake/worker.js";
const route = (request) => {
  const { pathname } = new URL(request.url);
  const handlers = pathname === "/orders" ? orders : pathname.startsWith("/admin/jobs") ? jobs : {};
  return handlers[request.method]?.(request) ?? new Response(null, { status: 404 });
};
await worker.start();
const server = http.createServer(getRequestListener(route, { overrideGlobalObjects: false })).listen(Number(process.env.PORT));
process.once("SIGTERM", async () => {
  server.close();
  await dashboard.close();
  await worker.drain();
  await closeOrders();
});
`;

const headers = { "content-type": "application/json" };
const session = { cookie: "theme=dark; session=open-sesame" };

describe.each([...FRAMEWORKS, "nextjs"])("the guide for %s", (framework) => {
  beforeAll(buildPackage);

  it("enqueues in a transaction, runs the job, shows it to admins and to the customer, and shuts down", async () => {
    const { database, stillwake, client } = await connectedDatabase();
    await client.query(
      "create table orders (id integer primary key generated always as identity, email text not null)",
    );
    const extra = framework === "nextjs" ? { "next-server.js": NEXT } : {};
    const project = createGuideProject([SHARED, `docs/frameworks/${framework}.md`], extra);
    const file = framework === "nextjs" ? "next-server.js" : (files[framework] ?? `src/${framework}.js`);
    const port = await freePort();
    const at = (place: string) => `http://127.0.0.1:${port}${place}`;
    const app = project.start(file, {
      PORT: String(port),
      DATABASE_URL: database.url,
      STILLWAKE_SECRET: "a secret of at least thirty-two letters",
      ADMIN_SESSION: "open-sesame",
    });
    await waitUntilUp(app, at("/nowhere"));

    // The route.
    const placed = await fetch(at("/orders"), { method: "POST", headers, body: '{"email":"ann@example.com"}' });
    expect(placed.status, app.output()).toBe(202);
    const { order, job, token } = (await placed.json()) as { order: number; job: string; token: string };
    expect(await stillwake.wait(job, { timeout: "30s" })).toMatchObject({ state: "completed", output: { order } });

    // An invalid input rolls the order back.
    const refused = await fetch(at("/orders"), { method: "POST", headers, body: '{"email":"nobody"}' }).catch(() => {});
    if (refused) expect(refused.status).toBeGreaterThanOrEqual(400);
    expect((await client.query("select email from orders")).rows).toEqual([{ email: "ann@example.com" }]);

    // The dashboard: its files, its data without and with the application's sign-in, an action with a body.
    for (const page of ["/admin/jobs", "/admin/jobs/", "/admin/jobs/jobs", `/admin/jobs/jobs/${job}`]) {
      const response = await fetch(at(page));
      expect(response.status, page).toBe(200);
      expect(await response.text(), page).toContain('<base href="/admin/jobs/"');
    }
    expect((await fetch(at("/admin/jobs/v1/jobs"))).status).toBe(401);
    const list = await fetch(at("/admin/jobs/v1/jobs?limit=5"), { headers: session });
    expect(((await list.json()) as { jobs: { id: string }[] }).jobs.map(({ id }) => id)).toEqual([job]);
    const body = JSON.stringify({ pipeline: "confirm-order", input: { order: 7, email: "bob@example.com" } });
    const action = { method: "POST", headers: { ...headers, ...session }, body };
    const enqueued = await fetch(at("/admin/jobs/v1/jobs"), action);
    expect(enqueued.status).toBe(201);
    const foreign = { ...action, headers: { ...action.headers, origin: "https://evil.example" } };
    expect((await fetch(at("/admin/jobs/v1/jobs"), foreign)).status).toBe(403);

    // The live log, with the token of the customer: this job and nothing else.
    const authorization = `Bearer ${token}`;
    const stream = await fetch(at(`/admin/jobs/v1/jobs/${job}/stream`), { headers: { authorization } });
    expect(await stream.text()).toContain("The confirmation is sent");
    expect((await fetch(at("/admin/jobs/v1/jobs"), { headers: { authorization } })).status).toBe(403);

    // An open stream does not delay the shutdown.
    const { id } = await stillwake.enqueue("confirm-order", { order: 8, email: "c@example.com" }, { delay: "1h" });
    const open = await fetch(at(`/admin/jobs/v1/jobs/${id}/stream`), { headers: session });
    const reader = open.body!.getReader();
    await reader.read();
    const printed = app.output();
    const stoppedAt = performance.now();
    app.child.kill("SIGTERM");
    expect(await app.exited, app.output()).toBe(framework === "nestjs" ? null : 0);
    for (let over = false; !over; )
      over = await reader.read().then(
        ({ done }) => done,
        () => true,
      );
    recordFigure(`shutdown of the ${framework} guide`, Math.round(performance.now() - stoppedAt), "ms");
    expect(app.output()).toBe(printed);
  }, 120_000);
});
