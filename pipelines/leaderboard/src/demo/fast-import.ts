// Creates a bare repository from a git fast-import stream, for the sample and for tests. It ignores the machine's git
// configuration, so the same stream gives the same commits everywhere.
import { execFile, spawn } from "node:child_process";
import fs from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { isolatedGitEnv } from "@stillwake/kit/demo/git-server";

/** Default PATH to find git. */
const TOOL_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin";

/** The stream must end with "done"; HEAD is the branch main. Returns its commit. Throws ENOENT if git is not installed. */
export async function importRepository(
  directory: string,
  stream: Iterable<Buffer>,
  toolPath = TOOL_PATH,
): Promise<string> {
  await fs.mkdir(directory, { recursive: true });
  await git(directory, ["init", "--bare", "--template=", "--quiet", "--initial-branch=main"], toolPath);
  const importing = spawn("git", ["fast-import", "--quiet", "--done"], {
    env: { ...isolatedGitEnv(toolPath), GIT_DIR: directory },
    stdio: ["pipe", "ignore", "pipe"],
  });
  let stderr = "";
  importing.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr = (stderr + text).slice(0, 2000);
  });
  const exited = new Promise<void>((resolve, reject) => {
    importing.on("error", reject);
    importing.on("close", (code) =>
      code === 0 ? resolve() : reject(new Error(`git fast-import exited with ${code}: ${stderr}`)),
    );
  });
  // If git exits early, its stderr has the reason.
  await Promise.all([exited, pipeline(Readable.from(stream), importing.stdin).catch(() => {})]);
  return (await git(directory, ["rev-parse", "--verify", "HEAD"], toolPath)).toString("utf8").trim();
}

/** Git's output as bytes: names and addresses need not be UTF-8. */
export async function git(directory: string, args: string[], toolPath = TOOL_PATH): Promise<Buffer> {
  const env = { ...isolatedGitEnv(toolPath), GIT_DIR: directory };
  const { stdout } = await promisify(execFile)("git", args, { env, encoding: "buffer", maxBuffer: 2 ** 28 });
  return stdout;
}
