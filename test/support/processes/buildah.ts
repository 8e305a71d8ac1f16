// Builds and runs container images with buildah, without a container engine. The base image is replaced by one made of
// Debian packages and a Node from npm, under the same name. Needs root and access to Debian and npm.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { install } from "./debian.ts";
import { installNode } from "./other-node.ts";

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

export class Buildah {
  readonly #folder: string;

  constructor(folder: string) {
    install("buildah", "debootstrap");
    this.#folder = folder;
  }

  /** Runs a buildah command and returns its output. */
  async call(verb: string, ...args: string[]): Promise<string> {
    return output("buildah", [...this.#store(), verb, ...args], this.#folder);
  }

  /** Builds an image from a Dockerfile whose base image exists; with a target, only that stage. */
  async build(name: string, dockerfile: string, root: string, target?: string): Promise<void> {
    const options = ["--ignorefile", `${dockerfile}.dockerignore`, "--isolation", "chroot", "--pull-never"];
    if (target) options.push("--target", target);
    await this.call("bud", ...options, "-f", dockerfile, "-t", name, root);
  }

  /** Runs a program in a container as the image's user. buildah ignores the entrypoint, so `args` is the whole command. */
  start(container: string, words: readonly string[], env: Record<string, string> = {}) {
    const settings = Object.entries(env).flatMap(([name, value]) => ["--env", `${name}=${value}`]);
    const args = [...this.#store(), "run", "--isolation", "chroot", ...settings, container, "--", ...words];
    return begin("buildah", args, this.#folder);
  }

  /** Creates the base image of the Dockerfile: Debian by debootstrap, with its major version of Node, this machine's certificates, and the base's user. */
  async createBaseImage(dockerfile: string): Promise<void> {
    const name = /^FROM (\S+)/m.exec(fs.readFileSync(dockerfile, "utf8"))![1]!;
    const root = path.join(this.#folder, "root");
    const packages = "--include=ca-certificates,libstdc++6";
    await output("debootstrap", ["--variant=minbase", packages, "bookworm", root], this.#folder);
    const local = path.join(root, "usr/local");
    const [, major] = /^node:(\d+)\./.exec(name)!;
    fs.copyFileSync(installNode(Number(major), this.#folder), path.join(local, "bin/node"));
    const npm = path.join(path.dirname(fs.realpathSync("/usr/bin/npm")), "..");
    fs.cpSync(npm, path.join(local, "lib/node_modules/npm"), { recursive: true, verbatimSymlinks: true });
    fs.symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", path.join(local, "bin/npm"));
    fs.copyFileSync("/etc/ssl/certs/ca-certificates.crt", path.join(root, "etc/ssl/certs/ca-certificates.crt"));
    fs.appendFileSync(path.join(root, "etc/passwd"), "node:x:1000:1000::/home/node:/bin/bash\n");
    fs.appendFileSync(path.join(root, "etc/group"), "node:x:1000:\n");
    const empty = (await this.call("from", "scratch")).trim();
    await this.call("copy", empty, root, "/");
    const env = [
      "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
      "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt",
    ];
    await this.call("config", ...env.flatMap((one) => ["--env", one]), empty);
    await this.call("commit", "--rm", empty, name);
    fs.rmSync(root, { recursive: true });
  }

  #store(): string[] {
    const [root, run] = ["storage", "run"].map((name) => path.join(this.#folder, name));
    return ["--storage-driver", "vfs", "--root", root!, "--runroot", run!];
  }
}

/** Runs a program and returns its output; throws its error output if it fails. */
export async function output(program: string, args: readonly string[], cwd: string): Promise<string> {
  const { code, stdout, stderr } = await begin(program, args, cwd).ended;
  if (code === 0) return stdout;
  throw new Error(`${program} ${args.join(" ")} exited with ${code}:\n${stderr.slice(-3000)}${stdout.slice(-3000)}`);
}

function begin(program: string, args: readonly string[], cwd: string) {
  const child = spawn(program, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (data) => (stdout += data));
  child.stderr.on("data", (data) => (stderr += data));
  const ended: Promise<Ended> = once(child, "close").then(([code]) => ({ code, stdout, stderr }));
  return { child, ended };
}
