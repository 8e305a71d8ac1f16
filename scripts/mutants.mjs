// npm run mutants [part of a name or file]: applies one deliberate fault at a time to a copy of the tree and runs the
// test that must detect it. Fails when a test still passes, when a mutant no longer applies, or when the fault breaks
// the engine so badly that any test would fail. `--check` verifies only that every mutant applies and its test exists.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { mutants } from "../test/mutants/index.mjs";
import { ensure, inRoot } from "./ensure.mjs";

const COPIED = [
  ...["sql", "src", "test", "ui", "web", "dist/web", "package.json", "tsconfig.json", "vitest.config.ts"],
  ...["extraction", "leaderboard", "clip"].flatMap((system) =>
    ["src", "test", "tables.sql", "package.json", "tsconfig.json"].map((part) => `pipelines/${system}/${part}`),
  ),
  ...["rules", "sample"].map((part) => `pipelines/extraction/${part}`),
  ...["src", "test", "package.json", "tsconfig.json"].map((part) => `pipelines/kit/${part}`),
];
/** For one mutant, and for all tests together without a mutant. */
const MUTANT_LIMIT_MS = 180_000;
const UNMUTATED_LIMIT_MS = 900_000;
/** Most tests wait for processes and leases most of the time. */
const CONCURRENCY = os.availableParallelism() + 1;
// An engine that cannot run at all is not a mutant, and a timeout proves nothing: the test must fail at what the mutant changes.
const BROKEN =
  /syntax error|timed out in \d+ms|(column|function|relation|operator|type|schema|record|procedure)\b[^\n]{0,200}(does not exist|is ambiguous|has no field)|not unique/i;

const checkOnly = process.argv.includes("--check");
const filter = process.argv
  .slice(2)
  .filter((argument) => argument !== "--check")
  .join(" ");
const selected = mutants.filter(
  ({ name, edits }) => name.includes(filter) || edits.some(({ file }) => file.includes(filter)),
);
if (selected.length === 0) fail(`No mutant has "${filter}" in its name or file.`);
const problems = selected.flatMap(findProblems);
if (problems.length > 0) fail(`These mutants do not apply:\n${problems.join("\n")}`);
if (checkOnly) {
  console.log(`${selected.length} mutants apply.`);
  process.exit(0);
}

await ensure();
const { startPostgres } = await import(pathToFileURL(inRoot("dist/postgres/index.js")).href);
const home = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-mutants-"));
fs.chmodSync(home, 0o755);
const postgres = await startPostgres({ dir: path.join(home, "postgres"), settings: { max_connections: 200 } });
const running = new Set();
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, async () => {
    for (const child of running) child.kill();
    await close();
    process.exit(1);
  });
}

const startedAt = Date.now();
let allKilled = false;
try {
  allKilled = (await passesUnmutated()) && (await killAll());
} finally {
  await close();
}
console.log(`${Math.round((Date.now() - startedAt) / 1000)} s in all`);
process.exit(allKilled ? 0 : 1);

/**
 * The same tests, with the same settings, must pass without a mutant, and every `only` must select a test. A file that
 * fails beside others is run once more, alone.
 */
async function passesUnmutated() {
  const files = [...new Set(selected.map(({ killedBy }) => killedBy))];
  let result = await test("unmutated", [], files);
  const seconds = [result.seconds];
  const reports = new Map(files.map((file) => [file, reportOf(result, file)]));
  for (const file of files.filter((file) => reports.get(file).failure !== undefined)) {
    result = await test("unmutated", [], [file]);
    seconds.push(result.seconds);
    reports.set(file, reportOf(result, file));
  }
  const failures = [...reports].flatMap(([file, { failure }]) =>
    failure === undefined ? [] : [`${file}: ${failure}`],
  );
  for (const { name, killedBy, only } of selected) {
    const pattern = only && new RegExp(only);
    if (pattern && !reports.get(killedBy).tests.some(({ fullName }) => pattern.test(fullName)))
      failures.push(`${killedBy}: no test matches "${only}" of the mutant "${name}"`);
  }
  const count = [...reports.values()].reduce((sum, { tests }) => sum + tests.length, 0);
  const total = seconds.reduce((sum, each) => sum + each, 0);
  console.log(`Without a mutant: ${failures.length === 0 ? "all pass" : "FAILED"} (${count} tests in ${total} s)\n`);
  if (failures.length > 0) console.error(failures.join("\n"));
  return failures.length === 0;
}

/** The tests of one file, and why it counts as failed: a failed test, an error, or no test at all. */
function reportOf({ tests, errors }, file) {
  const own = tests.filter((test) => test.file === file);
  const failed = own.find(({ status }) => status === "failed");
  const error =
    own.length === 0
      ? (errors.find((text) => text.startsWith(path.basename(file))) ?? errors[0] ?? "no test ran")
      : undefined;
  return { tests: own, failure: failed ? failed.fullName.trim() : error };
}

async function killAll() {
  const rows = new Map();
  const queue = [...selected];
  const workers = Array.from({ length: CONCURRENCY }, async () => {
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const row = judge(mutant, await test(mutant.name, mutant.edits, [mutant.killedBy], mutant.only));
      rows.set(mutant, row);
      console.log(
        `${row.killed ? "killed" : "ALIVE "}  ${row.seconds} s  ${mutant.name}\n              ${row.message}`,
      );
    }
  });
  await Promise.all(workers);
  console.log("\n| mutant | killed by | seconds |\n|---|---|---|");
  for (const mutant of selected) {
    const { verdict, seconds } = rows.get(mutant);
    console.log(`| ${mutant.name} | ${verdict} | ${seconds} |`);
  }
  const killed = selected.filter((mutant) => rows.get(mutant).killed).length;
  console.log(`\n${killed} of ${selected.length} mutants killed.`);
  return killed === selected.length;
}

function judge({ killedBy }, { failed, errors, seconds }) {
  const [first] = failed;
  if (first && !BROKEN.test(first.message)) {
    return {
      killed: true,
      verdict: `${path.basename(killedBy)}: ${first.name}`,
      message: summarize(first.message),
      seconds,
    };
  }
  const reason = first ? `broken, not mutated: ${summarize(first.message)}` : (errors[0] ?? `${killedBy} passes`);
  return { killed: false, verdict: `**no test** (${reason})`, message: reason, seconds };
}

/** The first line of the assertion; for model tests, the one that ended the game. */
function summarize(message) {
  const lines = message.split("\n").map((line) => line.trim());
  return (lines.find((line) => line.startsWith("Got ")) ?? lines[0]).slice(0, 140);
}

/** Every edit must find its text exactly once, and the test file must exist. */
function findProblems({ name, edits, killedBy }) {
  const missing = fs.existsSync(inRoot(killedBy)) ? [] : [`  ${name}: there is no ${killedBy}`];
  const misfits = edits.flatMap(({ file, old }) => {
    const count = fs.existsSync(inRoot(file)) ? fs.readFileSync(inRoot(file), "utf8").split(old).length - 1 : 0;
    return count === 1 ? [] : [`  ${name}: found ${count} times in ${file}:\n    ${old.replaceAll("\n", "\n    ")}`];
  });
  return [...missing, ...misfits];
}

/** Runs test files in a copy of the tree with the edits applied. */
async function test(name, edits, files, only) {
  const tree = path.join(home, name.replaceAll(/\W+/g, "-"));
  for (const part of COPIED) fs.cpSync(inRoot(part), path.join(tree, part), { recursive: true });
  fs.symlinkSync(inRoot("node_modules"), path.join(tree, "node_modules"), "junction");
  for (const { file, old, new: text } of edits) {
    const target = path.join(tree, file);
    // A function, because a dollar sign in a replacement text has a meaning.
    fs.writeFileSync(
      target,
      fs.readFileSync(target, "utf8").replace(old, () => text),
    );
  }
  // As `include`, not as arguments: vitest matches arguments as substrings, which may select other files too.
  fs.writeFileSync(
    path.join(tree, "mutants.config.ts"),
    `import config from "./vitest.config.ts";
export default { ...config, test: { ...config.test, include: ${JSON.stringify(files)} } };
`,
  );
  const started = Date.now();
  const output = await runVitest(tree, { bail: edits.length > 0, only });
  const seconds = Math.round((Date.now() - started) / 1000);
  const report = readReport(tree);
  fs.rmSync(tree, { recursive: true, force: true });
  return { ...report, seconds, errors: report.tests.length > 0 ? report.errors : [lastLines(output)] };
}

function runVitest(tree, { bail, only }) {
  const args = [
    inRoot("node_modules/vitest/vitest.mjs"),
    "run",
    "--reporter=json",
    "--outputFile=report.json",
    "--config=mutants.config.ts",
  ];
  if (bail) args.push("--bail=1", "--maxWorkers=1");
  if (only) args.push("--testNamePattern", only);
  const env = {
    ...process.env,
    DATABASE_URL: postgres.url,
    STILLWAKE_SEED: process.env.STILLWAKE_SEED ?? "7",
    STILLWAKE_SHRINK: "off",
    // Enough games, and all pairs of transactions, to find every mutant with this seed.
    STILLWAKE_RUNS: process.env.STILLWAKE_RUNS ?? "300",
    STILLWAKE_SAMPLE: "all",
    NO_COLOR: "1",
  };
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { cwd: tree, env, stdio: ["ignore", "pipe", "pipe"] });
    running.add(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
    const timer = setTimeout(() => child.kill(), bail ? MUTANT_LIMIT_MS : UNMUTATED_LIMIT_MS);
    child.on("close", () => {
      clearTimeout(timer);
      running.delete(child);
      resolve(output);
    });
  });
}

function readReport(tree) {
  const file = path.join(tree, "report.json");
  if (!fs.existsSync(file)) return { tests: [], failed: [], errors: [] };
  const { testResults } = JSON.parse(fs.readFileSync(file, "utf8"));
  const tests = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults.map((result) => ({
      ...result,
      file: path.relative(fs.realpathSync(tree), name).replaceAll("\\", "/"),
    })),
  );
  const failed = tests
    .filter(({ status }) => status === "failed")
    .map(({ fullName, failureMessages }) => ({ name: fullName.trim(), message: failureMessages.join("\n") }));
  const errors = testResults.filter(
    ({ status, assertionResults }) => status === "failed" && assertionResults.length === 0,
  );
  return { tests, failed, errors: errors.map(({ name, message }) => `${path.basename(name)}: ${message}`) };
}

async function close() {
  await postgres.stop();
  fs.rmSync(home, { recursive: true, force: true });
}

function lastLines(text) {
  return text.trim().split("\n").slice(-5).join(" ").slice(0, 500);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}
