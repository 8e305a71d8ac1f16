// Files that try to blind a scanner: skipped files are logged, and findings in other files stay. And cdxgen reads no file outside
// the checkout.
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { analyseCode } from "../../src/analysis/analyse.ts";
import { unreadableFiles } from "../../src/sbom/cdxgen-output.ts";
import { generateSbom } from "../../src/sbom/sbom.ts";
import { findSecrets } from "../../src/secrets/find-secrets.ts";
import type { Settings } from "../../src/settings.ts";
import { nodeScript, setUpScans } from "../support/scan-job.ts";

const { repository, tools, scan: search, run } = await setUpScans();

const SECRET_KEY = ["wJalrXUtnFEMIbK7", "MDENGbPxRfiCYzzzq9T2kLm4"].join("");
const KEY = `AWS_SECRET_ACCESS_KEY=${SECRET_KEY}\n`;
const LARGE = `${"x".repeat(99)}\n`.repeat(21_000);

describe("code in very long lines", () => {
  const long = (evals: number) => `${"eval(a);b();".repeat(evals)}${`c("${"d".repeat(40)}");`.repeat(10_000)}\n`;

  it("does not hide findings in other files, and is logged as skipped", async () => {
    const bundles = Object.fromEntries(Array.from({ length: 8 }, (_, at) => [`m${at}.js`, long(67)]));
    const honest = Object.fromEntries(
      Array.from({ length: 40 }, (_, at) => [`${"amz"[at % 3]}/f${at}.js`, "eval(x);\n"]),
    );
    const { found, lines } = await search(analyseCode, repository({ ...bundles, ...honest }));
    expect(found?.map((finding) => finding.path).sort()).toEqual(Object.keys(honest).sort());
    expect(lines).toContain("info 8 minified files were not searched");
  });

  it("is skipped only in its own file", async () => {
    const hostile = `${long(100)}${"// a comment of an honest length\n".repeat(20_000)}`;
    const picture = `eval(x);\nconst picture = "${"A".repeat(5_000)}";\n${"// and some words about it\n".repeat(300)}`;
    const { found, lines } = await search(
      analyseCode,
      repository({ "a.js": "eval(x);\n", "hostile.js": hostile, "picture.js": picture, "z.js": "eval(x);\n" }),
    );
    expect(found?.map((finding) => finding.path)).toEqual(["a.js", "picture.js", "z.js"]);
    expect(lines).toContain("warning 1 file could not be searched - findings there are missing");
  });
});

describe("skipped files", () => {
  it("are logged if they are large, for code and secrets", async () => {
    const directory = repository({ "a.js": "eval(x);\n", "big.js": `eval(x);\n${LARGE}`, "big.env": `${KEY}${LARGE}` });
    const code = await search(analyseCode, directory);
    expect(code.found).toHaveLength(1);
    expect(code.lines).toContain("info 1 file over 2 MB was not searched");
    const semgrep = nodeScript(
      `require("node:fs").writeFileSync(process.argv.find((arg) => arg.startsWith("--output=")).slice(9), '{"results":[],"errors":[]}');`,
    );
    const installed = await search(analyseCode, directory, { EXTRACTION_TOOL_PATH: tools({ semgrep }) });
    expect(installed.lines).toEqual(["info 2 files over 2 MB were not searched"]);
    const secrets = await search(findSecrets, directory);
    expect(secrets.found).toEqual([]);
    expect(secrets.lines).toContain("info 2 files over 2 MB were not searched");
    const gitleaks = nodeScript(
      `require("node:fs").writeFileSync(process.argv.find((arg) => arg.startsWith("--report-path=")).slice(14), "[]");`,
    );
    const leaks = await search(findSecrets, directory, { EXTRACTION_TOOL_PATH: tools({ gitleaks }) });
    expect(leaks.lines).toContain("info 2 files over 2 MB were not searched");
  });

  it("are logged if their name is not UTF-8", async () => {
    const directory = repository({ "a.js": "eval(x);\n" });
    fs.writeFileSync(
      Buffer.concat([Buffer.from(`${directory}/caf`), Buffer.from([0xe9]), Buffer.from(".js")]),
      "eval(x);\n",
    );
    const { found, lines } = await search(analyseCode, directory);
    expect(found).toHaveLength(1);
    expect(lines).toContain("info 1 file or folder was not searched: the name cannot be read");
  });
});

describe("a secret", () => {
  it("is found in built, vendored and hidden folders", async () => {
    const files = [".next/a.env", "build/a.env", "dist/a.env", "target/a.env", "third_party/a.env", "vendor/x/a.env"];
    const { found } = await search(findSecrets, repository(Object.fromEntries(files.map((file) => [file, KEY]))));
    expect(found?.map((finding) => finding.path)).toEqual(files);
  });

  it("is found in files whose names have backslashes", async () => {
    const files = ["a.env", "back\\slash.env", "fol\\der/b.env"];
    const { found, lines } = await search(
      findSecrets,
      repository(Object.fromEntries(files.map((file) => [file, KEY]))),
    );
    expect(found?.map((finding) => finding.path)).toEqual(files);
    expect(lines.filter((line) => line.startsWith("warning"))).toEqual([]);
  });
});

it("cdxgen reads no file of another job, wherever a workspace points", async () => {
  const manifest = (name: string) => JSON.stringify({ name, version: "1.0.0", dependencies: { lodash: "4.17.15" } });
  let sbom = "";
  const { job } = await run(async (context) => {
    const scratch = fs.realpathSync(await context.scratch());
    const neighbour = fs.mkdtempSync(path.join(path.dirname(scratch), "neighbour-"));
    const outside = path.relative(path.join(scratch, "source"), path.join(neighbour, "source"));
    const importer = (name: string) =>
      `  ${name}:\n    dependencies:\n      lodash:\n        specifier: 4.17.15\n        version: 4.17.15\n`;
    const files = {
      [path.join(neighbour, "source/package.json")]: manifest("private-neighbour"),
      [path.join(scratch, "source/package.json")]: manifest("mine"),
      [path.join(scratch, "source/web/package.json")]: manifest("mine-too"),
      [path.join(scratch, "source/pnpm-workspace.yaml")]: 'packages: ["../../*/source", "web"]\n',
      [path.join(scratch, "source/pnpm-lock.yaml")]:
        `lockfileVersion: '6.0'\nimporters:\n${[".", "web", outside].map(importer).join("")}packages:\n  /lodash@4.17.15:\n    resolution: {integrity: sha512-x}\n    dev: false\n`,
    };
    for (const [file, text] of Object.entries(files)) {
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, text);
    }
    const settings = { limits: { sbomMs: 120_000 } } as Settings;
    const directory = path.join(scratch, "source");
    await context.step("sbom", {}, async (step) => {
      const { file } = await generateSbom(step, { directory, packagePath: ".", settings });
      sbom = fs.readFileSync(file, "utf8");
    });
    fs.rmSync(neighbour, { recursive: true });
  });
  expect(job.state).toBe("completed");
  expect(sbom).toContain("pkg:npm/lodash@4.17.15");
  expect(sbom).toContain("mine-too");
  expect(sbom).not.toContain("neighbour");
}, 120_000);

it("the output of cdxgen for a hostile file name is parsed quickly", () => {
  // Would take minutes with backtracking at every brace.
  const line = `Unable to parse /source/${" {".repeat(200_000)}\u2028`;
  expect(unreadableFiles(line, "/source")).toEqual([]);
  expect(unreadableFiles("Unable to parse /source/a\u2028b.json {", "/source")).toEqual(["a b.json"]);
}, 20_000);
