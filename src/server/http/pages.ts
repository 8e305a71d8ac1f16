// Serves the dashboard and embed.js: static files from the package, the same for every caller. They load their data
// from the API with the caller's token, so the files themselves need no access control, only safe headers.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** The paths of the dashboard. Each serves the same document, whose router reads the URL. */
const dashboardPaths = [
  "/",
  "/jobs",
  "/jobs/:id",
  "/enqueue",
  "/enqueue/:pipeline",
  "/pools",
  "/limits",
  "/schedules",
  "/webhooks",
  "/webhooks/:id",
  "/access",
  "/sign-in",
].map((pattern) => new RegExp(`^${pattern.replaceAll(/:\w+/g, "[^/]+")}$`));

// Untrusted text cannot become a script: no inline scripts, and no API that turns text into markup.
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

// Next to the compiled server, or in dist/ when the sources are run.
const directories = ["../../web/", "../../../dist/web/"].map((dir) => fileURLToPath(new URL(dir, import.meta.url)));
let files: Map<string, File> | undefined;

/** Undefined if there is no such page. `base` is the path the server is mounted at. */
export function servePage(request: Request, base: string): Response | undefined {
  if (request.method !== "GET" && request.method !== "HEAD") return undefined;
  const { pathname } = new URL(request.url);
  const name = dashboardPaths.some((path) => path.test(pathname))
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
  // The names of assets contain a content hash.
  if (name.startsWith("assets/")) headers.set("cache-control", "public, max-age=31536000, immutable");
  if (name === "embed.js") {
    headers.set("cache-control", "public, max-age=300");
    headers.set("access-control-allow-origin", "*");
    headers.set("etag", file.tag);
    if (request.headers.get("if-none-match") === file.tag) return new Response(null, { status: 304, headers });
  }
  if (document) {
    // Without a configured path the base is relative, so that the page also works behind an unknown mount path.
    const root = base === "/" ? "../".repeat(pathname.split("/").length - 2) || "./" : base;
    const html = file.text.toString().replace('<base href="/"', `<base href="${root}"`);
    return respond(request, Buffer.from(html), headers);
  }
  if (!/\bgzip\b/.test(request.headers.get("accept-encoding") ?? "")) return respond(request, file.text, headers);
  headers.set("content-encoding", "gzip");
  return respond(request, file.zipped, headers);
}

function respond(request: Request, content: Buffer, headers: Headers): Response {
  headers.set("content-length", String(content.length));
  return new Response(request.method === "HEAD" ? null : new Uint8Array(content), { headers });
}

/** Weak, because it is the same for both encodings. */
function tagOf(text: Buffer): string {
  return `W/"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"`;
}

/** Reads some hundred kilobytes, once. Empty if the package was built without the dashboard. */
function readFiles(): Map<string, File> {
  const directory = directories.find((dir) => fs.existsSync(path.join(dir, "index.html")));
  if (!directory) return new Map();
  const names = fs.readdirSync(directory, { recursive: true, encoding: "utf8" });
  return new Map(
    names.flatMap((name) => {
      const type = types[path.extname(name)];
      if (!type) return [];
      const text = fs.readFileSync(path.join(directory, name));
      return [[name.replaceAll(path.sep, "/"), { type, tag: tagOf(text), text, zipped: gzipSync(text) }]];
    }),
  );
}
