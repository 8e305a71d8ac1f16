// Checks the documentation: its TypeScript compiles against the built package, and its links work. A code block that
// starts with a file name is that file; any other is the body of a function with the names of AROUND in scope.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryDirectory } from "../support/cleanup.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const pages = [
  ...["README.md", "CONTRIBUTING.md"],
  ...fs
    .readdirSync(path.join(ROOT, "docs"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
];

/** Names that the examples use without declaring them. */
const AROUND = `
const { createStillwake, limit, pipeline } = null! as typeof import("stillwake");
const { openStore, unpack } = null! as typeof import("stillwake/worker");
const sw = null! as import("stillwake").Stillwake;
const job = null! as import("stillwake/worker").JobContext;
const database = null! as import("stillwake/testing").TestDatabase;
const [appPool, elsewhere] = null! as [import("pg").Pool, import("pg").Pool];
const db = null! as import("drizzle-orm/node-postgres").NodePgDatabase;
const { sql } = null! as typeof import("drizzle-orm");
const extraction = pipeline<{ projectId: string; repo: string }>("extraction");
const report = pipeline("report");
const id = "", name = "", seen = new Set<string>(), files = [""];
const input = null! as { projectId: string; repo: string; urls: string[]; name: string; customer: string; seconds: number; token: string };
const inputs = [input];
const { download, rows, projects, project, tx } = null! as any;
`;

describe("the documentation", () => {
  beforeAll(buildPackage);

  it("shows TypeScript that compiles against the built package", () => {
    const dir = temporaryDirectory("docs");
    fs.symlinkSync(path.join(ROOT, "node_modules"), path.join(dir, "node_modules"));
    fs.writeFileSync(path.join(dir, "package.json"), '{ "type": "module" }');
    fs.writeFileSync(path.join(dir, "tsconfig.json"), JSON.stringify(settings()));
    for (const page of pages) {
      for (const { line, code } of blocks(page)) {
        const [, file] = /^\/\/ ([\w./[\]-]+\.ts)\b/.exec(code) ?? [];
        const place = path.join(dir, file ?? `${page.replaceAll(/\W/g, "-")}-line-${line}.ts`);
        expect(fs.existsSync(place), `${page} shows ${file} a second time`).toBe(false);
        fs.mkdirSync(path.dirname(place), { recursive: true });
        fs.writeFileSync(place, file ? code : within(code));
      }
    }
    const tsc = spawnSync(process.execPath, [path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", dir]);
    expect(String(tsc.stdout)).toBe("");
    expect(tsc.status).toBe(0);
  }, 60_000);

  it("links to pages and headings that exist", () => {
    const broken = pages.flatMap((page) =>
      [...read(page).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)/g)]
        .filter(([, target, heading]) => {
          const file = target ? path.join(path.dirname(page), target) : page;
          if (!fs.existsSync(path.join(ROOT, file))) return true;
          return heading !== undefined && !headings(file).includes(heading);
        })
        .map(([link]) => `${page}: ${link}`),
    );
    expect(broken).toEqual([]);
  });

  it("follows one job through at most 28 files to its settlement and 55 to the browser", () => {
    const rows = [...read("docs/architecture.md").matchAll(/^\| (\d+) \| \[(.*?)\]\(\.\.\/(.*?)\)/gm)];
    expect(rows.map(([, number]) => Number(number))).toEqual(rows.map((_, index) => index + 1));
    expect(rows.filter(([, , shown, target]) => shown !== target)).toEqual([]);
    const settled = rows.findIndex(([, , file]) => file === "sql/functions/jobs/settle.sql") + 1;
    expect(settled).toBeGreaterThan(0);
    expect(settled).toBeLessThanOrEqual(28);
    expect(rows.length).toBeLessThanOrEqual(55);
  });

  it("names tests that exist as proof", () => {
    const tests = fs
      .readdirSync(path.join(ROOT, "test"), { recursive: true })
      .filter((name) => /\.test\.ts$/.test(String(name)));
    const named = pages.flatMap((page) =>
      [...read(page).matchAll(/`npm test -- ([\w/ -]+)`/g)].flatMap(([, names]) => names!.split(" ")),
    );
    expect(named.filter((one) => !tests.some((test) => `test/${test}`.includes(one)))).toEqual([]);
  });
});

function read(page: string): string {
  return fs.readFileSync(path.join(ROOT, page), "utf8");
}

function blocks(page: string): { line: number; code: string }[] {
  const text = read(page);
  return [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(({ index, 1: code }) => {
    return { line: text.slice(0, index).split("\n").length + 1, code: code! };
  });
}

/** In a separate block, so that an example may redeclare a name of AROUND. */
function within(code: string): string {
  const lines = code.split("\n");
  const isImport = (line: string) => /^import /.test(line);
  const body = lines.filter((line) => !isImport(line)).join("\n");
  return `${lines.filter(isImport).join("\n")}\nexport async function example() {\n${AROUND}\n{\n${body}\n}\n}`;
}

function settings() {
  const { exports } = JSON.parse(read("package.json")) as { exports: Record<string, { types?: string }> };
  const paths = Object.entries(exports)
    .filter(([, { types }]) => types)
    .map(([entry, { types }]) => [path.posix.join("stillwake", entry), [path.join(ROOT, types!)]]);
  const { compilerOptions } = JSON.parse(read("tsconfig.json"));
  return {
    compilerOptions: {
      ...compilerOptions,
      lib: [...compilerOptions.lib, "dom"],
      // NestJS
      experimentalDecorators: true,
      paths: Object.fromEntries(paths),
      noUnusedLocals: false,
      incremental: false,
      tsBuildInfoFile: undefined,
    },
    include: ["**/*.ts"],
  };
}

/** Anchors as GitHub generates them. */
function headings(page: string): string[] {
  return [...read(page).matchAll(/^#+ (.*)$/gm)].map(([, text]) =>
    text!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
}
