// What the TypeScript compiler says about mistakes against contracts: each small file is compiled with the real tsc, and its
// first message names the wrong field, at the line of the mistake.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { temporaryDirectory } from "../support/cleanup.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";

const CONTRACTS = `
import { pipeline } from "stillwake/contract";
import { z } from "zod";
export const scan = pipeline("scan", {
  input: z.object({ repo: z.string(), depth: z.number().default(1), owner: z.object({ id: z.string() }) }),
  output: z.object({ files: z.number() }),
});
export const plain = pipeline<{ n: number }>("plain");
`;

const AROUND = `
import { createStillwake, type Duration, duration, type JobId, type OutputOf } from "stillwake";
import { limit, pipeline, schedule } from "stillwake/contract";
import { runJob } from "stillwake/testing";
import { implement } from "stillwake/worker";
import { z } from "zod";
import { plain, scan } from "./contracts.ts";
const sw = createStillwake({ url: "" });
const owner = { id: "7" };
const text: string = "5m";
`;

interface Mistake {
  mistake: string;
  /** The line that ends with the comment "wrong" has the error. */
  code: string;
  says: RegExp;
}

const mistakes: Mistake[] = [
  {
    mistake: "an input with a field of the wrong type",
    code: `
await sw.enqueue(scan, {
  repo: 7, // wrong
  owner,
});`,
    says: /^Type 'number' is not assignable to type 'string'/,
  },
  {
    mistake: "an input without a field",
    code: `await sw.enqueue(scan, { repo: "acme/site" }); // wrong`,
    says: /^Property 'owner' is missing in type/,
  },
  {
    mistake: "an input with a misspelled field",
    code: `
await sw.enqueue(scan, {
  repo: "acme/site",
  owner,
  dept: 3, // wrong
});`,
    says: /'dept' does not exist in type .*Did you mean|may only specify known properties.*'dept'/,
  },
  {
    mistake: "one wrong input of many",
    code: `
await sw.enqueueMany(plain, [
  { n: 1 },
  { n: "2" }, // wrong
]);`,
    says: /^Type 'string' is not assignable to type 'number'/,
  },
  {
    mistake: "an option that does not exist",
    code: `await sw.enqueue(plain, { n: 1 }, { prioritty: 5 }); // wrong`,
    says: /'prioritty' does not exist in type|known properties.*'prioritty'/,
  },
  {
    mistake: "something else in place of the contract",
    code: `await sw.enqueue(undefined, { n: 1 }); // wrong`,
    says: /^Argument of type 'undefined' is not assignable to parameter of type 'string \| AnyPipeline'/,
  },
  {
    mistake: "a duration that is none",
    code: `
pipeline("a", {
  timeout: "5 minuts", // wrong
});`,
    says: /^Type '"5 minuts"' is not assignable to type 'Duration( \| undefined)?'/,
  },
  {
    mistake: "a duration without a unit",
    code: `
pipeline("a", {
  retry: {
    attempts: 5,
    initial: "10", // wrong
  },
});`,
    says: /^Type '"10"' is not assignable to type 'Duration( \| undefined)?'/,
  },
  {
    mistake: "a number as a duration",
    code: `await sw.enqueue(plain, { n: 1 }, { delay: 5000 }); // wrong`,
    says: /^Type 'number' is not assignable to type 'Duration( \| undefined)?'/,
  },
  {
    mistake: "a text as a duration",
    code: `
limit("a", {
  max: 1,
  per: text, // wrong
});`,
    says: /^Type 'string' is not assignable to type 'Duration( \| undefined)?'/,
  },
  {
    mistake: "an endless timeout",
    code: `pipeline("a", { timeout: "forever" }); // wrong`,
    says: /^Type '"forever"' is not assignable to type 'Duration( \| undefined)?'/,
  },
  {
    mistake: "a misspelled policy",
    code: `
pipeline("a", {
  retry: { atempts: 5 }, // wrong
});`,
    says: /'atempts' does not exist in type|known properties.*'atempts'/,
  },
  {
    mistake: "a key that is no field of the input",
    code: `
pipeline("a", {
  input: z.object({ projectId: z.string(), repo: z.object({ owner: z.string() }) }),
  key: "projctId", // wrong
});`,
    says: /^Type '"projctId"' is not assignable to type .*"projectId"/,
  },
  {
    mistake: "a key that is an object",
    code: `
pipeline("a", {
  input: z.object({ projectId: z.string(), repo: z.object({ owner: z.string() }) }),
  key: "repo", // wrong
});`,
    says: /^Type '"repo"' is not assignable to type .*"repo\.owner"/,
  },
  {
    mistake: "one wrong field of a key of several",
    code: `pipeline<{ project: string; branch?: string }>("a", { key: ["project", "brunch"] }); // wrong`,
    says: /^Type '"brunch"' is not assignable to type '"branch" \| "project"'/,
  },
  {
    mistake: "a tenant that is no field of the input",
    code: `pipeline<{ org: string }>("a", { tenant: "organization" }); // wrong`,
    says: /^Type '"organization"' is not assignable to type .*"org"/,
  },
  {
    mistake: "a field that the output does not have",
    code: `
const { id } = await sw.enqueue(scan, { repo: "acme/site", owner });
const { output } = await sw.wait(id);
output.lines; // wrong`,
    says: /^Property 'lines' does not exist on type '\{ files: number; \}'/,
  },
  {
    mistake: "an output that may be missing",
    code: `
const { id } = await sw.enqueue(scan, { repo: "acme/site", owner });
const { output } = await sw.get(id);
output.files; // wrong`,
    says: /^'output' is possibly 'null'/,
  },
  {
    mistake: "a function that returns another output",
    code: `
implement(scan, async () => ({ files: "many" })); // wrong`,
    says: /'files' are incompatible[\s\S]*Type 'string' is not assignable to type 'number'/,
  },
  {
    mistake: "an input of a job in a test that does not fit",
    code: `
await runJob(
  implement(scan, () => ({ files: 1 })),
  { repo: 7, owner }, // wrong
  { url: "" },
);`,
    says: /^Type 'number' is not assignable to type 'string'/,
  },
  {
    mistake: "an input of a schedule that does not fit",
    code: `
schedule("nightly", {
  cron: "@daily",
  pipeline: plain,
  input: { n: "1" }, // wrong
});`,
    says: /^Type 'string' is not assignable to type 'number'/,
  },
];

const CORRECT = `${AROUND}
const { id } = await sw.enqueue(scan, { repo: "acme/site", owner }, { delay: "1h30m", expiresIn: "2d" });
const files: number = (await sw.wait(id, { timeout: "1.5h" })).output.files;
const maybe: number | undefined = (await sw.get(id)).output?.files;
const [first] = await sw.enqueueMany(scan, [{ repo: "acme/site", depth: 3, owner }]);
const typed: number = (await sw.wait(first!.id)).output.files;
const named = await sw.enqueue("scan", { whatever: true });
const unknown: unknown = (await sw.wait(named.id)).output;
const fromElsewhere: number = (await sw.wait(text as JobId<OutputOf<typeof scan>>)).output.files;
const anything: unknown = (await sw.get(text)).output;
const read: Duration = duration(text);
const seconds = 5;
pipeline("a", { timeout: \`\${seconds}s\`, silence: duration(text, "silence"), keep: { failed: "forever" } });
const input = z.object({ id: z.number(), at: z.date(), repo: z.object({ owner: z.string().optional() }).optional() });
pipeline("b", { input, key: "repo.owner", tenant: "id" });
pipeline("b", { input, key: ["id", "at"], tenant: ({ id }) => String(id) });
pipeline("b", { key: "anything" });
pipeline<Record<string, string>>("b", { key: "anything" });
pipeline<{ kind: "a"; a: string } | { kind: "b"; b: string }>("b", { key: ["kind", "a", "b"] });
schedule("nightly", { cron: "@daily", pipeline: plain, input: { n: 1 } });
schedule("by-name", { cron: "@daily", pipeline: "plain", input: { anything: true } });
const same: string = id;
await runJob(implement(scan, () => ({ files: 1 })), { repo: "acme/site", owner }, { url: "" });
export { anything, files, fromElsewhere, maybe, read, same, typed, unknown };
`;

let dir: string;
let messages: { file: string; line: number; text: string }[];

beforeAll(() => {
  buildPackage();
  dir = temporaryDirectory("type-errors");
  fs.symlinkSync(path.join(ROOT, "node_modules"), path.join(dir, "node_modules"));
  fs.writeFileSync(path.join(dir, "package.json"), '{ "type": "module" }');
  const { compilerOptions } = JSON.parse(fs.readFileSync(path.join(ROOT, "tsconfig.json"), "utf8"));
  const { incremental, tsBuildInfoFile, noUnusedLocals, ...options } = compilerOptions;
  fs.writeFileSync(path.join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions: options, include: ["*.ts"] }));
  fs.writeFileSync(path.join(dir, "contracts.ts"), CONTRACTS);
  fs.writeFileSync(path.join(dir, "correct.ts"), CORRECT);
  for (const [index, { code }] of mistakes.entries())
    fs.writeFileSync(path.join(dir, `mistake-${index}.ts`), `${AROUND}${code}\nexport {};\n`);
  const tsc = spawnSync(process.execPath, [path.join(ROOT, "node_modules/typescript/bin/tsc"), "-p", dir], {
    cwd: dir,
    encoding: "utf8",
  });
  const lines = tsc.stdout.matchAll(/^(\S+?)\((\d+),\d+\): error TS\d+: (.*(?:\n\s.*)*)/gm);
  messages = [...lines].map(([, file, line, text]) => ({ file: file!, line: Number(line), text: text! }));
}, 120_000);

describe("the compiler", () => {
  it("accepts correct uses of contracts", () => {
    expect(messages.filter(({ file }) => !file.startsWith("mistake-"))).toEqual([]);
  });

  it.each(mistakes.map(({ mistake, says }, index) => [mistake, says, index] as const))(
    "reports %s at its line",
    (_, says, index) => {
      const file = `mistake-${index}.ts`;
      const lines = fs.readFileSync(path.join(dir, file), "utf8").split("\n");
      const wrong = lines.findIndex((line) => line.endsWith("// wrong")) + 1;
      const found = messages.filter((message) => message.file === file);
      expect(found.map(({ line }) => line)).toEqual([wrong]);
      expect(found[0]!.text).toMatch(says);
    },
  );
});
