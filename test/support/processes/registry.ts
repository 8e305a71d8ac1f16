// An npm registry with the packages of this repository as they would be published. Everything else comes from the registry
// that npm is configured with.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { buildPackage, ROOT } from "./build.ts";

export interface Registry {
  url: string;
  close(): void;
}

/** The environment without the settings of the npm that runs the tests, except for where packages come from. */
export function cleanEnv(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) =>
        !/^(npm_(?!config_(registry|cache|userconfig))|STILLWAKE_|DATABASE_URL$|NODE_ENV$|VITEST)/i.test(name),
    ),
  );
}

/** Packs stillwake and create-stillwake into `dir`. */
export function packPackages(dir: string): { manifest: { name: string; version: string }; file: string }[] {
  buildPackage();
  return [ROOT, path.join(ROOT, "create-stillwake")].map((cwd) => {
    const args = ["pack", "--json", "--pack-destination", dir];
    const [packed] = JSON.parse(execFileSync("npm", args, { cwd, env: cleanEnv(), stdio: "pipe" }).toString());
    const manifest = JSON.parse(fs.readFileSync(path.join(cwd, "package.json"), "utf8"));
    return { manifest, file: path.join(dir, packed.filename) };
  });
}

export async function startRegistry(packages: ReturnType<typeof packPackages>): Promise<Registry> {
  const upstream = execFileSync("npm", ["config", "get", "registry"], { env: cleanEnv(), stdio: "pipe" })
    .toString()
    .trim()
    .replace(/\/$/, "");
  const cached = new Map<string, Promise<{ status: number; type: string; body: Buffer }>>();
  const forward = async (method: string, url: string, headers: http.IncomingHttpHeaders, body: Buffer) => {
    const { accept = "*/*", "content-type": type, "content-encoding": encoding } = headers;
    const response = await fetch(`${upstream}${url}`, {
      method,
      headers: { accept, ...(type && { "content-type": type }), ...(encoding && { "content-encoding": encoding }) },
      ...(body.length > 0 && { body }),
    });
    const contentType = response.headers.get("content-type") ?? "application/octet-stream";
    return { status: response.status, type: contentType, body: Buffer.from(await response.arrayBuffer()) };
  };
  const server = http.createServer(async (request, response) => {
    const { method = "GET", url = "/", headers } = request;
    const known = packages.find(({ manifest }) => url === `/${manifest.name}`);
    const tarball = packages.find(({ file }) => url === `/-/${path.basename(file)}`);
    if (known) return void response.setHeader("content-type", "application/json").end(describe(known));
    if (tarball) return void fs.createReadStream(tarball.file).pipe(response);
    const body = Buffer.concat(await request.toArray());
    const key = `${method} ${url} ${headers.accept}`;
    const answer = cached.get(key) ?? forward(method, url, headers, body);
    if (method === "GET") cached.set(key, answer);
    try {
      const { status, type, body } = await answer;
      response.writeHead(status, { "content-type": type }).end(body);
    } catch {
      cached.delete(key);
      response.writeHead(502).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  function describe({ manifest, file }: (typeof packages)[number]): string {
    const integrity = `sha512-${createHash("sha512").update(fs.readFileSync(file)).digest("base64")}`;
    const dist = { tarball: `${url}/-/${path.basename(file)}`, integrity };
    const { name, version } = manifest;
    return JSON.stringify({ name, "dist-tags": { latest: version }, versions: { [version]: { ...manifest, dist } } });
  }

  return {
    url,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
