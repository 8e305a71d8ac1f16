// A read-only git server on 127.0.0.1 for the samples and for tests: `git http-backend` behind a small HTTP server.
import { execFile, spawn } from "node:child_process";
import fs from "node:fs/promises";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { REPOSITORY } from "../git/repository.ts";

export interface GitServerOptions {
  /** Contains bare repositories such as "acme/site.git". */
  root: string;
  /** If set, clients must send it as the password. */
  token?: string;
  /** PATH to find git. */
  toolPath: string;
  /** Whether partial clones are allowed. Default true. */
  filters?: boolean;
}

const LOCAL_ORIGIN = "http://127.0.0.1";

export interface GitServer {
  /** "http://127.0.0.1:4321" */
  url: string;
  close(): Promise<void>;
}

export async function serveRepositories(options: GitServerOptions): Promise<GitServer> {
  const server = http.createServer((request, response) => {
    handleRequest(request, response, options).catch(() => {
      if (!response.headersSent) response.statusCode = 500;
      response.end();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Creates the repositories with `make` and serves them. Returns undefined if git is not installed. */
export async function serveSample(
  options: GitServerOptions,
  make: (options: GitServerOptions) => Promise<void>,
): Promise<GitServer | undefined> {
  try {
    await make(options);
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return undefined;
    throw error;
  }
  return serveRepositories(options);
}

/** Creates a repository with one commit from a folder and returns its id. The same folder gives the same commit. */
export async function commitFolder(from: string, to: string, toolPath: string): Promise<string> {
  const env = {
    ...isolatedGitEnv(toolPath),
    GIT_DIR: to,
    GIT_AUTHOR_NAME: "Sample",
    GIT_AUTHOR_EMAIL: "sample@example.com",
    GIT_AUTHOR_DATE: "2026-01-01T00:00:00Z",
    GIT_COMMITTER_NAME: "Sample",
    GIT_COMMITTER_EMAIL: "sample@example.com",
    GIT_COMMITTER_DATE: "2026-01-01T00:00:00Z",
  };
  const git = async (args: string[], extraEnv: Record<string, string> = {}) =>
    (await promisify(execFile)("git", args, { env: { ...env, ...extraEnv } })).stdout.trim();
  await fs.mkdir(to, { recursive: true });
  await git(["init", "--bare", "--template=", "--quiet", "--initial-branch=main"]);
  await git(["add", "--all", "--force", "."], { GIT_WORK_TREE: from });
  const commit = await git(["commit-tree", await git(["write-tree"]), "-m", "The sample"]);
  await git(["update-ref", "refs/heads/main", commit]);
  return commit;
}

/** Environment for git without any configuration of this machine. */
export function isolatedGitEnv(toolPath: string): Record<string, string> {
  return {
    PATH: toolPath,
    LC_ALL: "C",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_CONFIG_COUNT: "1",
    GIT_CONFIG_KEY_0: "safe.directory",
    GIT_CONFIG_VALUE_0: "*",
  };
}

async function handleRequest(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { root, token, toolPath, filters = true }: GitServerOptions,
): Promise<void> {
  const requested = request.url ?? "/";
  if (!URL.canParse(requested, LOCAL_ORIGIN)) {
    response.writeHead(400).end();
    return;
  }
  const url = new URL(requested, LOCAL_ORIGIN);
  const [, repository = "", service = ""] = /^\/(.+)\.git\/(info\/refs|git-upload-pack)$/.exec(url.pathname) ?? [];
  if (token !== undefined && passwordOf(request) !== token) {
    response.writeHead(401, { "www-authenticate": 'Basic realm="git"' }).end();
    return;
  }
  const reads = service === "git-upload-pack" || url.searchParams.get("service") === "git-upload-pack";
  const exists = REPOSITORY.test(repository) && reads && (await isDirectory(path.join(root, `${repository}.git`)));
  if (!exists) {
    response.writeHead(404, { "content-type": "text/plain" }).end("Repository not found.\n");
    return;
  }
  const backend = spawn("git", ["http-backend"], {
    stdio: ["pipe", "pipe", "ignore"],
    env: {
      ...isolatedGitEnv(toolPath),
      // Like the large hosts: clients may fetch commits without files.
      ...(filters && { GIT_CONFIG_COUNT: "2", GIT_CONFIG_KEY_1: "uploadpack.allowFilter", GIT_CONFIG_VALUE_1: "true" }),
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      PATH_INFO: `/${repository}.git/${service}`,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method ?? "GET",
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      CONTENT_LENGTH: request.headers["content-length"] ?? "",
      HTTP_CONTENT_ENCODING: String(request.headers["content-encoding"] ?? ""),
      GIT_PROTOCOL: String(request.headers["git-protocol"] ?? ""),
      REMOTE_ADDR: "127.0.0.1",
    },
  });
  backend.on("error", () => response.destroy());
  backend.stdin.on("error", () => {});
  response.on("close", () => backend.kill());
  request.pipe(backend.stdin);
  await relay(backend.stdout, response);
}

/** Converts CGI output (headers, an empty line, the body) to an HTTP response. */
async function relay(output: Readable, response: http.ServerResponse): Promise<void> {
  let head = Buffer.alloc(0);
  for await (const part of output.iterator({ destroyOnReturn: false })) {
    head = Buffer.concat([head, part as Buffer]);
    if (head.includes("\r\n\r\n")) break;
  }
  const end = head.indexOf("\r\n\r\n");
  if (end < 0) response.statusCode = 500;
  for (const line of head.subarray(0, Math.max(end, 0)).toString("latin1").split("\r\n")) {
    const [, name = "", value = ""] = /^([^:]+): *(.*)$/.exec(line) ?? [];
    if (name.toLowerCase() === "status") response.statusCode = Number.parseInt(value, 10);
    else if (name) response.setHeader(name, value);
  }
  if (end >= 0) response.write(head.subarray(end + 4));
  // The client may have disconnected.
  await pipeline(output, response).catch(() => {});
}

async function isDirectory(directory: string): Promise<boolean> {
  return (await fs.stat(directory).catch(() => undefined))?.isDirectory() ?? false;
}

function passwordOf({ headers }: http.IncomingMessage): string | undefined {
  const [, encoded] = /^Basic ([\w+/=]+)$/.exec(headers.authorization ?? "") ?? [];
  const text = encoded && Buffer.from(encoded, "base64").toString("utf8");
  return text ? text.slice(text.indexOf(":") + 1) : undefined;
}
