// Whole extractions with a local server of OSV.dev's wire format: what reaches the log, the tables and the reports when
// vulnerabilities are checked, not checked, or belong to the sample.
import path from "node:path";
import { text } from "node:stream/consumers";
import { commitFolder } from "@stillwake/kit/demo/git-server";
import { afterAll, beforeEach, expect, it } from "vitest";
import { faultyGitServer } from "../../../kit/test/support/git-server.ts";
import type { Output } from "../../src/contract.ts";
import { SAMPLES } from "../../src/demo/sample.ts";
import { setUpExtractions } from "../support/extractions.ts";
import { startOsvServer } from "../support/osv-server.ts";

const setup = await setUpExtractions();
const root = path.join(setup.folder, "repositories");
for (const owner of ["acme", "sample"])
  await commitFolder(path.join(SAMPLES, "repository"), path.join(root, `${owner}/harbour.git`), process.env.PATH ?? "");
const git = await faultyGitServer({ root });
const osv = await startOsvServer();
afterAll(async () => {
  await git.close();
  await osv.close();
});
beforeEach(() => osv.reset());

const env = {
  EXTRACTION_GITHUB_URL: git.url,
  EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
  EXTRACTION_ADVISORIES: "",
  EXTRACTION_OSV_URL: osv.url,
};
const HOSTILE = `</p><script>alert(1)</script> \u202e\u001b[31m "quoted"`;

it("finds what OSV.dev knows, and escapes its texts in all reports", { timeout: 120_000 }, async () => {
  osv.add(
    {
      id: "GHSA-xvch-5gv4-984h",
      modified: "2026-01-01T00:00:00Z",
      aliases: ["CVE-2021-44906", `<img src=x onerror=alert(1)>`],
      summary: HOSTILE,
      references: [{ type: "WEB", url: "javascript:alert(1)" }],
      severity: [{ type: "CVSS_V3", score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H" }],
      affected: [
        {
          package: { ecosystem: "npm", name: "minimist" },
          ranges: [{ type: "SEMVER", events: [{ introduced: "1.0.0" }, { fixed: "1.2.6" }] }],
        },
      ],
    },
    "pkg:npm/minimist@1.2.0",
  );
  const { job, lines } = await setup.extract({ repository: "acme/harbour" }, { env });
  expect(job.state, lines.join("\n")).toBe("completed");
  const sent = osv.batches.flat().map((query) => query.package?.purl ?? "");
  expect(sent).toContain("pkg:npm/minimist@1.2.0");
  expect(sent.filter((purl) => !/^pkg:(?:npm|pypi|golang)\/[^?#]+@[^?#]+$/.test(purl))).toEqual([]);
  const output = job.output as Output;
  expect(output.vulnerabilities).toEqual({ total: 1, critical: 1 });
  expect(output.coverage).toEqual({ checked: 15, total: 15, notes: [] });
  expect(lines).toContain("success Vulnerability scan complete - found 1 vulnerabilities (1 critical)");

  const { rows } = await setup.pool.query(
    `select v.id, v.severity, v.score, v.fixed, v.source, v.url, r.looked -> 'vulnerabilities' -> 'coverage' as coverage
     from extraction.vulnerabilities v join extraction.repositories r using (project_id) where v.extraction_id = $1`,
    [job.id],
  );
  expect(rows).toEqual([
    {
      id: "GHSA-xvch-5gv4-984h",
      severity: "critical",
      score: 9.8,
      fixed: ["1.2.6"],
      source: "osv.dev",
      url: "https://github.com/advisories/GHSA-xvch-5gv4-984h",
      coverage: { checked: 15, total: 15, notes: [] },
    },
  ]);
  const summary = await report(job.id, "reports/summary.html");
  expect(summary).toContain("&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;");
  for (const raw of ["<script", "<img", "\u202e", "\u001b", "javascript:"]) expect(summary).not.toContain(raw);
  const sarif = JSON.parse(await report(job.id, "reports/findings.sarif"));
  expect(JSON.stringify(sarif)).toContain("<script>alert(1)</script> <U+202E><U+001B>[31m");
  expect(sarif.runs[0].invocations[0].toolExecutionNotifications).toEqual([]);

  // The next extraction, of another project, fetches nothing that has not changed.
  osv.requests = [];
  const again = await setup.extract({ repository: "acme/harbour" }, { env });
  expect((again.job.output as Output).vulnerabilities).toEqual({ total: 1, critical: 1 });
  expect(osv.requests).toEqual(["POST /v1/querybatch"]);
});

it("never reports 0 vulnerabilities if OSV.dev does not answer", { timeout: 120_000 }, async () => {
  osv.fault = (response) => Boolean(response.writeHead(503, { "retry-after": "0" }).end());
  const { job, lines } = await setup.extract({ repository: "acme/harbour" }, { env });
  const why = "OSV.dev did not answer about 15 dependencies (HTTP 503)";
  expect([job.state, job.missing]).toEqual(["completed", ["vuln_scan"]]);
  expect(lines).toContain(`warning Vulnerabilities were not checked: ${why}`);
  expect(lines.filter((line) => /found \d+ vulnerabilities/.test(line))).toEqual([]);
  const output = job.output as Output;
  expect([output.vulnerabilities, output.coverage]).toEqual([null, { checked: 0, total: 15, notes: [why] }]);
  const findings = JSON.parse(await report(job.id, "reports/findings.json"));
  expect([findings.vulnerabilities, findings.counts.vulnerabilities, findings.checked]).toEqual([
    null,
    null,
    output.coverage,
  ]);
  const note = `This extraction did not scan for vulnerabilities: ${why}`;
  const summary = await report(job.id, "reports/summary.html");
  expect(summary).toContain(`<p class="notice" role="note">${note}.</p>`);
  expect(summary).toMatch(/<h2>Vulnerabilities<\/h2><p class="number">–<\/p><p class="quiet">not scanned<\/p>/);
  const sarif = JSON.parse(await report(job.id, "reports/findings.sarif"));
  expect(sarif.runs[0].invocations[0].toolExecutionNotifications).toEqual([
    { level: "warning", message: { text: note } },
  ]);
});

it("sends no request about the sample, which has its own advisories", { timeout: 120_000 }, async () => {
  const sample = {
    ...env,
    EXTRACTION_SAMPLE: `github:sample=${SAMPLES}`,
    EXTRACTION_EPSS: "none",
    EXTRACTION_KEV: "none",
  };
  const { job, lines } = await setup.extract({ repository: "sample/harbour" }, { env: sample });
  expect((job.output as Output).vulnerabilities, lines.join("\n")).toEqual({ total: 10, critical: 3 });
  expect(lines).toContain("info Using the built-in matcher instead, with 11 advisories");
  expect(lines).toContainEqual(expect.stringMatching(/^info EPSS of 2026-01-05 has/));
  expect(osv.requests).toEqual([]);
  const other = await setup.extract({ repository: "acme/harbour" }, { env: sample });
  expect(osv.requests).toEqual(["POST /v1/querybatch"]);
  expect((other.job.output as Output).vulnerabilities).toEqual({ total: 0, critical: 0 });
});

async function report(job: string, name: string): Promise<string> {
  return text(await setup.stillwake.download(job, name));
}
