// The dashboard and what pages of others embed: files that were built into the package, the same for everybody. What they show they ask the API for,
// with the caller's own token, so there is nothing here to guard but the way it is shown.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** The places of the dashboard. Each is the same document, which looks at its own address. */
const places = [
  "/",
  "/jobs",
  "/jobs/:id",
  "/enqueue",
  "/enqueue/:pipeline",
  "/pools",
  "/flow",
  "/schedules",
  "/webhooks",
  "/webhooks/:id",
  "/access",
  "/sign-in",
].map((place) => new RegExp(`^${place.replaceAll(/:\w+/g, "[^/]+")}$`));

// Text from outside can become a script by no way: no inline script, and nothing that turns text into markup.
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'self'; form-action 'self'; " +
  "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

interface File {
  type: string;
  tag: string;
  text: Buffer;
  zipped: Buffer;
}

const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

// Beside the compiled server; from the sources, where that has been built to.
const homes = ["../../web/", "../../../dist/web/"].map((place) => fileURLToPath(new URL(place, import.meta.url)));
let files: Map<string, File> | undefined;

/** Undefined for what is no page. `base` is the path the server is mounted at. */
export function pageAt(request: Request, base: string): Response | undefined {
  if (request.method !== "GET" && request.method !== "HEAD") return undefined;
  const { pathname } = new URL(request.url);
  const name = places.some((place) => place.test(pathname))
    ? "index.html"
    : pathname === "/watch"
      ? "watch.html"
      : pathname.slice(1);
  files ??= readFiles();
  const file = name.endsWith(".html") && pathname.endsWith(".html") ? undefined : files.get(name);
  if (!file) return undefined;
  const document = name.endsWith(".html");
  const headers = new Headers({ "content-type": file.type, vary: "accept-encoding" });
  if (document) headers.set("content-security-policy", policy);
  // The names of assets change with their content.
  if (name.startsWith("assets/")) headers.set("cache-control", "public, max-age=31536000, immutable");
  if (name === "embed.js") {
    headers.set("cache-control", "public, max-age=300");
    headers.set("access-control-allow-origin", "*");
    headers.set("etag", file.tag);
    if (request.headers.get("if-none-match") === file.tag) return new Response(null, { status: 304, headers });
  }
  if (document) {
    // Where nobody has said where it is mounted, its own address leads back to the top.
    const top = base === "/" ? "../".repeat(pathname.split("/").length - 2) || "./" : base;
    return answer(request, Buffer.from(file.text.toString().replace('<base href="/"', `<base href="${top}"`)), headers);
  }
  if (!/\bgzip\b/.test(request.headers.get("accept-encoding") ?? "")) return answer(request, file.text, headers);
  headers.set("content-encoding", "gzip");
  return answer(request, file.zipped, headers);
}

function answer(request: Request, content: Buffer, headers: Headers): Response {
  headers.set("content-length", String(content.length));
  return new Response(request.method === "HEAD" ? null : new Uint8Array(content), { headers });
}

/** The same for both encodings, hence weak. */
function tagOf(text: Buffer): string {
  return `W/"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"`;
}

/** Some hundred kilobytes, read once. Nothing where the package was built without them. */
function readFiles(): Map<string, File> {
  const home = homes.find((place) => fs.existsSync(path.join(place, "index.html")));
  if (!home) return new Map();
  const names = fs.readdirSync(home, { recursive: true, encoding: "utf8" });
  return new Map(
    names.flatMap((name) => {
      const type = types[path.extname(name)];
      if (!type) return [];
      const text = fs.readFileSync(path.join(home, name));
      return [[name.replaceAll(path.sep, "/"), { type, tag: tagOf(text), text, zipped: gzipSync(text) }]];
    }),
  );
}
