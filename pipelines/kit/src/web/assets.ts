// Serves the built page: one HTML document for all its routes, and its assets. The page gets its data from the API, so
// these files need no access control, only headers that restrict the browser.
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";

// No inline script, and no way to turn text into markup.
const policy = (media: string) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src ${media}; connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'`;

const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

interface File {
  type: string;
  content: Buffer;
  gzipped: Buffer;
}

/** Returns undefined if the path is not part of the page. `route`: the path below `base`, which begins and ends with "/". */
export type Page = (request: Request, route: string, base: string) => Response | undefined;

export interface PageOptions {
  /** The build output. */
  folder: string;
  /** Paths of the page's routes, which the page's own router handles. */
  routes: RegExp;
  /** Where the page may play video and sound from, as in a content security policy. Default: nowhere. */
  media?: string;
}

export function openPage({ folder, routes, media = "'none'" }: PageOptions): Page {
  let files: Map<string, File> | undefined;
  return (request, route, base) => {
    if (request.method !== "GET" && request.method !== "HEAD") return undefined;
    const isDocument = routes.test(route);
    files ??= readFiles(folder);
    const file = files?.get(isDocument ? "index.html" : route);
    if (isDocument && !file)
      return new Response("The page is not built: run npm run build. The API is under api/.\n", { status: 503 });
    if (!file || (route.endsWith(".html") && !isDocument)) return undefined;
    const headers = new Headers({
      "content-type": file.type,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      vary: "accept-encoding",
      // Asset names contain a hash of their content.
      "cache-control": route.startsWith("assets/") ? "public, max-age=31536000, immutable" : "no-store",
    });
    if (isDocument) {
      headers.set("content-security-policy", policy(media));
      return respond(
        request,
        Buffer.from(file.content.toString().replace('<base href="/"', `<base href="${base}"`)),
        headers,
      );
    }
    if (!/\bgzip\b/.test(request.headers.get("accept-encoding") ?? "")) return respond(request, file.content, headers);
    headers.set("content-encoding", "gzip");
    return respond(request, file.gzipped, headers);
  };
}

function respond(request: Request, content: Buffer, headers: Headers): Response {
  headers.set("content-length", String(content.length));
  return new Response(request.method === "HEAD" ? null : new Uint8Array(content), { headers });
}

/** Read once; retried while there is no build. */
function readFiles(folder: string): Map<string, File> | undefined {
  if (!fs.existsSync(path.join(folder, "index.html"))) return undefined;
  const names = fs.readdirSync(folder, { recursive: true, encoding: "utf8" });
  return new Map(
    names.flatMap((name) => {
      const type = types[path.extname(name)];
      if (!type) return [];
      const content = fs.readFileSync(path.join(folder, name));
      return [[name.replaceAll(path.sep, "/"), { type, content, gzipped: gzipSync(content) }]];
    }),
  );
}
