// The page: one document for all its addresses, and the files that were built for it. What it shows it asks the API for, so there is nothing here to guard but the way
// it is shown.
import fs from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";

// Text from outside can become a script by no way: no inline script, and nothing that turns text into markup.
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'self'; form-action 'self'; " +
  "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

interface File {
  type: string;
  text: Buffer;
  zipped: Buffer;
}

/** Undefined for what is no page. `place`: the path below `base`, which begins and ends with a slash. */
export type Page = (request: Request, place: string, base: string) => Response | undefined;

export interface PageOptions {
  /** Where it was built to. */
  folder: string;
  /** The addresses of the page; it looks itself which one it is. */
  places: RegExp;
}

export function openPage({ folder, places }: PageOptions): Page {
  let files: Map<string, File> | undefined;
  return (request, place, base) => {
    if (request.method !== "GET" && request.method !== "HEAD") return undefined;
    const isDocument = places.test(place);
    files ??= readFiles(folder);
    const file = files?.get(isDocument ? "index.html" : place);
    if (isDocument && !file)
      return new Response("The page has not been built. Its API is under api/.\n", { status: 503 });
    if (!file || (place.endsWith(".html") && !isDocument)) return undefined;
    const headers = new Headers({
      "content-type": file.type,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      vary: "accept-encoding",
      // The names of assets change with their content.
      "cache-control": place.startsWith("assets/") ? "public, max-age=31536000, immutable" : "no-store",
    });
    if (isDocument) {
      headers.set("content-security-policy", policy);
      return answer(
        request,
        Buffer.from(file.text.toString().replace('<base href="/"', `<base href="${base}"`)),
        headers,
      );
    }
    if (!/\bgzip\b/.test(request.headers.get("accept-encoding") ?? "")) return answer(request, file.text, headers);
    headers.set("content-encoding", "gzip");
    return answer(request, file.zipped, headers);
  };
}

function answer(request: Request, content: Buffer, headers: Headers): Response {
  headers.set("content-length", String(content.length));
  return new Response(request.method === "HEAD" ? null : new Uint8Array(content), { headers });
}

/** Some hundred kilobytes, read once. Read again while nothing has been built. */
function readFiles(folder: string): Map<string, File> | undefined {
  if (!fs.existsSync(path.join(folder, "index.html"))) return undefined;
  const names = fs.readdirSync(folder, { recursive: true, encoding: "utf8" });
  return new Map(
    names.flatMap((name) => {
      const type = types[path.extname(name)];
      if (!type) return [];
      const text = fs.readFileSync(path.join(folder, name));
      return [[name.replaceAll(path.sep, "/"), { type, text, zipped: gzipSync(text) }]];
    }),
  );
}
