// Secret scans: the real secretlint; the real gitleaks and TruffleHog if STILLWAKE_TEST_TOOLS names a folder with them, else scripts
// with their output. All secrets are invalid and assembled at run time.
import fs from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { findSecrets } from "../../src/secrets/find-secrets.ts";
import { nodeScript, setUpScans } from "../support/scan-job.ts";

const { repository, tools, scan: search, databaseText: rows, folder } = await setUpScans();

const KEY_ID = ["AKIA", "Q3EGRZZTX7LM", "NW2P"].join("");
const SECRET_KEY = ["wJalrXUtnFEMIbK7", "MDENGbPxRfiCYzzzq9T2kLm4"].join("");
const TOKEN = ["ghp", "_", "a8Kd9sLq2mZx7Vb4Nc1Yt6Rw3Pe5Hj0Uf8Gk"].join("").slice(0, 40);
const PASSWORD = ["s3cr3t", "Passw0rd"].join("");
const PLANTED = [KEY_ID, SECRET_KEY, TOKEN, PASSWORD];

const outside = path.join(folder, "outside.env");
fs.writeFileSync(outside, `token = "${TOKEN}"\n`);
const FILES = {
  "config.env": `# settings\nAWS_ACCESS_KEY_ID=${KEY_ID}\nAWS_SECRET_ACCESS_KEY=${SECRET_KEY}\n`,
  "src/a.js": `\n\nconst token = "${TOKEN}";\n`,
  "db/.hidden.env": `DATABASE_URL=postgres://admin:${PASSWORD}@db.example.com:5432/x\n`,
  "README.md": "# Nothing here\n",
  "node_modules/x/i.js": `const token = "${TOKEN}";\n`,
  ".git/config": `token = ${TOKEN}\n`,
  link: `-> ${outside}`,
};

/** Neither the secrets nor most of them are in the findings or in any row of the database, including logs. */
async function expectNoSecret(findings: unknown): Promise<void> {
  const kept = await rows();
  expect(kept).toContain("older commits are not scanned");
  for (const secret of PLANTED) {
    const part = secret.slice(4, 14);
    expect(JSON.stringify(findings)).not.toContain(part);
    expect(kept).not.toContain(part);
  }
}

test("without other tools secretlint reports kinds and locations, and the secret is stored nowhere", async () => {
  const searched = await search(findSecrets, repository(FILES));
  expect(searched.lines).toEqual([
    "info The built-in scanner (secretlint) scans the files of this commit - older commits are not scanned",
  ]);
  expect(searched.found?.map(({ path, line, rule, message }) => `${path}:${line} ${rule} ${message}`)).toEqual([
    "config.env:3 aws/AWSSecretAccessKey Possible secret: AWS Secret Access Key",
    "db/.hidden.env:1 database-connection-string/PostgreSQLConnection Possible secret: Postgre SQL Connection",
    "src/a.js:3 github/GITHUB_TOKEN Possible secret: GITHUB TOKEN",
  ]);
  expect(searched.found?.[0]).toMatchObject({
    kind: "secret",
    engine: "secretlint",
    severity: "high",
    cwe: ["CWE-798"],
    endLine: 3,
  });
  await expectNoSecret(searched);

  // The fingerprint does not change with the line or the secret.
  const other = [...SECRET_KEY].reverse().join("");
  const again = await search(findSecrets, repository({ "config.env": `\n\n\nAWS_SECRET_ACCESS_KEY=${other}\n` }));
  expect(again.found).toMatchObject([{ line: 4, fingerprint: searched.found?.[0]?.fingerprint }]);
});

test("configuration of the repository is neither read nor run, and unusual names and an empty repository work", async () => {
  const proof = path.join(folder, "ran");
  const run = `require("node:fs").writeFileSync(${JSON.stringify(proof)}, "x"); module.exports = { rules: [] };`;
  const directory = repository({
    ".secretlintrc.js": run,
    ".secretlintrc.json": '{"rules":[]}',
    ".secretlintignore": "*\n",
    "node_modules/@secretlint/secretlint-rule-preset-recommend/index.js": run,
    "[a]{b}(c)!*?.env": `AWS_SECRET_ACCESS_KEY=${SECRET_KEY}\n`,
    "-rf\n<b>.env": `AWS_SECRET_ACCESS_KEY=${SECRET_KEY}\n`,
  });
  const { found } = await search(findSecrets, directory);
  expect(found?.map(({ path }) => path)).toEqual(["-rf\n<b>.env", "[a]{b}(c)!*?.env"]);
  expect(fs.existsSync(proof)).toBe(false);
  expect((await search(findSecrets, repository({ "node_modules/a.js": TOKEN }))).found).toEqual([]);
});

test("ignore comments have no effect on secretlint", async () => {
  const token = `const token = "${TOKEN}";\n`;
  const directory = repository({
    "all.js": `// secretlint-disable\n${token}`,
    "line.js": `const token = "${TOKEN}"; // secretlint-disable-line\n`,
    "next.js": `/* secretlint-disable-next-line */\n${token}`,
    "rule.js": `// secretlint-disable @secretlint/secretlint-rule-github -- not a real one\n${token}`,
  });
  const { found } = await search(findSecrets, directory);
  expect(found?.map(({ path, rule }) => `${path} ${rule}`)).toEqual(
    ["all.js", "line.js", "next.js", "rule.js"].map((file) => `${file} github/GITHUB_TOKEN`),
  );
});

test("hundreds of files take seconds, not minutes", async () => {
  const files = Object.fromEntries(
    Array.from({ length: 500 }, (_, at) => [`src/f${at}.js`, `export const a${at} = ${at};\n`]),
  );
  const began = performance.now();
  const { found } = await search(
    findSecrets,
    repository({ ...files, "src/last.env": `AWS_SECRET_ACCESS_KEY=${SECRET_KEY}\n` }),
  );
  recordFigure("Secret scan of 500 files", Math.round(performance.now() - began), "ms", "secretlint, a whole job");
  expect(found).toHaveLength(1);
});

const real = process.env.STILLWAKE_TEST_TOOLS;
const has = (tool: string) => real !== undefined && fs.existsSync(path.join(real, tool));
const only = (tool: string) => tools({ [tool]: `#!/bin/sh\nexec ${real}/${tool} "$@"\n` });

const GITLEAKS = nodeScript(`
  const fs = require("node:fs"), path = require("node:path");
  const args = process.argv.slice(2), value = (name) => args.find((arg) => arg.startsWith(name + "="))?.slice(name.length + 1);
  if (args[0] !== "dir" || value("--redact") !== "100" || value("--exit-code") !== "42") process.exit(1);
  if (!/useDefault = true/.test(fs.readFileSync(value("--config"), "utf8"))) process.exit(1);
  const leak = (RuleID, file, line) => ({ RuleID, Description: "Found it", StartLine: line, EndLine: line, Match: "X=REDACTED", Secret: "REDACTED",
    File: path.join(args.at(-1), file), SymlinkFile: "", Commit: "", Entropy: 4, Tags: [], Fingerprint: file + ":" + RuleID + ":" + line });
  fs.writeFileSync(value("--report-path"), JSON.stringify([leak("aws-access-token", "config.env", 2), leak("generic-api-key", "config.env", 3), leak("github-pat", "src/a.js", 3),
    leak("github-pat", "../elsewhere", 1), { ...leak("github-pat", "link", 1), SymlinkFile: "link" }, null]));
  process.exit(42);`);

test(`gitleaks redacts secrets in its report (${has("gitleaks") ? "the real one" : "a script, because STILLWAKE_TEST_TOOLS has none"})`, async () => {
  const toolPath = has("gitleaks") ? only("gitleaks") : tools({ gitleaks: GITLEAKS });
  const directory = repository({ ...FILES, ".gitleaks.toml": "[allowlist]\npaths = ['.*']\n" });
  const searched = await search(findSecrets, directory, { EXTRACTION_TOOL_PATH: toolPath });
  expect(searched.lines).toEqual(["info Gitleaks scans the files of this commit - older commits are not scanned"]);
  expect(
    searched.found?.map(({ path, line, rule, message, engine }) => `${engine} ${path}:${line} ${rule} ${message}`),
  ).toEqual([
    "gitleaks config.env:2 aws-access-token Possible secret: aws access token",
    "gitleaks config.env:3 generic-api-key Possible secret: generic api key",
    "gitleaks src/a.js:3 github-pat Possible secret: github pat",
  ]);
  await expectNoSecret(searched);
});

/** Respects the ignore list and ignore comments like the real one. */
const GITLEAKS_WITH_IGNORES = nodeScript(`
  const fs = require("node:fs"), path = require("node:path");
  const args = process.argv.slice(2), directory = args.at(-1), respects = !args.includes("--ignore-gitleaks-allow");
  const list = path.join(directory, ".gitleaksignore"), ignored = fs.existsSync(list) ? fs.readFileSync(list, "utf8").split("\\n") : [];
  const leaks = fs.readdirSync(directory).flatMap((name) => fs.readFileSync(path.join(directory, name), "utf8").split("\\n").map((text, at) =>
    ({ text, RuleID: "github-pat", StartLine: at + 1, EndLine: at + 1, File: path.join(directory, name), SymlinkFile: "" })));
  const found = leaks.filter(({ text, File, RuleID, StartLine }) => /ghp_/.test(text) && !(respects && text.includes("gitleaks:allow")) && !ignored.includes([File, RuleID, StartLine].join(":")));
  fs.writeFileSync(args.find((arg) => arg.startsWith("--report-path=")).slice(14), JSON.stringify(found.map(({ text, ...leak }) => leak)));
  process.exit(found.length ? 42 : 0);`);

test(`ignore lists and comments have no effect on gitleaks (${has("gitleaks") ? "the real one" : "a script, because STILLWAKE_TEST_TOOLS has none"})`, async () => {
  const toolPath = has("gitleaks") ? only("gitleaks") : tools({ gitleaks: GITLEAKS_WITH_IGNORES });
  const token = `const token = "${TOKEN}";`;
  const directory = repository({ "a.js": `${token}\n`, "b.js": `${token} // gitleaks:allow\n` });
  const list = path.join(directory, ".gitleaksignore");
  const lines = ["a.js", "b.js"].map((file) => `${path.join(fs.realpathSync(directory), file)}:github-pat:1`);
  // The list itself may contain a key.
  const text = `${lines.join("\n")}\n${token}\n`;
  fs.writeFileSync(list, text);
  const { found } = await search(findSecrets, directory, { EXTRACTION_TOOL_PATH: toolPath });
  expect(found?.map(({ path, line }) => `${path}:${line}`)).toEqual([".gitleaksignore:3", "a.js:1", "b.js:1"]);
  expect(fs.readdirSync(directory).sort()).toEqual([".gitleaksignore", "a.js", "b.js"]);
  expect(fs.readFileSync(list, "utf8")).toBe(text);
});

const TRUFFLEHOG = nodeScript(`
  const path = require("node:path");
  const args = process.argv.slice(2);
  if (args[1] === "--help") { console.error("      --no-ignore-tag   Report secrets on lines with a mark."); process.exit(0); }
  if (args[0] !== "filesystem" || !args.includes("--no-ignore-tag") || !["--json", "--no-update", "--no-verification", "--fail"].every((arg) => args.includes(arg))) process.exit(1);
  const say = (DetectorName, file, Raw, line) => console.log(JSON.stringify({ SourceMetadata: { Data: { Filesystem: { file: path.join(args[1], file), line } } }, SourceID: 1, SourceType: 15,
    SourceName: "trufflehog - filesystem", DetectorType: 8, DetectorName, DecoderName: "PLAIN", Verified: false, Raw, RawV2: Raw + Raw, Redacted: "", ExtraData: null }));
  say("AWS", "config.env", ${JSON.stringify(KEY_ID)}, 1);
  say("Github", "src/a.js", ${JSON.stringify(TOKEN)}, 2);
  say("Github", "src/a.js", ${JSON.stringify(TOKEN)}, 2);
  say("Github", "link", ${JSON.stringify(TOKEN)});
  say("Github", "node_modules/x/i.js", ${JSON.stringify(TOKEN)});
  say("Github", "../elsewhere", ${JSON.stringify(TOKEN)});
  console.log("{ half a line");
  console.error(JSON.stringify({ level: "info-0", msg: "finished scanning", chunks: 7 }));
  process.exitCode = 183;`);

test(`TruffleHog is preferred, and the secrets in its output are stored nowhere (${has("trufflehog") ? "the real one" : "a script, because STILLWAKE_TEST_TOOLS has none"})`, async () => {
  const hog = has("trufflehog") ? `#!/bin/sh\nexec ${real}/trufflehog "$@"\n` : TRUFFLEHOG;
  const toolPath = tools({ trufflehog: hog, gitleaks: "#!/bin/sh\nexit 1\n" });
  const searched = await search(findSecrets, repository(FILES), { EXTRACTION_TOOL_PATH: toolPath });
  expect(searched.lines).toEqual(["info TruffleHog scans the files of this commit - older commits are not scanned"]);
  expect(
    searched.found?.map(({ path, line, rule, message, engine }) => `${engine} ${path}:${line} ${rule} ${message}`),
  ).toEqual([
    "trufflehog config.env:2 AWS Possible secret: AWS",
    "trufflehog src/a.js:3 Github Possible secret: Github",
  ]);
  await expectNoSecret(searched);
});

test("an older TruffleHog gets no unknown option, and skipped lines are logged", async () => {
  const older = TRUFFLEHOG.replace("--no-ignore-tag   Report", "--no-update   Report").replace(
    '!args.includes("--no-ignore-tag")',
    'args.includes("--no-ignore-tag")',
  );
  const searched = await search(findSecrets, repository(FILES), { EXTRACTION_TOOL_PATH: tools({ trufflehog: older }) });
  expect(searched.found).toHaveLength(2);
  expect(searched.lines.slice(1)).toEqual([
    "info Lines marked trufflehog:ignore are not scanned - update TruffleHog to scan them",
  ]);
});

const UNREAD = `#!/bin/sh
[ "$2" = --help ] && exec echo --no-ignore-tag
echo '{"level":"error","msg":"unable to get file info"}' >&2
echo '{"level":"info-0","msg":"finished scanning","chunks":0}' >&2
`;
const FAILURES: [string, Record<string, string>, string, Record<string, string>?][] = [
  [
    "a TruffleHog that runs out of memory",
    { trufflehog: "#!/bin/sh\nkill -9 $$\n" },
    "Secret scan ran out of memory - scanning skipped",
  ],
  [
    "a TruffleHog that is too slow",
    { trufflehog: "#!/bin/sh\nexec sleep 60\n" },
    "Secret scan timed out - scanning skipped",
    { EXTRACTION_SECRETS_SECONDS: "0.3" },
  ],
  [
    "a TruffleHog that could read nothing and exits with 0",
    { trufflehog: UNREAD },
    "Secret scan failed: TruffleHog could not read the files",
  ],
  [
    "a gitleaks that fails",
    { gitleaks: `#!/bin/sh\necho "bad: ${TOKEN}" >&2\nexit 1\n` },
    "Secret scan failed: Gitleaks failed with exit code 1",
  ],
  [
    "a gitleaks that writes nothing",
    { gitleaks: "#!/bin/sh\nexit 0\n" },
    "Secret scan failed: Gitleaks wrote no readable report",
  ],
  [
    "a gitleaks that is killed",
    { gitleaks: "#!/bin/sh\nkill -11 $$\n" },
    "Secret scan failed: Gitleaks was killed by SIGSEGV",
  ],
  [
    "a secretlint that is too slow",
    {},
    "Secret scan timed out - scanning skipped",
    { EXTRACTION_SECRETS_SECONDS: "0.05" },
  ],
];

for (const [name, programs, message, env] of FAILURES) {
  test(`${name} leaves a warning without quotes of its output, and the job continues`, async () => {
    const { found, lines, job } = await search(findSecrets, repository(FILES), {
      EXTRACTION_TOOL_PATH: tools(programs),
      ...env,
    });
    expect(lines.slice(1)).toEqual([`warning ${message}`]);
    expect(found).toBeUndefined();
    expect(job).toMatchObject({ state: "completed", missing: ["scan"] });
  });
}

test("after all tests no secret is in any row", () => expectNoSecret([]));
