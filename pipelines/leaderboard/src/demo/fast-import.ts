// Makes a bare repository from a stream of git fast-import, for the sample and for tests. No configuration of this machine has a part in it: the same stream
// gives the same commits everywhere.
import { execFile, spawn } from "node:child_process";
import fs from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { quietGit } from "@stillwake/kit/demo/git-server";

/** Where git is looked for unless said: where systems put it. */
const TOOL_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin";

/** The stream ends with "done": one that broke off gives no repository. HEAD is the branch main. Answers its commit; fails with ENOENT where there is no git. */
export async function importRepository(
  directory: string,
  stream: Iterable<Buffer>,
  toolPath = TOOL_PATH,
): Promise<string> {
  await fs.mkdir(directory, { recursive: true });
  await git(directory, ["init", "--bare", "--template=", "--quiet", "--initial-branch=main"], toolPath);
  const importing = spawn("git", ["fast-import", "--quiet", "--done"], {
    env: { ...quietGit(toolPath), GIT_DIR: directory },
    stdio: ["pipe", "ignore", "pipe"],
  });
  let complaint = "";
  importing.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(0, 2000);
  });
  const ended = new Promise<void>((resolve, reject) => {
    importing.on("error", reject);
    importing.on("close", (code) =>
      code === 0 ? resolve() : reject(new Error(`git fast-import ended with ${code}: ${complaint}`)),
    );
  });
  // Where git ends early, it says why itself.
  await Promise.all([ended, pipeline(Readable.from(stream), importing.stdin).catch(() => {})]);
  return (await git(directory, ["rev-parse", "--verify", "HEAD"], toolPath)).toString("utf8").trim();
}

/** What git writes, as bytes: names and addresses in it need not be UTF-8. */
export async function git(directory: string, args: string[], toolPath = TOOL_PATH): Promise<Buffer> {
  const env = { ...quietGit(toolPath), GIT_DIR: directory };
  const { stdout } = await promisify(execFile)("git", args, { env, encoding: "buffer", maxBuffer: 2 ** 28 });
  return stdout;
}
