// The server mounted under a path of an application.
import { once } from "node:events";
import http, { type IncomingMessage, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { createServer } from "../../src/server/index.ts";
import { cleanUp } from "../support/cleanup.ts";
import { openStillwake } from "../support/database/connections.ts";
import { freshDatabase } from "../support/database/database.ts";

const { url } = await freshDatabase();
// The dashboard has a page /jobs too: the mount path must be removed exactly once.
const server = createServer({
  url,
  path: "/jobs",
  authenticate: () => ({ name: "ann", role: "admin", tenant: null, id: null, expiresAt: null }),
});
cleanUp(() => server.close());
const base = '<base href="/jobs/"';
const body = '{"pipeline":"mounted","input":{"number":1}}';
const post = { method: "POST", headers: { "content-type": "application/json" }, body };

async function serve(listener: RequestListener): Promise<string> {
  const open = http.createServer(listener).listen(0, "127.0.0.1");
  cleanUp(() => open.close());
  await once(open, "listening");
  return `http://127.0.0.1:${(open.address() as AddressInfo).port}`;
}

/** As a router of Express does. */
function removeMountPath(incoming: IncomingMessage): void {
  Object.assign(incoming, { originalUrl: incoming.url });
  incoming.url = incoming.url!.replace(/^\/jobs/, "") || "/";
}

describe("a mounted server", () => {
  it("handles requests whose URL contains the mount path", async () => {
    for (const path of ["/jobs", "/jobs/", "/jobs/jobs", "/jobs/jobs/1", "/jobs/watch"]) {
      const response = await server.handle(new Request(`http://localhost${path}`));
      expect([path, response.status]).toEqual([path, 200]);
      expect(await response.text()).toContain(base);
    }
    const me = await server.handle(new Request("http://localhost/jobs/v1/me?x=1"));
    expect(me.status).toBe(400); // The query is part of the request: x is unknown.
  });

  it("refuses requests outside of its mount path, with the remedy", async () => {
    for (const path of ["/", "/jobsx", "/v1/me"]) {
      const response = await server.handle(new Request(`http://localhost${path}`));
      expect(response.status).toBe(404);
      expect(await response.text()).toContain("createServer({ path })");
    }
  });

  it("is a request listener of Node, whether or not a router has removed the mount path", async () => {
    await openStillwake(url).register(pipeline("mounted"));
    const whole = await serve(server.listener);
    const routed = await serve((incoming, outgoing) => {
      removeMountPath(incoming);
      server.listener(incoming, outgoing);
    });
    for (const at of [whole, routed]) {
      for (const path of ["/jobs", "/jobs/jobs"]) expect(await (await fetch(`${at}${path}`)).text()).toContain(base);
      expect((await fetch(`${at}/jobs/v1/jobs`, post)).status).toBe(201);
      expect((await fetch(`${at}/jobs/v1/jobs?state=queued`)).status).toBe(200);
    }
  });

  it("uses a body that the application has parsed already", async () => {
    await openStillwake(url).register(pipeline("mounted"));
    const at = await serve(async (incoming, outgoing) => {
      const chunks: Buffer[] = [];
      for await (const chunk of incoming) chunks.push(chunk);
      server.listener(Object.assign(incoming, { body: JSON.parse(String(Buffer.concat(chunks))) }), outgoing);
    });
    expect((await fetch(`${at}/jobs/v1/jobs`, post)).status).toBe(201);
  });
});
