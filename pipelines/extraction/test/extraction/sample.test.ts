// A whole extraction of the sample repository that is kept beside the project: what it finds equals what the tools find by hand, and in the long form it takes
// half as long again at most. Where that sample is absent, the one that comes with the project is extracted.
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { commitFolder } from "@stillwake/kit/demo/git-server";
import { afterAll, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { FULL } from "../../../../test/support/processes/aftermath.ts";
import { faultyGitServer } from "../../../kit/test/support/git-server.ts";
import { extraction } from "../../src/contract.ts";
import { SAMPLES } from "../../src/demo/sample.ts";
import { packagedTool } from "../../src/tools.ts";
import { HOME, stage } from "../support/extractions.ts";
import { shared } from "../support/shared-data.ts";

const place = await stage();
const root = path.join(place.folder, "repositories");
const theirs = shared("data", "repo-sample");
const which = theirs ? "the shared sample" : "our own sample, because ../shared is absent";
await commitFolder(
  theirs ?? path.join(SAMPLES, "repository"),
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

const soon = FULL ? ", in half as much time again at most" : "";
it(`finds in ${which} what the tools find${soon}`, { timeout: 240_000 }, async () => {
  const worker = place.worker({ env });
  await worker.start();
  try {
    // The first one warms the disk's cache, for the tools by hand as well.
    const ids: string[] = [];
    for (const _ of [1, 2]) {
      const { id } = await place.stillwake.enqueue(extraction, await place.input({ repository: "acme/sample" }));
      await place.ended(id);
      ids.push(id);
    }
    const { job, lines } = await place.ended(ids[1]!);
    expect(job.state, lines.join("\n")).toBe("completed");
    const components = theirs ? 58 : 15;
    expect(lines).toContain(`success SBOM generated - found ${components} dependencies`);
    const { rows } = await place.pool.query(
      `select split_part(purl, '/', 1) as kind, count(*)::int from extraction.dependencies d
       join extraction.extractions e on e.project_id = d.project_id where e.id = $1 group by 1 order by 1`,
      [ids[1]],
    );
    if (theirs) {
      expect(rows).toEqual([
        { kind: "pkg:golang", count: 2 },
        { kind: "pkg:npm", count: 53 },
        { kind: "pkg:pypi", count: 3 },
      ]);
    }
    // Of the saved advisories; vulnerabilities.test.ts has them by name.
    expect((job.output as { vulnerabilities: { total: number } }).vulnerabilities.total).toBe(theirs ? 15 : 10);
    expect(lines.filter((line) => line.startsWith("error"))).toEqual([]);

    // Files by their places in the repository, whatever machine it was made on.
    const sbom = await text(await place.stillwake.download(ids[1]!, "sbom.cdx.json"));
    expect(sbom).not.toContain(os.tmpdir());
    const files = [...sbom.matchAll(/"SrcFile",\s*"value":\s*"([^"]*)"/g)].map(([, file]) => file!);
    expect(files).toContain("package-lock.json");
    expect(files.filter((file) => path.isAbsolute(file) || file.startsWith(".."))).toEqual([]);

    // Each of them at the file that names its package, whether or not cdxgen says which that is.
    const sarif = JSON.parse(await text(await place.stillwake.download(ids[1]!, "reports/findings.sarif")));
    const results = sarif.runs[0].results as { locations: unknown[]; properties: { purl?: string } }[];
    expect(results.filter(({ locations }) => locations.length !== 1)).toEqual([]);
    const ofGo = results.filter(({ properties }) => properties.purl?.startsWith("pkg:golang/"));
    expect(ofGo.length).toBeGreaterThan(0);
    for (const { locations } of ofGo) {
      const uri = expect.stringMatching(/(?:^|\/)go\.mod$/);
      expect(locations).toEqual([
        { physicalLocation: { artifactLocation: expect.objectContaining({ uri }), region: { startLine: 1 } } },
      ]);
    }

    // In turns, so that what else the machine does befalls both.
    const turns: { tookMs: number; handMs: number }[] = [];
    for (let turn = 0; turn < (FULL ? 9 : 1); turn++) {
      const { id } = await place.stillwake.enqueue(extraction, await place.input({ repository: "acme/sample" }));
      const { startedAt, endedAt } = (await place.ended(id)).job;
      turns.push({ tookMs: endedAt!.getTime() - startedAt!.getTime(), handMs: await byHand() });
    }
    const tookMs = median(turns.map((turn) => turn.tookMs));
    const handMs = median(turns.map((turn) => turn.handMs));
    recordFigure(
      "extraction: time of a job over the tools by hand",
      tookMs / handMs,
      "×",
      `${which}; ${Math.round(tookMs)} ms, tools ${Math.round(handMs)} ms; median of ${turns.length}`,
    );
    // One turn alone says little on a machine that others use.
    if (FULL) expect(tookMs / handMs).toBeLessThanOrEqual(1.5);
  } finally {
    await worker.stop();
  }
});

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** The same programs one after the other, as a person would call them. */
async function byHand(): Promise<number> {
  const folder = fs.mkdtempSync(path.join(place.folder, "by-hand-"));
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
