// The reports of an extraction, written by a real job: the same bytes for the same findings, and safe with hostile content.
import fs from "node:fs";
import type { JobContext } from "stillwake/worker";
import { expect, test } from "vitest";
import type { Finding, Vulnerability } from "../../src/model.ts";
import { writeFindings } from "../../src/reports/findings.ts";
import { type Content, REPORTS, type Report, type ReportInput, writeReports } from "../../src/reports/reports.ts";
import { missingNotes, writeSarif } from "../../src/reports/sarif.ts";
import { writeSummary } from "../../src/reports/summary.ts";
import { component, HOSTILE, someContent } from "../support/report-content.ts";
import { expectSarif } from "../support/sarif.ts";
import { setUpScans } from "../support/scan-job.ts";

const { run } = await setUpScans();

const SBOM = JSON.stringify({
  bomFormat: "CycloneDX",
  specVersion: "1.6",
  metadata: { component: { type: "application", name: "site", "bom-ref": "site" } },
  components: [
    component("pkg:npm/lodash@4.17.15", "package-lock.json"),
    component("pkg:npm/minimist@1.2.0", "web/package-lock.json"),
    component("pkg:golang/gin@1.6.0"),
  ],
  dependencies: [
    { ref: "site", dependsOn: ["pkg:npm/lodash@4.17.15", "pkg:golang/gin@1.6.0"] },
    { ref: "pkg:npm/lodash@4.17.15", dependsOn: ["pkg:npm/minimist@1.2.0"] },
  ],
});

interface WrittenReports {
  reports: Report[];
  texts: Record<string, string>;
}

async function write(input: ReportInput): Promise<WrittenReports> {
  const written: WrittenReports = { reports: [], texts: {} };
  await run(async (job: JobContext) => {
    await job.artifact(REPORTS.sbom, () => SBOM);
    written.reports = await writeReports(job, input);
    for (const { name } of written.reports) written.texts[name] = fs.readFileSync(await job.artifactFile(name), "utf8");
  });
  return written;
}

test("four reports are stored as artifacts, with the origin of each vulnerable package", async () => {
  const { reports, texts } = await write(someContent());
  expect(reports.map(({ name }) => name)).toEqual([
    "sbom.cdx.json",
    "reports/findings.json",
    "reports/findings.sarif",
    "reports/summary.html",
  ]);
  for (const { name, size, sha256 } of reports) {
    expect(size).toBe(Buffer.byteLength(texts[name]!));
    expect(sha256).toMatch(/^[0-9a-f]{64}$/);
  }

  const findings = JSON.parse(texts[REPORTS.findings]!);
  expect(findings).toMatchObject({
    repository: { provider: "github", name: "acme/site", branch: "main", commit: "c0ffee" },
    dependencies: { direct: 2, transitive: 1 },
    counts: { vulnerabilities: { critical: 1, high: 1, medium: 1 }, code: { high: 1 }, secrets: { high: 1 } },
  });
  const [worst, lodash, gin] = findings.vulnerabilities;
  expect(worst).toMatchObject({
    id: "GHSA-2",
    direct: false,
    manifest: "web/package-lock.json",
    kev: { added: "2024-01-02" },
    epss: 0.91,
  });
  expect(lodash).toMatchObject({ id: "GHSA-1", direct: true, manifest: "package-lock.json", epss: null });
  expect(gin).toMatchObject({ id: "GO-3", direct: true, manifest: "service/go.mod" });

  const html = texts[REPORTS.summary]!;
  expect(html).toMatch(/exploited since 2024-01-02 \(.*KEV.*transitive · web\/package-lock\.json.*91\.0 %/s);
  expect(html).toMatch(/2 direct, 1 transitive/);
  expect(html).not.toMatch(/<script|javascript:|https?:\/\/(?!osv\.example)/i);
});

const WRITERS: [string, (content: Content) => string][] = [
  ["findings.json", (content) => [...writeFindings(content)].join("")],
  ["findings.sarif", writeSarif],
  ["summary.html", writeSummary],
];

test("the same findings give the same bytes, whatever the order of code and secrets", () => {
  for (const [name, write] of WRITERS) {
    const content = someContent();
    const shuffled = { ...content, code: [...content.code!].reverse(), secrets: [...content.secrets!].reverse() };
    expect(write(shuffled), name).toBe(write(content));
    expect(write(content), name).toContain("2026-03-04");
  }
});

test("lists that were not scanned are reported as missing, not as empty", () => {
  const none = { ...someContent(), vulnerabilities: undefined, code: [], secrets: undefined };
  const findings = JSON.parse([...writeFindings(none)].join(""));
  expect(findings).toMatchObject({
    vulnerabilities: null,
    code: [],
    secrets: null,
    counts: { vulnerabilities: null, secrets: null },
  });
  const { invocations } = expectSarif(writeSarif(none));
  expect(invocations[0]?.toolExecutionNotifications.map(({ message }) => message.text)).toEqual([
    "This extraction did not scan for vulnerabilities",
    "This extraction did not scan for secrets",
  ]);
  const html = writeSummary(none);
  expect(html).toContain("This extraction did not scan for secrets.");
  expect(html).toContain("No dangerous code was found.");
  expect(html).not.toContain("No secrets were found");
});

test("reports say how many dependencies were checked, if not all", () => {
  const coverage = {
    checked: 2,
    total: 1003,
    notes: ["1000 are of a kind that OSV.dev does not know (<b>)", "1 has no version"],
  };
  const content = { ...someContent(), vulnerabilities: [], coverage };
  const note =
    "Only 2 of 1003 dependencies were checked for vulnerabilities: 1000 are of a kind that OSV.dev does not know (<b>); 1 has no version";
  expect(missingNotes(content)[0]).toBe(note);
  const html = writeSummary(content);
  expect(html).toContain(`${note.replace("<b>", "&lt;b&gt;")}.</p>`);
  expect(html).toContain("in 2 of 1,003 dependencies");
  expect(html).toContain("No known vulnerabilities were found in the dependencies that were checked.");
  expect(JSON.parse([...writeFindings(content)].join("")).checked).toEqual(coverage);
  expect(writeSummary(someContent())).not.toContain("dependencies were checked");
});

test("hostile findings are safe: markup, colours, bidirectional text, a megabyte of text, paths that lead out", () => {
  const base = someContent();
  const finding = (fields: Partial<Finding>): Finding => ({
    ...base.code![0]!,
    fingerprint: JSON.stringify(fields).slice(0, 40),
    ...fields,
  });
  const code = [
    finding({
      message: HOSTILE.markup,
      rule: HOSTILE.markup,
      path: `src/${HOSTILE.markup}.js`,
      engine: HOSTILE.markup,
      cwe: [HOSTILE.markup],
    }),
    finding({ message: HOSTILE.controls, path: `a${HOSTILE.controls}.js` }),
    finding({ message: HOSTILE.long, path: HOSTILE.long }),
    finding({ path: "../../etc/passwd" }),
    finding({ path: "/etc/passwd" }),
    finding({ path: "a/../../b" }),
    finding({ path: "javascript:alert(1)" }),
    finding({ path: "half\ud800.js", message: "half \udfff" }),
  ];
  const vulnerability: Vulnerability = {
    ...base.vulnerabilities![0]!,
    id: HOSTILE.markup,
    name: HOSTILE.markup,
    version: HOSTILE.controls,
    summary: HOSTILE.long,
    fixed: [HOSTILE.markup],
    aliases: [HOSTILE.markup],
    url: "javascript:alert(1)",
    cve: "__proto__",
  };
  const content: Content = {
    ...base,
    checkout: { ...base.checkout, branch: HOSTILE.markup },
    code,
    vulnerabilities: [vulnerability, { ...vulnerability, id: "x", url: `https://a.example/${HOSTILE.markup}` }],
    origins: new Map([[vulnerability.purl, { direct: true, manifest: "../../../etc/shadow" }]]),
  };

  const html = writeSummary(content);
  expect(html).not.toMatch(/<(script|img|svg)\b/i);
  expect(html).not.toMatch(/<[^>]*\son\w+=/i);
  expect(html.match(/href="([^"]*)"/g)).toEqual([expect.stringMatching(/^href="https:\/\/a\.example\//)]);
  expect(html).not.toMatch(/(?!\n)\p{Cc}|[\u202a-\u202e\u2066-\u2069\u200b]/u);
  expect(html).toContain("&lt;U+202E&gt;");
  expect(html.length).toBeLessThan(40_000);

  const run = expectSarif(writeSarif(content));
  const uris = run.results.flatMap((result) =>
    result.locations.map((location) => location.physicalLocation.artifactLocation.uri),
  );
  expect(uris).not.toContainEqual(expect.stringMatching(/passwd|shadow/));
  expect(uris).toContain("javascript%3Aalert(1)");

  const json = [...writeFindings(content)].join("");
  expect(json.length).toBeLessThan(40_000);
  expect(JSON.parse(json).code).toHaveLength(code.length);
});

test("a feed that could not be read is named", () => {
  const unread = { ...someContent(), exploited: { byCve: {}, read: { epss: true, kev: false } } };
  const { invocations } = expectSarif(writeSarif(unread));
  expect(invocations[0]?.toolExecutionNotifications.map(({ message }) => message.text)).toEqual([
    "This extraction could not read KEV",
  ]);
  expect(writeSummary(unread)).toContain("This extraction could not read KEV.");
  expect(writeSummary({ ...unread, exploited: undefined })).toContain("This extraction could not read EPSS.");
});
