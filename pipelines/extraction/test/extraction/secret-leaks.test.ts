// The sealed token of an integration goes to git, and the repository contains a key. Neither appears in the database, in
// artifacts, in the worker's output or in files on the disk.
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { createStillwake, newSealKey } from "stillwake";
import { afterAll, describe, expect, it } from "vitest";
import { startWorker } from "../../../../test/support/processes/workers.ts";
import { faultyGitServer, Repository } from "../../../kit/test/support/git-server.ts";
import { extraction } from "../../src/contract.ts";
import { SAMPLES } from "../../src/demo/sample.ts";
import { PIPELINE, setUpExtractions } from "../support/extractions.ts";

const setup = await setUpExtractions();
const token = `glpat-${randomBytes(20).toString("hex")}`;
// The rule of secretlint needs a word boundary after the key.
const planted = randomBytes(30).toString("base64").replaceAll(/[+/]/g, "x");
const control = `control-${randomBytes(20).toString("hex")}`;
const root = path.join(setup.folder, "repositories");
const server = await faultyGitServer({ root, token });
afterAll(() => server.close());
new Repository(root, "acme/site").commitFiles({
  "requirements.txt": "requests==2.19.0\n",
  "deploy.env": `AWS_SECRET_ACCESS_KEY=${planted}\n`,
});

describe("no secret is written", () => {
  it.each([
    ["after an extraction", token, "completed"],
    ["after a rejected token", `${token}-expired`, "failed"],
  ])("%s", { timeout: 120_000 }, async (_, credential, state) => {
    const key = `k1:${newSealKey()}`;
    const stillwake = createStillwake({ url: setup.url, sealKeys: key });
    const worker = await startWorker({
      url: setup.url,
      pipelines: PIPELINE,
      env: {
        ...setup.env,
        STILLWAKE_SEAL_KEYS: key,
        EXTRACTION_GITLAB_URL: server.url,
        EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
        EXTRACTION_TOOL_PATH: path.join(setup.folder, "no-tools"),
        EXTRACTION_ADVISORIES: path.join(SAMPLES, "advisories"),
      },
      args: ["--pool", "scan", "--slots", "1"],
    });
    try {
      const input = await setup.input({ repository: "acme/site", provider: "gitlab", credential, branch: "main" });
      await setup.pool.query("update extraction.projects set name = $2 where id = $1", [input.projectId, control]);
      const { id } = await stillwake.enqueue(extraction, input);
      const { job, lines } = await setup.waitForJob(id);
      expect(job.state, lines.join("\n")).toBe(state);
      if (state === "completed") expect(lines).toContain("success Secret scan complete - 1 secret found");

      const sinks: Record<string, string> = {
        database: await databaseText(),
        "the worker's output": JSON.stringify(worker.lines) + worker.stderr(),
        "files on the disk": filesIn(worker.scratch),
      };
      expect(sinks.database).toContain(control);
      if (state === "completed") expect(sinks["files on the disk"]).toContain("requests");
      for (const [name, text] of Object.entries(sinks)) {
        for (const secret of [credential, planted]) {
          for (const form of formsOf(secret)) expect(text.includes(form), `${form} in ${name}`).toBe(false);
        }
      }
      // The token was sent to the git server, in no URL.
      const sent = server.requests.map(({ authorization }) =>
        Buffer.from(authorization?.slice(6) ?? "", "base64").toString(),
      );
      expect(sent.some((value) => value.endsWith(`:${credential}`))).toBe(true);
      expect(server.requests.filter(({ path: requested }) => requested.includes("glpat"))).toEqual([]);
    } finally {
      await stillwake.close();
    }
  });
});

/** Every row of every table, as text. */
async function databaseText(): Promise<string> {
  const { rows: tables } = await setup.pool.query(
    "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname in ('stillwake', 'extraction')",
  );
  const texts: string[] = [];
  for (const { name } of tables) {
    const { rows } = await setup.pool.query(`select t::text as row from ${name} t`);
    texts.push(...rows.map(({ row }) => row));
  }
  return texts.join("\n");
}

/** Artifacts, scratch directories and all else below a folder. */
function filesIn(folder: string): string {
  return fs
    .readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(
      (entry) => `${entry.name}\n${fs.readFileSync(path.join(entry.parentPath ?? entry.path, entry.name), "latin1")}`,
    )
    .join("\n");
}

function formsOf(secret: string): string[] {
  const base64At = (offset: number) => {
    const text = Buffer.from("x".repeat(offset) + secret).toString("base64");
    return text.slice(offset === 0 ? 0 : 4, -4);
  };
  return [
    secret,
    secret.slice(4, 20),
    base64At(0),
    base64At(1),
    base64At(2),
    Buffer.from(secret).toString("hex"),
    encodeURIComponent(secret),
  ];
}
