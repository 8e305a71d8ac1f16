// The entries for browsers, bundled by esbuild and by Vite: no warning, nothing of Node and no pg in the output, and it runs
// where only the globals of a browser exist.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";
import { build } from "esbuild";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

/** A form that checks its input by the contract of a job. */
const FORM = `
import { breaker, InvalidInput, limit, pipeline, rateLimitHeaders, schedule, secret, validateInput } from "stillwake/contract";
import { z } from "zod";

const service = limit("service", { learn: rateLimitHeaders });
const scan = pipeline("scan", {
  input: z.object({ repo: z.string(), depth: z.number().default(1), token: z.string() }),
  sealed: ["token"],
  needs: [service, breaker("service")],
  retry: { attempts: 5, initial: "10s" },
});
const nightly = schedule("nightly", { cron: "@daily", pipeline: scan });

async function check(input) {
  try {
    return await validateInput(scan, input);
  } catch (error) {
    if (error instanceof InvalidInput) return error.issues.map(({ path }) => path);
    throw error;
  }
}
Promise.all([check({ repo: "acme/site", token: secret("github") }), check({ repo: 7, token: "x" })]).then(
  (checked) => report({ checked, attempts: scan.settings.max_attempts, schedule: nightly.name }),
  (error) => report({ error: String(error?.stack ?? error) }),
);
`;

const FORM_RESULT = {
  checked: [{ repo: "acme/site", depth: 1, token: { $secret: "github" } }, ["input.repo"]],
  attempts: 5,
  schedule: "nightly",
};

describe("a web bundle", () => {
  beforeAll(buildPackage, 120_000);

  it("of a contract built by esbuild is free of Node and pg, and validates inputs", async () => {
    const { code, inputs } = await esbuild(FORM);
    expect(ownFiles(inputs)).toEqual(expect.arrayContaining(["contract/pipeline.js", "errors.js", "time.js"]));
    expect(ownFiles(inputs).filter((name) => !/^contract\/|^(errors|time|validate)\.js$/.test(name))).toEqual([]);
    expect(packages(inputs)).toEqual(["zod"]);
    expectNoNode(code);
    expect(await run(code)).toEqual(FORM_RESULT);
    const bytes = Object.entries(inputs).reduce((sum, [file, { bytes }]) => sum + (isOwn(file) ? bytes : 0), 0);
    recordFigure("package: stillwake/contract in a web bundle, minified", bytes / 1024, "KB", "every export, esbuild");
    expect(bytes).toBeLessThan(32 * 1024);
  });

  it("of a contract built by Vite is free of Node and pg, and validates inputs", async () => {
    const code = vite(FORM);
    expectNoNode(code);
    expect(await run(code)).toEqual(FORM_RESULT);
    recordFigure("package: a form with stillwake/contract and zod, minified", code.length / 1024, "KB", "Vite");
  });

  it("of the live view is free of Node and pg", async () => {
    const program = `
import { createElement } from "react";
import { JobLog, useJob } from "stillwake/react";
import "stillwake/element";
report({ element: typeof createElement(JobLog, { id: "x" }), hook: typeof useJob });
`;
    const { code, inputs } = await esbuild(program);
    expect(packages(inputs)).toEqual(["@tanstack/virtual-core", "react"]);
    expect(ownFiles(inputs).filter((name) => !/^(react|element|view|text)\//.test(name))).toEqual([]);
    for (const bundled of [code, vite(program)]) {
      expectNoNode(bundled);
      expect(await run(bundled)).toEqual({ element: "object", hook: "function" });
    }
  });

  it("cannot be built of stillwake itself, which needs Node", async () => {
    const failed = await esbuild('import { pipeline } from "stillwake"; report(pipeline("x").name);').catch(
      (error: Error) => error.message,
    );
    expect(failed).toMatch(/Could not resolve "node:/);
  });

  it("has types for contracts without the types of Node", () => {
    const dir = project("form.ts", FORM.replace("(input)", "(input: unknown)"));
    fs.appendFileSync(path.join(dir, "form.ts"), "declare function report(value: unknown): void;\n");
    const options = {
      target: "es2022",
      module: "nodenext",
      lib: ["es2022", "dom"],
      types: [],
      strict: true,
      noEmit: true,
    };
    fs.writeFileSync(
      path.join(dir, "tsconfig.json"),
      JSON.stringify({ compilerOptions: options, include: ["form.ts"] }),
    );
    const tsc = spawnSync(process.execPath, [path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", dir]);
    expect(String(tsc.stdout)).toBe("");
  });
});

type Inputs = Record<string, { bytes: number }>;

/** The minified program and how many bytes of it come from which file. Throws on errors and on warnings. */
async function esbuild(program: string): Promise<{ code: string; inputs: Inputs }> {
  const { warnings, outputFiles, metafile } = await build({
    entryPoints: [path.join(project("app.js", program), "app.js")],
    bundle: true,
    platform: "browser",
    format: "iife",
    minify: true,
    write: false,
    metafile: true,
    logLevel: "silent",
    absWorkingDir: ROOT,
  });
  expect(warnings).toEqual([]);
  const [output] = Object.values(metafile.outputs);
  const inputs = Object.entries(output!.inputs).map(([file, { bytesInOutput }]) => [file, { bytes: bytesInOutput }]);
  return { code: outputFiles[0]!.text, inputs: Object.fromEntries(inputs) };
}

function vite(program: string): string {
  const dir = project("app.js", program);
  // Vite's plugin for React drops the warning about "use client" too, which server components need.
  const config = `export default { build: { rollupOptions: {
    input: "app.js",
    output: { format: "iife", entryFileNames: "app.js" },
    onwarn: (warning, warn) => warning.code === "MODULE_LEVEL_DIRECTIVE" || warn(warning),
  } } };`;
  fs.writeFileSync(path.join(dir, "vite.config.mjs"), config);
  const env = { ...process.env, NODE_ENV: "production", NO_COLOR: "1" };
  const args = [path.join(ROOT, "node_modules/vite/bin/vite.js"), "build", dir, "--logLevel", "warn"];
  const { stdout, stderr } = spawnSync(process.execPath, args, { cwd: dir, env, encoding: "utf8" });
  expect(stdout + stderr).toBe("");
  return fs.readFileSync(path.join(dir, "dist/app.js"), "utf8");
}

/** A directory with this file and the packages of this repository, stillwake among them. */
function project(file: string, text: string): string {
  const dir = temporaryDirectory("bundle");
  fs.symlinkSync(path.join(ROOT, "node_modules"), path.join(dir, "node_modules"));
  fs.writeFileSync(path.join(dir, "package.json"), '{ "type": "module" }');
  fs.writeFileSync(path.join(dir, file), text);
  return dir;
}

function expectNoNode(code: string): void {
  expect(
    code.match(/["'`]node:[a-z_/]+["'`]|\brequire\(|__vite-browser-external|\bBuffer\.|libpq|pg_catalog/g),
  ).toBeNull();
}

/** Runs a bundle with the globals of a browser and returns what it reports. */
function run(code: string): Promise<unknown> {
  return new Promise((resolve) => {
    const report = (value: unknown) => resolve(JSON.parse(JSON.stringify(value)));
    const { console, crypto, URL, setTimeout, clearTimeout, queueMicrotask } = globalThis;
    vm.runInNewContext(code, { report, console, crypto, URL, setTimeout, clearTimeout, queueMicrotask });
  });
}

function isOwn(file: string): boolean {
  return file.startsWith("dist/");
}

function ownFiles(inputs: Inputs): string[] {
  return Object.keys(inputs)
    .filter(isOwn)
    .map((file) => file.slice("dist/".length));
}

function packages(inputs: Inputs): string[] {
  const names = Object.keys(inputs).flatMap((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []);
  return [...new Set(names)].sort();
}
