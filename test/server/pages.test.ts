// The dashboard as the server hands it out: files that are the same for everybody, and headers that leave text no way to become a script (S9).
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

const ask = (path: string, init: RequestInit = {}, of: StillwakeServer = server) =>
  of.fetch(new Request(`http://localhost${path}`, init));

function another(options: Partial<ServerOptions>): StillwakeServer {
  const made = createServer({ url: database.url, ...options });
  onTestFinished(() => made.close());
  return made;
}

const PLACES = ["/", "/jobs", "/jobs/0190", "/enqueue", "/enqueue/report", "/pools", "/flow", "/schedules"].concat([
  "/webhooks",
  "/webhooks/1",
  "/access",
  "/sign-in",
]);

describe("the pages", () => {
  it.each(PLACES)("has the dashboard at %s for whoever comes, without a token", async (place) => {
    const answer = await ask(place);
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(await answer.text()).toContain('<div id="root">');
  });

  it("S9: lets no text become a script: no inline script or style, and trusted types for the rest", async () => {
    for (const place of ["/", "/watch"]) {
      const answer = await ask(place);
      const policy = answer.headers.get("content-security-policy")!;
      expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain("unsafe");
      const html = await answer.text();
      expect(html).not.toMatch(/<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/);
      // Nothing of it comes from elsewhere.
      expect(html).not.toMatch(/(src|href)="(https?:)?\/\//);
      expect(answer.headers.get("cache-control")).toBe("no-store");
    }
  });

  it("sends assets whose names change with their content, to be kept for ever, packed where the browser can unpack", async () => {
    const html = await (await ask("/")).text();
    const names = [...html.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)].map(([, name]) => name!);
    expect(names.some((name) => name.endsWith(".js"))).toBe(true);
    expect(names.some((name) => name.endsWith(".css"))).toBe(true);
    let bytes = gzipSync(html).length;
    for (const name of names) {
      const plain = await ask(`/${name}`);
      expect(plain.headers.get("cache-control")).toContain("immutable");
      expect(plain.headers.get("content-encoding")).toBeNull();
      const packed = await ask(`/${name}`, { headers: { "accept-encoding": "br, gzip" } });
      expect(packed.headers.get("content-encoding")).toBe("gzip");
      expect(packed.headers.get("vary")).toContain("accept-encoding");
      bytes += (await packed.arrayBuffer()).byteLength;
      expect((await plain.arrayBuffer()).byteLength).toBeGreaterThan(0);
    }
    recordFigure("dashboard: first page, gzipped", bytes / 1000, "kB");
    expect(bytes).toBeLessThan(250_000);
  });

  it("has the element for pages of others as one script that any origin may load", async () => {
    const answer = await ask("/embed.js", { headers: { origin: "https://shop.example" } });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("access-control-allow-origin")).toBe("*");
    expect(await answer.text()).not.toMatch(/\bimport\s*[("{]/);
    const known = { "if-none-match": answer.headers.get("etag")! };
    expect((await ask("/embed.js", { headers: known })).status).toBe(304);
  });

  it("answers HEAD without content, and other methods not at all", async () => {
    const head = await ask("/jobs", { method: "HEAD" });
    expect(head.status).toBe(200);
    expect(await head.text()).toBe("");
    expect((await ask("/jobs", { method: "POST" })).status).toBe(404);
  });

  it.each([
    "/index.html",
    "/watch.html",
    "/assets",
    "/assets/",
    "/assets/none.js",
    "/jobs/a/b",
    "/assets/..%2findex.html",
  ])("has nothing at %s", async (place) => {
    const answer = await ask(place);
    expect(answer.status).toBe(404);
    expect(answer.headers.get("content-type")).toContain("application/problem+json");
  });

  it("names the path it is mounted at, so that its addresses lead there", async () => {
    const mounted = another({ path: "/inside/stillwake" });
    expect(await (await ask("/jobs", {}, mounted)).text()).toContain('<base href="/inside/stillwake/"');
    // Without a word on it they lead to the top from wherever they are.
    for (const [place, up] of Object.entries({ "/": "./", "/jobs": "./", "/jobs/1": "../", "/watch": "./" })) {
      expect(await (await ask(place)).text()).toContain(`<base href="${up}"`);
    }
    for (const path of ["stillwake", '/"><script>', "/a b", "//evil.example"]) {
      expect(() => createServer({ url: database.url, path })).toThrow(/mounted/);
    }
  });

  it("without tokens, is not shown under a name that was made to lead here", async () => {
    const open = another({ auth: "none" });
    const answer = await open.fetch(new Request("http://rebound.example/", { headers: { host: "rebound.example" } }));
    expect(answer.status).toBe(403);
  });
});
