// The dashboard as served by the server: static files, and headers that keep text from becoming a script.
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createServer, type ServerOptions, type StillwakeServer } from "../../src/server/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";

const database = await freshDatabase();
const server = createServer({ url: database.url });
beforeAll(buildPackage);
afterAll(() => server.close());

const send = (path: string, init: RequestInit = {}, of: StillwakeServer = server) =>
  of.fetch(new Request(`http://localhost${path}`, init));

function another(options: Partial<ServerOptions>): StillwakeServer {
  const created = createServer({ url: database.url, ...options });
  onTestFinished(() => created.close());
  return created;
}

const PLACES = ["/", "/jobs", "/jobs/0190", "/enqueue", "/enqueue/report", "/pools", "/limits", "/schedules"].concat([
  "/webhooks",
  "/webhooks/1",
  "/access",
  "/sign-in",
]);

describe("the pages", () => {
  it.each(PLACES)("include the dashboard at %s, without a token", async (place) => {
    const response = await send(place);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(await response.text()).toContain('<div id="root">');
  });

  it("let no text become a script: no inline script or style, and trusted types", async () => {
    for (const place of ["/", "/watch"]) {
      const response = await send(place);
      const policy = response.headers.get("content-security-policy")!;
      expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain("unsafe");
      const html = await response.text();
      expect(html).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/);
      // No external resources.
      expect(html).not.toMatch(/(src|href)="(https?:)?\/\//);
      expect(response.headers.get("cache-control")).toBe("no-store");
    }
  });

  it("include assets with a content hash in their names, cached forever and compressed if the browser accepts it", async () => {
    const html = await (await send("/")).text();
    const names = [...html.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)].map(([, name]) => name!);
    expect(names.some((name) => name.endsWith(".js"))).toBe(true);
    expect(names.some((name) => name.endsWith(".css"))).toBe(true);
    let bytes = gzipSync(html).length;
    for (const name of names) {
      const plain = await send(`/${name}`);
      expect(plain.headers.get("cache-control")).toContain("immutable");
      expect(plain.headers.get("content-encoding")).toBeNull();
      const packed = await send(`/${name}`, { headers: { "accept-encoding": "br, gzip" } });
      expect(packed.headers.get("content-encoding")).toBe("gzip");
      expect(packed.headers.get("vary")).toContain("accept-encoding");
      bytes += (await packed.arrayBuffer()).byteLength;
      expect((await plain.arrayBuffer()).byteLength).toBeGreaterThan(0);
    }
    recordFigure("dashboard: first page, gzipped", bytes / 1000, "kB");
    expect(bytes).toBeLessThan(250_000);
  });

  it("include the custom element as one script that any origin may load", async () => {
    const response = await send("/embed.js", { headers: { origin: "https://shop.example" } });
    expect(response.status).toBe(200);
    expect(response.headers.get("access-control-allow-origin")).toBe("*");
    expect(await response.text()).not.toMatch(/\bimport\s*[("{]/);
    const known = { "if-none-match": response.headers.get("etag")! };
    expect((await send("/embed.js", { headers: known })).status).toBe(304);
  });

  it("respond to HEAD without content, and reject other methods", async () => {
    const head = await send("/jobs", { method: "HEAD" });
    expect(head.status).toBe(200);
    expect(await head.text()).toBe("");
    expect((await send("/jobs", { method: "POST" })).status).toBe(404);
  });

  it.each([
    "/index.html",
    "/watch.html",
    "/assets",
    "/assets/",
    "/assets/none.js",
    "/jobs/a/b",
    "/assets/..%2findex.html",
  ])("include nothing at %s", async (place) => {
    const response = await send(place);
    expect(response.status).toBe(404);
    expect(response.headers.get("content-type")).toContain("application/problem+json");
  });

  it("contain the mount path as their base", async () => {
    const mounted = another({ path: "/inside/stillwake" });
    expect(await (await send("/jobs", {}, mounted)).text()).toContain('<base href="/inside/stillwake/"');
    // Without a mount path the base is relative.
    for (const [place, up] of Object.entries({ "/": "./", "/jobs": "./", "/jobs/1": "../", "/watch": "./" })) {
      expect(await (await send(place)).text()).toContain(`<base href="${up}"`);
    }
    for (const path of ["stillwake", '/"><script>', "/a b", "//evil.example"]) {
      expect(() => createServer({ url: database.url, path })).toThrow(/mount path/);
    }
  });

  it("are not served under a foreign host name, without tokens", async () => {
    const open = another({ auth: "none" });
    const response = await open.fetch(new Request("http://rebound.example/", { headers: { host: "rebound.example" } }));
    expect(response.status).toBe(403);
  });
});
