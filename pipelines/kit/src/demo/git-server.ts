// A git server on this machine, for the samples that come with the product and for tests: real git behind a few lines of HTTP, read only, on 127.0.0.1.
import { execFile, spawn } from "node:child_process";
import fs from "node:fs/promises";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { REPOSITORY } from "../git/repository.ts";

export interface RepositoriesOptions {
  /** Bare repositories lie below it as "acme/site.git". */
  root: string;
  /** Whoever asks has to show it as a password. */
  token?: string;
  /** Where git is looked for. */
  toolPath: string;
  /** Whether one can ask for a part of a repository; true unless said. */
  filters?: boolean;
}

const HERE = "http://127.0.0.1";

export interface GitServer {
  /** "http://127.0.0.1:4321", to be set as the address of a provider. */
  url: string;
  close(): Promise<void>;
}

export async function serveRepositories(options: RepositoriesOptions): Promise<GitServer> {
  const server = http.createServer((request, response) => {
    answer(request, response, options).catch(() => {
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

/** The same, once `make` has made the repositories. Undefined where there is no git: a page then says what is missing. */
export async function serveSample(
  options: RepositoriesOptions,
  make: (options: RepositoriesOptions) => Promise<void>,
): Promise<GitServer | undefined> {
  try {
    await make(options);
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return undefined;
    throw error;
  }
  return serveRepositories(options);
}

/** Makes a repository of one commit from a folder. The same folder gives the same commit. Answers its id. */
export async function commitFolder(from: string, to: string, toolPath: string): Promise<string> {
  const env = {
    ...quietGit(toolPath),
    GIT_DIR: to,
    GIT_AUTHOR_NAME: "Sample",
    GIT_AUTHOR_EMAIL: "sample@example.com",
    GIT_AUTHOR_DATE: "2026-01-01T00:00:00Z",
    GIT_COMMITTER_NAME: "Sample",
    GIT_COMMITTER_EMAIL: "sample@example.com",
    GIT_COMMITTER_DATE: "2026-01-01T00:00:00Z",
  };
  const git = async (args: string[], more: Record<string, string> = {}) =>
    (await promisify(execFile)("git", args, { env: { ...env, ...more } })).stdout.trim();
  await fs.mkdir(to, { recursive: true });
  await git(["init", "--bare", "--template=", "--quiet", "--initial-branch=main"]);
  await git(["add", "--all", "--force", "."], { GIT_WORK_TREE: from });
  const commit = await git(["commit-tree", await git(["write-tree"]), "-m", "The sample"]);
  await git(["update-ref", "refs/heads/main", commit]);
  return commit;
}

/** No configuration of this machine has a part in it. */
export function quietGit(toolPath: string): Record<string, string> {
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

async function answer(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { root, token, toolPath, filters = true }: RepositoriesOptions,
): Promise<void> {
  const asked = request.url ?? "/";
  if (!URL.canParse(asked, HERE)) {
    response.writeHead(400).end();
    return;
  }
  const url = new URL(asked, HERE);
  const [, repository = "", service = ""] = /^\/(.+)\.git\/(info\/refs|git-upload-pack)$/.exec(url.pathname) ?? [];
  if (token !== undefined && passwordOf(request) !== token) {
    response.writeHead(401, { "www-authenticate": 'Basic realm="git"' }).end();
    return;
  }
  const reads = service === "git-upload-pack" || url.searchParams.get("service") === "git-upload-pack";
  const known = REPOSITORY.test(repository) && reads && (await isThere(path.join(root, `${repository}.git`)));
  if (!known) {
    response.writeHead(404, { "content-type": "text/plain" }).end("Repository not found.\n");
    return;
  }
  const backend = spawn("git", ["http-backend"], {
    stdio: ["pipe", "pipe", "ignore"],
    env: {
      ...quietGit(toolPath),
      // As the large hosts do: whoever wants no files need not be sent any.
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

/** What a CGI program writes: headers, an empty line, the body. */
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
  // Whoever asked may have left.
  await pipeline(output, response).catch(() => {});
}

async function isThere(directory: string): Promise<boolean> {
  return (await fs.stat(directory).catch(() => undefined))?.isDirectory() ?? false;
}

function passwordOf({ headers }: http.IncomingMessage): string | undefined {
  const [, encoded] = /^Basic ([\w+/=]+)$/.exec(headers.authorization ?? "") ?? [];
  const text = encoded && Buffer.from(encoded, "base64").toString("utf8");
  return text ? text.slice(text.indexOf(":") + 1) : undefined;
}
