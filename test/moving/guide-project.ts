// The code of guides as a project: the named code blocks of their pages, compiled, beside the packages they import.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { expect } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { cleanUp, temporaryDirectory } from "../support/cleanup.ts";
import { ROOT } from "../support/processes/build.ts";

export interface GuideProject {
  /** The directory of the compiled files. */
  dir: string;
  /** Starts a file with this environment and nothing else. */
  start(file: string, env: Record<string, string>): GuideProcess;
}

export interface GuideProcess {
  child: ChildProcess;
  output(): string;
  /** The exit code. */
  exited: Promise<number | null>;
}

/** Compiles the blocks of these pages that start with a file name. `extra`: further files of the test, in JavaScript. */
export function createGuideProject(pages: readonly string[], extra: Record<string, string> = {}): GuideProject {
  const home = temporaryDirectory("guide");
  const dir = path.join(home, "dist");
  const packages = path.join(home, "node_modules");
  fs.mkdirSync(packages);
  for (const name of fs.readdirSync(path.join(ROOT, "node_modules"))) {
    fs.symlinkSync(path.join(ROOT, "node_modules", name), path.join(packages, name));
  }
  const files = pages.flatMap(readFiles);
  expect(files.length).toBeGreaterThan(0);
  for (const { name, code } of files) {
    const file = path.join(home, "source", name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, code);
  }
  fs.writeFileSync(path.join(home, "package.json"), '{ "type": "module" }');
  fs.writeFileSync(path.join(home, "tsconfig.json"), JSON.stringify(settings));
  const tsc = spawnSync(process.execPath, [path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", home]);
  expect(String(tsc.stdout)).toBe("");
  for (const [name, code] of Object.entries(extra)) fs.writeFileSync(path.join(dir, name), code);
  return { dir, start: (file, env) => startFile(path.join(dir, file), env) };
}

const settings = {
  compilerOptions: {
    target: "es2022",
    module: "nodenext",
    strict: true,
    experimentalDecorators: true,
    allowImportingTsExtensions: true,
    rewriteRelativeImportExtensions: true,
    skipLibCheck: true,
    types: ["node"],
    rootDir: "source",
    outDir: "dist",
  },
  include: ["source"],
};

function readFiles(page: string): { name: string; code: string }[] {
  const text = fs.readFileSync(path.join(ROOT, page), "utf8");
  return [...text.matchAll(/^```ts\n\/\/ ([\w./[\]-]+\.ts)\b([\s\S]*?)^```$/gm)].map(([, name, code]) => ({
    name: name!,
    code: `//${code}`,
  }));
}

function startFile(file: string, env: Record<string, string>): GuideProcess {
  const { PATH = "", HOME = "" } = process.env;
  const child = spawn(process.execPath, [file], { env: { PATH, HOME, ...env }, cwd: path.dirname(file) });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  const exited = once(child, "exit").then(([code]) => code as number | null);
  cleanUp(async () => {
    if (child.exitCode === null && child.kill("SIGKILL")) await exited;
  });
  return { child, output: () => output, exited };
}

export async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until the process answers at this URL; fails with its output when it exits before. */
export async function waitUntilUp({ child, output }: GuideProcess, url: string): Promise<void> {
  await waitFor(async () => {
    if (child.exitCode !== null) throw new Error(`The process has exited: ${output()}`);
    return fetch(url).then(
      () => true,
      () => false,
    );
  });
}
