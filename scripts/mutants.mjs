// npm run mutants [part of a name]: breaks the engine in one place at a time, on a copy, and runs the test that must notice. It fails when
// a mutant lives, when one cannot be made any more, or when one is broken in a way that any test would notice.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { mutants } from "../test/mutants/mutants.mjs";
import { ensure, inRoot } from "./ensure.mjs";

const COPIED = [
  ...["sql", "src", "test", "web", "dist/web", "package.json", "tsconfig.json", "vitest.config.ts"],
  ...["extraction", "leaderboard"].flatMap((system) =>
    ["src", "test", "tables.sql", "package.json", "tsconfig.json"].map((part) => `pipelines/${system}/${part}`),
  ),
  ...["rules", "sample"].map((part) => `pipelines/extraction/${part}`),
  ...["src", "test", "package.json", "tsconfig.json"].map((part) => `pipelines/kit/${part}`),
];
/** For one mutant, and for all tests together on an engine without a fault. */
const TIME_LIMIT_MS = 180_000;
const WHOLE_LIMIT_MS = 900_000;
const AT_ONCE = 2;
// An engine that cannot run at all is no mutant, and a test that waits for ever has noticed nothing: it must have failed at what the mutant does.
const BROKEN =
  /syntax error|timed out in \d+ms|(column|function|relation|operator|type|schema|record|procedure)\b[^\n]{0,200}(does not exist|is ambiguous|has no field)|not unique/i;

await ensure();
const { startPostgres } = await import(pathToFileURL(inRoot("dist/postgres/index.js")).href);
const wanted = process.argv.slice(2).join(" ");
const chosen = mutants.filter(({ name }) => name.includes(wanted));
if (chosen.length === 0) fail(`No mutant's name contains "${wanted}".`);
const impossible = chosen.flatMap(whyImpossible);
if (impossible.length > 0) fail(`The engine has changed under these mutants:\n${impossible.join("\n")}`);

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

const began = Date.now();
let allKilled = false;
try {
  allKilled = (await provesItself()) && (await killAll());
} finally {
  await close();
}
console.log(`${Math.round((Date.now() - began) / 1000)} s in all`);
process.exit(allKilled ? 0 : 1);

/** The same tests, with the same settings, must pass on an engine without a fault. */
async function provesItself() {
  const files = [...new Set(chosen.map(({ killedBy }) => killedBy))];
  const result = await test("unmutated", [], files);
  const passed = result.tests.length > 0 && result.failed.length === 0 && result.errors.length === 0;
  console.log(
    `Without a mutant: ${passed ? "all pass" : "FAILED"} (${result.tests.length} tests in ${result.seconds} s)\n`,
  );
  if (!passed) console.error([...result.failed.map(({ name }) => name), ...result.errors].join("\n"));
  return passed;
}

async function killAll() {
  const rows = new Map();
  const queue = [...chosen];
  const workers = Array.from({ length: AT_ONCE }, async () => {
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const row = judge(mutant, await test(mutant.name, mutant.edits, [mutant.killedBy], mutant.only));
      rows.set(mutant, row);
      console.log(`${row.killed ? "killed" : "ALIVE "}  ${row.seconds} s  ${mutant.name}\n              ${row.said}`);
    }
  });
  await Promise.all(workers);
  console.log("\n| mutant | killed by | seconds |\n|---|---|---|");
  for (const mutant of chosen) {
    const { verdict, seconds } = rows.get(mutant);
    console.log(`| ${mutant.name} | ${verdict} | ${seconds} |`);
  }
  const killed = chosen.filter((mutant) => rows.get(mutant).killed).length;
  console.log(`\n${killed} of ${chosen.length} mutants killed.`);
  return killed === chosen.length;
}

function judge({ killedBy }, { failed, errors, seconds }) {
  const [first] = failed;
  if (first && !BROKEN.test(first.message)) {
    return { killed: true, verdict: `${path.basename(killedBy)}: ${first.name}`, said: saidBy(first.message), seconds };
  }
  const reason = first ? `broken, not mutated: ${saidBy(first.message)}` : (errors[0] ?? `${killedBy} passes`);
  return { killed: false, verdict: `**nobody** (${reason})`, said: reason, seconds };
}

/** The assertion in a few words; for the model, the one that the game ended with. */
function saidBy(message) {
  const lines = message.split("\n").map((line) => line.trim());
  return (lines.find((line) => line.startsWith("Got ")) ?? lines[0]).slice(0, 140);
}

/** Every edit must find its text exactly once. */
function whyImpossible({ name, edits }) {
  return edits.flatMap(({ file, old }) => {
    const found = fs.readFileSync(inRoot(file), "utf8").split(old).length - 1;
    return found === 1
      ? []
      : [`  ${name}: the text is in ${file} ${found} times:\n    ${old.replaceAll("\n", "\n    ")}`];
  });
}

/** Runs test files on a copy of the tree with the edits made. */
async function test(name, edits, files, only) {
  const tree = path.join(home, name.replaceAll(/\W+/g, "-"));
  for (const each of COPIED) fs.cpSync(inRoot(each), path.join(tree, each), { recursive: true });
  fs.symlinkSync(inRoot("node_modules"), path.join(tree, "node_modules"), "junction");
  for (const { file, old, new: text } of edits) {
    const target = path.join(tree, file);
    // A function, because a dollar sign in a replacement text has a meaning.
    fs.writeFileSync(
      target,
      fs.readFileSync(target, "utf8").replace(old, () => text),
    );
  }
  const started = Date.now();
  const output = await runVitest(tree, files, { bail: edits.length > 0, only });
  const seconds = Math.round((Date.now() - started) / 1000);
  const report = readReport(path.join(tree, "report.json"));
  fs.rmSync(tree, { recursive: true, force: true });
  return { ...report, seconds, errors: report.tests.length > 0 ? report.errors : [lastLines(output)] };
}

function runVitest(tree, files, { bail, only }) {
  const args = [
    inRoot("node_modules/vitest/vitest.mjs"),
    "run",
    "--reporter=json",
    "--outputFile=report.json",
    ...files,
  ];
  if (bail) args.push("--bail=1", "--maxWorkers=1");
  if (only) args.push("--testNamePattern", only);
  const env = {
    ...process.env,
    DATABASE_URL: postgres.url,
    STILLWAKE_SEED: process.env.STILLWAKE_SEED ?? "7",
    STILLWAKE_SHRINK: "off",
    NO_COLOR: "1",
  };
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { cwd: tree, env, stdio: ["ignore", "pipe", "pipe"] });
    running.add(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
    const timer = setTimeout(() => child.kill(), bail ? TIME_LIMIT_MS : WHOLE_LIMIT_MS);
    child.on("close", () => {
      clearTimeout(timer);
      running.delete(child);
      resolve(output);
    });
  });
}

function readReport(file) {
  if (!fs.existsSync(file)) return { tests: [], failed: [], errors: [] };
  const { testResults } = JSON.parse(fs.readFileSync(file, "utf8"));
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults);
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
