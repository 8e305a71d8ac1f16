// Static analysis: the built-in rules with the real ast-grep, and Semgrep as a script with documented output.
import fs from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { analyseCode } from "../../src/analysis/analyse.ts";
import { MAX_FINDINGS } from "../../src/analysis/collect.ts";
import { RULE_SAMPLES } from "../support/rule-samples.ts";
import { nodeScript, setUpScans } from "../support/scan-job.ts";

const { repository, tools, scan: search, folder } = await setUpScans();

const NOT_INSTALLED = "warning Static analysis skipped (Semgrep not installed)";

test("without Semgrep there is a warning, and every built-in rule reports its bad samples and no good ones", async () => {
  const files = Object.fromEntries(
    RULE_SAMPLES.flatMap(({ rule, extension, bad, good }) => [
      ...bad.map((code, at) => [`bad/${rule}/${at}.${extension}`, code]),
      ...good.map((code, at) => [`good/${rule}/${at}.${extension}`, code]),
    ]),
  );
  const { found, lines } = await search(analyseCode, repository(files));
  expect(lines).toEqual([NOT_INSTALLED, "info Using the built-in rules instead (ast-grep, 20 rules)"]);
  const wanted = RULE_SAMPLES.flatMap(({ rule, extension, bad }) =>
    bad.map((_, at) => `${rule} bad/${rule}/${at}.${extension}`),
  );
  expect(found?.map(({ rule, path }) => `${rule} ${path}`).sort()).toEqual(wanted.sort());
  expect(new Set(RULE_SAMPLES.map(({ rule }) => rule)).size).toBe(20);
  for (const finding of found ?? []) {
    expect(finding).toMatchObject({
      kind: "code",
      engine: "ast-grep",
      severity: expect.stringMatching(/^(high|medium)$/),
    });
    expect(finding.cwe).toEqual([expect.stringMatching(/^CWE-\d+$/)]);
    expect(finding.message).toMatch(/\.$/);
  }
  expect(new Set(found?.map(({ fingerprint }) => fingerprint)).size).toBe(found?.length);
});

const sample = shared("data/repo-sample");
test.skipIf(!sample)(
  `the sample repository has seven findings${sample ? "" : " (skipped: ../shared is missing)"}`,
  async () => {
    const { found } = await search(analyseCode, sample!);
    expect(found?.map(({ rule, path, line }) => `${path}:${line} ${rule}`)).toEqual([
      "py/app.py:2 py-shell-command",
      "py/app.py:3 py-unsafe-yaml",
      "py/app.py:4 py-unsafe-pickle",
      "py/app.py:5 py-weak-hash",
      "src/app.js:2 js-shell-command",
      "src/app.js:3 js-eval",
      "src/app.js:4 js-weak-hash",
    ]);
  },
);

test("configuration and ignore files of the repository have no effect; links, vendored and minified code are skipped", async () => {
  const bad = "eval(window.name);\n";
  const outside = path.join(folder, "outside.js");
  fs.writeFileSync(outside, bad);
  const directory = repository({
    "a.js": bad,
    ".hidden/b.js": bad,
    ".gitignore": "a.js\n",
    ".ignore": "*\n",
    "sgconfig.yml": "ruleDirs: [mine]\ncustomLanguages: { mojo: { libraryPath: mojo.so, extensions: [js] } }\n",
    "mine/rule.yml": "id: mine\nlanguage: js\nrule: { pattern: $A }\n",
    "node_modules/x/c.js": bad,
    "packages/p/dist/d.js": bad,
    "vendor/e.js": bad,
    "f.min.js": bad,
    "g.js": `var a=1;${"b();".repeat(1000)}eval(c)\n`,
    "link.js": `-> ${outside}`,
    links: `-> ${folder}`,
  });
  const { found, lines } = await search(analyseCode, directory);
  expect(found?.map((finding) => finding.path)).toEqual([".hidden/b.js", "a.js"]);
  expect(lines).toContain("info 2 minified files were not searched");
});

test("a fingerprint stays when code moves, distinguishes equal code, and does not depend on quoted text", async () => {
  const before = await search(
    analyseCode,
    repository({ "a.py": "eval(x)\neval(x)\neval(y)\nhashlib.md5('hunter2')\n" }),
  );
  const after = await search(
    analyseCode,
    repository({ "a.py": "\n\n# moved\neval(x)\neval( x )\neval(y)\nhashlib.md5('other12')\n" }),
  );
  const prints = before.found?.map(({ fingerprint }) => fingerprint);
  expect(new Set(prints).size).toBe(4);
  expect(after.found?.map(({ fingerprint }) => fingerprint).slice(0, 1)).toEqual(prints?.slice(0, 1));
  expect(after.found?.map(({ fingerprint }) => fingerprint).slice(2)).toEqual(prints?.slice(2));
  expect(after.found?.map(({ line }) => line)).toEqual([4, 5, 6, 7]);
});

test("unusual file names are kept as they are, and too many findings are truncated with a warning", async () => {
  const began = performance.now();
  const odd = 'd\n"<b>\u202e/ä😀.js';
  const { found, lines } = await search(
    analyseCode,
    repository({ [odd]: "eval(a);\n", "many.js": "createHash('md5');eval(a);\n".repeat(3_000) }),
  );
  recordFigure(
    "Static analysis of 6,001 findings",
    Math.round(performance.now() - began),
    "ms",
    "ast-grep, a whole job",
  );
  expect(found).toHaveLength(MAX_FINDINGS);
  expect(found?.[0]?.path).toBe(odd);
  expect(found?.filter(({ severity }) => severity === "high")).toHaveLength(3_001);
  expect(lines).toContain("warning Too many findings - only the 5000 most severe are kept");
});

const semgrep = (report: unknown, more = "") =>
  tools({
    semgrep: nodeScript(`
      const output = process.argv.find((arg) => arg.startsWith("--output=")).slice(9);
      const directory = process.argv.at(-1);
      require("node:fs").writeFileSync(output, ${JSON.stringify(JSON.stringify(report))}.replaceAll("DIRECTORY", directory));
      ${more}`),
  });

const result = (fields: object, extra: object = {}) => ({
  check_id: "javascript.lang.security.detect-eval",
  path: "DIRECTORY/src/a.js",
  start: { line: 2, col: 1, offset: 10 },
  end: { line: 2, col: 9, offset: 18 },
  extra: {
    message: "Found eval",
    severity: "ERROR",
    metadata: { cwe: ["CWE-95: Eval injection"] },
    lines: "requires login",
    fingerprint: "requires login",
    ...extra,
  },
  ...fields,
});

test("invalid entries of Semgrep's report are skipped, and its errors are logged", async () => {
  const report = {
    version: "1.100.0",
    results: [
      result({}),
      result(
        { start: { line: 3 }, end: { line: 3 } },
        { severity: "INFO", metadata: { cwe: "CWE-79" }, message: "x".repeat(1_000_000) },
      ),
      result({ path: "DIRECTORY/../elsewhere.js" }),
      result({ path: "/etc/passwd" }),
      result({ check_id: 7 }),
      result({ start: { line: -5 }, end: { line: "many" } }, { severity: "LOUD", metadata: null, message: null }),
      result({}, { is_ignored: true }),
      null,
      "nonsense",
    ],
    errors: [
      { code: 3, level: "warn", type: "Syntax error", message: "Syntax error", path: "DIRECTORY/src/b.js" },
      null,
    ],
    paths: { scanned: [] },
  };
  const directory = repository({ "src/a.js": "//\neval(a);\nel.innerHTML = b;\n" });
  const { found, lines } = await search(analyseCode, directory, { EXTRACTION_TOOL_PATH: semgrep(report) });
  expect(lines).toEqual(["info Static analysis could not read all of 1 file"]);
  expect(found?.map(({ line, severity, cwe, engine }) => ({ line, severity, cwe, engine }))).toEqual([
    { line: 1, severity: "unknown", cwe: [], engine: "semgrep" },
    { line: 2, severity: "high", cwe: ["CWE-95"], engine: "semgrep" },
    { line: 3, severity: "low", cwe: ["CWE-79"], engine: "semgrep" },
  ]);
  expect(found?.[2]?.message.length).toBe(1_000);
});

test("Semgrep sends no metrics and uses the operator's rules", async () => {
  const directory = repository({ "a.js": "1\n" });
  const toolPath = semgrep(
    { results: [], errors: [] },
    `console.error("no " + process.env.STILLWAKE_DATABASE_URL); require("node:fs").writeFileSync(__dirname + "/args", process.argv.slice(2).join("\\n"));`,
  );
  const { found, lines } = await search(analyseCode, directory, {
    EXTRACTION_TOOL_PATH: toolPath,
    EXTRACTION_SEMGREP_CONFIG: "/opt/rules",
  });
  expect(found).toEqual([]);
  expect(lines).toEqual([]);
  const args = fs.readFileSync(path.join(toolPath, "args"), "utf8").split("\n");
  expect(args).toEqual(
    expect.arrayContaining([
      "scan",
      "--json",
      "--metrics=off",
      "--disable-version-check",
      "--config=/opt/rules",
      "--",
      fs.realpathSync(directory),
    ]),
  );
});

const FAILURES: [string, string, string, Record<string, string>?][] = [
  ["killed by the kernel", "#!/bin/sh\nkill -9 $$\n", "Static analysis ran out of memory - scanning skipped"],
  ["killed in a container", "#!/bin/sh\nexit 137\n", "Static analysis ran out of memory - scanning skipped"],
  [
    "without its core process",
    "#!/bin/sh\necho 'semgrep-core was killed by signal 9' >&2\nexit 2\n",
    "Static analysis ran out of memory - scanning skipped",
  ],
  [
    "too slow",
    "#!/bin/sh\nexec sleep 60\n",
    "Static analysis timed out - scanning skipped",
    { EXTRACTION_ANALYSIS_SECONDS: "0.3" },
  ],
  [
    "broken",
    "#!/bin/sh\necho 'Fatal error: no core' >&2\necho more >&2\nexit 2\n",
    "Static analysis failed: Fatal error: no core",
  ],
  ["killed by a signal", "#!/bin/sh\nkill -11 $$\n", "Static analysis failed: killed by SIGSEGV"],
  ["without rules", "#!/bin/sh\nexit 7\n", "Static analysis skipped (Semgrep could not load the rules p/default)"],
  ["silent", "#!/bin/sh\nexit 0\n", "Static analysis failed: Semgrep wrote no readable report"],
];

for (const [how, program, message, env] of FAILURES) {
  test(`a Semgrep that is ${how} leaves a warning, and the job continues`, async () => {
    const { found, lines, job } = await search(analyseCode, repository({ "a.js": "1\n" }), {
      EXTRACTION_TOOL_PATH: tools({ semgrep: program }),
      ...env,
    });
    expect(lines).toEqual([`warning ${message}`]);
    expect(found).toBeUndefined();
    expect(job).toMatchObject({ state: "completed", missing: ["scan"] });
  });
}

test("an error that is only in Semgrep's report is quoted", async () => {
  const report = { results: [], errors: [{ level: "error", message: "Out of stack space\nand more" }] };
  const toolPath = semgrep(report, "process.exit(2)");
  const { lines } = await search(analyseCode, repository({ "a.js": "1\n" }), { EXTRACTION_TOOL_PATH: toolPath });
  expect(lines).toEqual(["warning Static analysis failed: Out of stack space"]);
});
