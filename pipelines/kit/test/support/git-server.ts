// A git server with injectable faults in front of a real one, and repositories that are written object by object, so that they
// can contain what git would not commit.
import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { deflateSync } from "node:zlib";
import { serveRepositories } from "../../src/demo/git-server.ts";

/**
 * A status; a sign-in page on one or several lines; a redirect; no response (hang); a response that stops midway (stall); a
 * connection reset, or closed in the middle of the pack (cut); a slow pack.
 */
export type Fault = number | "page" | "long page" | "redirect" | "hang" | "stall" | "reset" | "cut" | "slow";

export interface FaultyGitServer {
  url: string;
  root: string;
  /** Faults by repository; "*" for all others. */
  faults: Record<string, Fault>;
  requests: { method: string; path: string; authorization: string | undefined; agent: string | undefined }[];
  /** Bytes sent. */
  sent: number;
  close(): Promise<void>;
}

const SLOW_BYTES = 128 * 1024;
const SLOW_MS = 64;

export async function faultyGitServer({ root, token }: { root: string; token?: string }): Promise<FaultyGitServer> {
  const real = await serveRepositories({ root, toolPath: process.env.PATH ?? "", ...(token && { token }) });
  const server = http.createServer((request, response) => {
    const { method = "GET", url = "/", headers } = request;
    self.requests.push({ method, path: url, authorization: headers.authorization, agent: headers["user-agent"] });
    const [, repository = ""] = /^\/(.+)\.git\//.exec(url) ?? [];
    const fault = self.faults[repository] ?? self.faults["*"];
    if (!fail(fault, request, response)) forward(self, fault, real.url, request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const self: FaultyGitServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    root,
    faults: {},
    requests: [],
    sent: 0,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
      await real.close();
    },
  };
  return self;
}

function fail(fault: Fault | undefined, request: http.IncomingMessage, response: http.ServerResponse): boolean {
  if (typeof fault === "number") {
    const text: Record<number, string> = { 403: "Write access to repository not granted.", 429: "Too many requests" };
    response.writeHead(fault, { "content-type": "text/plain" }).end(text[fault] ?? "");
  } else if (fault === "page" || fault === "long page") {
    const line = fault === "page" ? "" : "\n";
    response.writeHead(200, { "content-type": "text/html" }).end(`<html>${line}<title>Sign in</title>${line}</html>`);
  } else if (fault === "redirect") {
    response.writeHead(302, { location: `http://${request.headers.host}/elsewhere/site.git/info/refs` }).end();
  } else if (fault === "reset") {
    request.socket.resetAndDestroy();
  } else if (fault !== "hang") {
    return false;
  }
  return true;
}

function forward(
  self: FaultyGitServer,
  fault: Fault | undefined,
  to: string,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): void {
  const upstream = http.request(new URL(request.url ?? "/", to), { method: request.method, headers: request.headers });
  upstream.on("error", () => response.destroy());
  upstream.on("response", async (reply) => {
    response.writeHead(reply.statusCode ?? 500, reply.headers);
    const isPack = request.method === "POST" && /packfile-uris|0011command=fetch/.test(await requestBody);
    try {
      for await (const part of reply as AsyncIterable<Buffer>) {
        for (let at = 0; at < part.length; at += SLOW_BYTES) {
          const piece = part.subarray(at, at + SLOW_BYTES);
          if (isPack && (fault === "cut" || fault === "stall")) {
            response.write(piece.subarray(0, Math.floor(piece.length / 2)));
            if (fault === "cut") setImmediate(() => response.destroy());
            return;
          }
          self.sent += piece.length;
          response.write(piece);
          if (isPack && fault === "slow")
            await new Promise((resolve) => setTimeout(resolve, (SLOW_MS * piece.length) / SLOW_BYTES));
          if (response.destroyed) return;
        }
      }
      response.end();
    } catch {
      response.destroy();
    } finally {
      if (response.destroyed) reply.destroy();
    }
  });
  const requestBody = new Promise<string>((resolve) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => resolve(Buffer.concat(parts).toString("latin1")));
  });
  request.pipe(upstream);
}

type Mode = "100644" | "100755" | "120000" | "160000" | "40000";
/** An entry of a tree. Names are not checked and may occur twice. */
export type Entry = readonly [mode: Mode, name: string, id: string];

export class Repository {
  readonly directory: string;

  constructor(root: string, name: string, branch = "main") {
    this.directory = path.join(root, `${name}.git`);
    for (const part of ["objects/pack", "refs/heads"])
      fs.mkdirSync(path.join(this.directory, part), { recursive: true });
    fs.writeFileSync(path.join(this.directory, "HEAD"), `ref: refs/heads/${branch}\n`);
    fs.writeFileSync(path.join(this.directory, "config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n");
  }

  blob(content: string | Buffer): string {
    return this.#write("blob", Buffer.from(content));
  }

  tree(entries: readonly Entry[]): string {
    const parts = entries.map(([mode, name, id]) =>
      Buffer.concat([Buffer.from(`${mode} ${name}\0`), Buffer.from(id, "hex")]),
    );
    return this.#write("tree", Buffer.concat(parts));
  }

  /** Commits a tree to a branch and returns the commit. */
  commit(tree: string, branch = "main"): string {
    const who = "Author <author@example.com> 1767225600 +0000";
    const id = this.#write("commit", Buffer.from(`tree ${tree}\nauthor ${who}\ncommitter ${who}\n\n${randomUUID()}\n`));
    this.point(branch, id);
    return id;
  }

  /** Commits files by path. A text that begins with "-> " is a link. */
  commitFiles(files: Readonly<Record<string, string | Buffer>>, branch = "main"): string {
    return this.commit(this.#folder(Object.entries(files)), branch);
  }

  point(branch: string, id: string): void {
    const file = path.join(this.directory, "refs/heads", branch);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, `${id}\n`);
  }

  #folder(files: [name: string, content: string | Buffer][]): string {
    const folders = new Map<string, [string, string | Buffer][]>();
    const entries: Entry[] = [];
    for (const [name, content] of files) {
      const slash = name.indexOf("/");
      if (slash >= 0) {
        const inside = folders.get(name.slice(0, slash)) ?? [];
        folders.set(name.slice(0, slash), [...inside, [name.slice(slash + 1), content]]);
      } else if (typeof content === "string" && content.startsWith("-> ")) {
        entries.push(["120000", name, this.blob(content.slice(3))]);
      } else {
        entries.push(["100644", name, this.blob(content)]);
      }
    }
    for (const [name, inside] of folders) entries.push(["40000", name, this.#folder(inside)]);
    const key = ([mode, name]: Entry) => Buffer.from(mode === "40000" ? `${name}/` : name);
    return this.tree(entries.sort((a, b) => key(a).compare(key(b))));
  }

  #write(type: string, content: Buffer): string {
    const whole = Buffer.concat([Buffer.from(`${type} ${content.length}\0`), content]);
    const id = createHash("sha1").update(whole).digest("hex");
    const file = path.join(this.directory, "objects", id.slice(0, 2), id.slice(2));
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, deflateSync(whole, { level: 1 }));
    return id;
  }
}
