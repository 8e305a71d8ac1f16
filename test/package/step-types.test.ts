// What the compiler says about steps and lists: which mistakes it reports, at which line, and that it accepts ordinary code.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryDirectory } from "../support/cleanup.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const settings = {
  compilerOptions: {
    ...{ strict: true, noEmit: true, skipLibCheck: true, target: "es2022", types: ["node"] },
    ...{ module: "nodenext", moduleResolution: "nodenext", allowImportingTsExtensions: true },
    paths: Object.fromEntries(
      ["", "/worker"].map((entry) => [`stillwake${entry}`, [path.join(ROOT, `dist${entry}/index.d.ts`)]]),
    ),
  },
  include: ["*.ts"],
};

/** The errors of tsc in the body of a pipeline's function, by line of the body. */
function errorsIn(body: string): string[] {
  const dir = temporaryDirectory("step-types");
  fs.symlinkSync(path.join(ROOT, "node_modules"), path.join(dir, "node_modules"));
  fs.writeFileSync(path.join(dir, "package.json"), '{ "type": "module" }');
  fs.writeFileSync(path.join(dir, "tsconfig.json"), JSON.stringify(settings));
  const before = [
    'import type { JobContext } from "stillwake/worker";',
    'import type pg from "pg";',
    "export async function run(job: JobContext, pool: pg.Pool, items: number[]): Promise<unknown> {",
  ];
  fs.writeFileSync(path.join(dir, "pipeline.ts"), [...before, body, "}"].join("\n"));
  const tsc = path.join(ROOT, "node_modules/typescript/bin/tsc");
  const { stdout } = spawnSync(process.execPath, [tsc, "-p", dir, "--pretty", "false"], { encoding: "utf8" });
  return stdout
    .split("\n")
    .filter((line) => /^\S+\(\d+,\d+\): error/.test(line))
    .map((line) => line.replace(/^\S+\((\d+),\d+\): error /, (_, at) => `line ${Number(at) - before.length}: `));
}

describe("the types of job.each", () => {
  beforeAll(buildPackage);

  it("infer the result of a batch, the value and the transaction without annotations", () => {
    const body = `
  const { value, done } = await job.each("a", items, { tx: pool }, async (batch, { tx }) => {
    const { rows } = await tx.query("select 1");
    return { rows: rows.length, items: batch.length };
  }, { initial: { rows: 0 }, reduce: (sum, found) => ({ rows: sum.rows + found.rows + found.items }) });
  const rows: number = value.rows + done;
  await job.each("b", items, { batch: 2, tx: async (run: (tx: { own: true }) => Promise<unknown>) => run({ own: true }) }, (_, { tx }) => {
    const own: true = tx.own;
    void own;
  });
  await job.each("c", items, {}, async (batch) => Promise.all(batch.map(async () => {})));
  return rows;`;
    expect(errorsIn(body)).toEqual([]);
  }, 60_000);

  it("report a result that no reducer keeps, where it is returned", () => {
    const body = `  return job.each("a", items, { batch: 2 }, async (batch) => {
    return batch.length;
  });`;
    expect(errorsIn(body)).toEqual([expect.stringMatching(/^line 1: TS2345: .*Promise<number>.*NoResult/)]);
  }, 60_000);

  it("report a reducer that does not fit the results, at the reducer", () => {
    const body = `  return job.each("a", items, {}, (batch) => batch.length, {
    initial: "",
    reduce: (text, found) => text.concat(found),
  });`;
    expect(errorsIn(body)).toEqual([expect.stringMatching(/^line 3: TS2345: .*'number'.*'string'/)]);
  }, 60_000);
});

describe("the types of job.step", () => {
  beforeAll(buildPackage);

  it("accept every result that a step can return, also through generic helpers", () => {
    const body = `
  interface Found { at: Date; size?: number; note: string | undefined; big: bigint; bytes: Uint8Array; next: Found | null }
  const found: Found = await job.step("interface", (): Found => null!);
  const union: "a" | { b: readonly number[] } = await job.step("union", () => null! as "a" | { b: readonly number[] });
  const any: unknown = await job.step("unknown", (): unknown => JSON.parse("1"));
  const nothing: void = await job.step("nothing", () => {});
  const saved = <Result>(name: string, work: () => Promise<Result>): Promise<Result> => job.step(name, work);
  const generic: number = await saved("generic", async () => 1);
  const maybe: Found | undefined = await job.optional("optional", async () => found);
  return [found, union, any, nothing, generic, maybe];`;
    expect(errorsIn(body)).toEqual([]);
  }, 60_000);
});
