// A whole extraction of the shared sample repository: its findings equal those of the tools run directly, and in the full run it
// takes at most 1.5 times as long. If the shared sample is missing, the project's own sample is used.
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { commitFolder } from "@stillwake/kit/demo/git-server";
import { afterAll, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { FULL } from "../../../../test/support/processes/fault-checks.ts";
import { faultyGitServer } from "../../../kit/test/support/git-server.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { extraction } from "../../src/contract.ts";
import { SAMPLES } from "../../src/demo/sample.ts";
import { packagedTool } from "../../src/tools.ts";
import { HOME, setUpExtractions } from "../support/extractions.ts";

const setup = await setUpExtractions();
const root = path.join(setup.folder, "repositories");
const sharedSample = shared("data", "repo-sample");
const sampleName = sharedSample ? "the shared sample" : "the project's sample (../shared is missing)";
await commitFolder(
  sharedSample ?? path.join(SAMPLES, "repository"),
  path.join(root, "acme/sample.git"),
  process.env.PATH ?? "",
);
const server = await faultyGitServer({ root });
afterAll(() => server.close());
const env = {
  EXTRACTION_GITHUB_URL: server.url,
  EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
  EXTRACTION_ADVISORIES: shared("data", "osv") ?? path.join(SAMPLES, "advisories"),
  EXTRACTION_EPSS: shared("data", "epss", "epss_scores-2026-slice.csv") ?? path.join(SAMPLES, "epss.csv"),
  EXTRACTION_KEV: shared("data", "kev", "kev-sample.json") ?? path.join(SAMPLES, "kev.json"),
};

const limit = FULL ? ", in at most 1.5 times their time" : "";
it(`finds in ${sampleName} what the tools find${limit}`, { timeout: 240_000 }, async () => {
  const worker = setup.worker({ env });
  await worker.start();
  try {
    // The first one warms the disk cache.
    const ids: string[] = [];
    for (const _ of [1, 2]) {
      const { id } = await setup.stillwake.enqueue(extraction, await setup.input({ repository: "acme/sample" }));
      await setup.waitForJob(id);
      ids.push(id);
    }
    const { job, lines } = await setup.waitForJob(ids[1]!);
    expect(job.state, lines.join("\n")).toBe("completed");
    const components = sharedSample ? 58 : 15;
    expect(lines).toContain(`success SBOM generated - found ${components} dependencies`);
    const { rows } = await setup.pool.query(
      `select split_part(purl, '/', 1) as kind, count(*)::int from extraction.dependencies d
       join extraction.extractions e on e.project_id = d.project_id where e.id = $1 group by 1 order by 1`,
      [ids[1]],
    );
    if (sharedSample) {
      expect(rows).toEqual([
        { kind: "pkg:golang", count: 2 },
        { kind: "pkg:npm", count: 53 },
        { kind: "pkg:pypi", count: 3 },
      ]);
    }
    // match.test.ts has them by name.
    expect((job.output as { vulnerabilities: { total: number } }).vulnerabilities.total).toBe(sharedSample ? 15 : 10);
    expect(lines.filter((line) => line.startsWith("error"))).toEqual([]);

    // Paths are relative to the repository.
    const sbom = await text(await setup.stillwake.download(ids[1]!, "sbom.cdx.json"));
    expect(sbom).not.toContain(os.tmpdir());
    const files = [...sbom.matchAll(/"SrcFile",\s*"value":\s*"([^"]*)"/g)].map(([, file]) => file!);
    expect(files).toContain("package-lock.json");
    expect(files.filter((file) => path.isAbsolute(file) || file.startsWith(".."))).toEqual([]);

    // Each result is located at the file that names its package.
    const sarif = JSON.parse(await text(await setup.stillwake.download(ids[1]!, "reports/findings.sarif")));
    const results = sarif.runs[0].results as { locations: unknown[]; properties: { purl?: string } }[];
    expect(results.filter(({ locations }) => locations.length !== 1)).toEqual([]);
    const goResults = results.filter(({ properties }) => properties.purl?.startsWith("pkg:golang/"));
    expect(goResults.length).toBeGreaterThan(0);
    for (const { locations } of goResults) {
      const uri = expect.stringMatching(/(?:^|\/)go\.mod$/);
      expect(locations).toEqual([
        { physicalLocation: { artifactLocation: expect.objectContaining({ uri }), region: { startLine: 1 } } },
      ]);
    }

    // Alternately, so that other load affects both.
    const rounds: { tookMs: number; directMs: number }[] = [];
    for (let round = 0; round < (FULL ? 9 : 1); round++) {
      const { id } = await setup.stillwake.enqueue(extraction, await setup.input({ repository: "acme/sample" }));
      const { startedAt, endedAt } = (await setup.waitForJob(id)).job;
      rounds.push({ tookMs: endedAt!.getTime() - startedAt!.getTime(), directMs: await runTools() });
    }
    const tookMs = median(rounds.map((round) => round.tookMs));
    const directMs = median(rounds.map((round) => round.directMs));
    recordFigure(
      "extraction: time of a job compared with the tools alone",
      tookMs / directMs,
      "×",
      `${sampleName}; ${Math.round(tookMs)} ms, tools ${Math.round(directMs)} ms; median of ${rounds.length}`,
    );
    // A single round is not reliable on a shared machine.
    if (FULL) expect(tookMs / directMs).toBeLessThanOrEqual(1.5);
  } finally {
    await worker.stop();
  }
});

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** Runs the same programs directly, one after the other. Returns milliseconds. */
async function runTools(): Promise<number> {
  const folder = fs.mkdtempSync(path.join(setup.folder, "tools-"));
  const source = path.join(folder, "source");
  const [cdxgen, astGrep, secretlint] = await Promise.all(
    (["cdxgen", "ast-grep", "secretlint"] as const).map((name) => packagedTool(name)),
  );
  const run = async (program: string, args: string[], okCodes = [0]) => {
    try {
      await promisify(execFile)(program, args, {
        cwd: folder,
        maxBuffer: 2 ** 26,
        env: { PATH: process.env.PATH, HOME: folder, FETCH_LICENSE: "false" },
      });
    } catch (error) {
      if (!okCodes.includes((error as { code: number }).code)) throw error;
    }
  };
  const began = performance.now();
  await run("git", ["clone", "--quiet", "--depth=1", `${server.url}/acme/sample.git`, source]);
  await run(process.execPath, [
    cdxgen!,
    "--no-install-deps",
    "--no-babel",
    "--no-validate",
    "-r",
    "-o",
    path.join(folder, "bom.json"),
    source,
  ]);
  await run(astGrep!, ["scan", "--config", path.join(HOME, "rules/sgconfig.yml"), "--json=stream", source], [0, 1]);
  const rules = JSON.stringify({ rules: [{ id: "@secretlint/secretlint-rule-preset-recommend" }] });
  await run(process.execPath, [secretlint!, "--secretlintrcJSON", rules, "--format=json", `${source}/**/*`], [0, 1]);
  return performance.now() - began;
}
