// The reports of an extraction: made by a job on the real engine, the same bytes for the same findings, and harmless whatever stands in those.
import fs from "node:fs";
import type { JobContext } from "stillwake/worker";
import { expect, test } from "vitest";
import type { Finding, Vulnerability } from "../../src/model.ts";
import { writeFindings } from "../../src/reports/findings.ts";
import { type Content, type Given, REPORTS, type Report, writeReports } from "../../src/reports/reports.ts";
import { writeSarif } from "../../src/reports/sarif.ts";
import { writeSummary } from "../../src/reports/summary.ts";
import { component, HOSTILE, someContent } from "../support/report-content.ts";
import { expectSarif } from "../support/sarif.ts";
import { searching } from "../support/scan-job.ts";

const { run } = await searching();

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

interface Made {
  reports: Report[];
  texts: Record<string, string>;
}

async function make(given: Given): Promise<Made> {
  const made: Made = { reports: [], texts: {} };
  await run(async (job: JobContext) => {
    await job.artifact(REPORTS.sbom, () => SBOM);
    made.reports = await writeReports(job, given);
    for (const { name } of made.reports) made.texts[name] = fs.readFileSync(await job.artifactFile(name), "utf8");
  });
  return made;
}

test("four reports are kept as artifacts, with where each vulnerable package comes from", async () => {
  const { reports, texts } = await make(someContent());
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

test("the same findings make the same bytes, in whatever order the tools named code and secrets", () => {
  for (const [name, write] of WRITERS) {
    const content = someContent();
    const shuffled = { ...content, code: [...content.code!].reverse(), secrets: [...content.secrets!].reverse() };
    expect(write(shuffled), name).toBe(write(content));
    expect(write(content), name).toContain("2026-03-04");
  }
});

test("what nobody could look for is said to be missing, and is not the same as nothing", () => {
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
    "Vulnerabilities were not looked for in this extraction",
    "Secrets were not looked for in this extraction",
  ]);
  const html = writeSummary(none);
  expect(html).toContain("Secrets were not looked for in this extraction.");
  expect(html).toContain("Nothing dangerous was found in the code.");
  expect(html).not.toContain("No secrets were found");
});

test("hostile findings: markup, colours, turned writing, a megabyte of text and paths that lead out do no harm", () => {
  const base = someContent();
  const finding = (over: Partial<Finding>): Finding => ({
    ...base.code![0]!,
    fingerprint: JSON.stringify(over).slice(0, 40),
    ...over,
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
  const uris = run.results.flatMap((one) => one.locations.map((place) => place.physicalLocation.artifactLocation.uri));
  expect(uris).not.toContainEqual(expect.stringMatching(/passwd|shadow/));
  expect(uris).toContain("javascript%3Aalert(1)");

  const json = [...writeFindings(content)].join("");
  expect(json.length).toBeLessThan(40_000);
  expect(JSON.parse(json).code).toHaveLength(code.length);
});

test("a feed that was not read is named, so that nobody takes its silence for safety", () => {
  const unread = { ...someContent(), exploited: { byCve: {}, read: { epss: true, kev: false } } };
  const { invocations } = expectSarif(writeSarif(unread));
  expect(invocations[0]?.toolExecutionNotifications.map(({ message }) => message.text)).toEqual([
    "KEV was not read in this extraction",
  ]);
  expect(writeSummary(unread)).toContain("KEV was not read in this extraction.");
  expect(writeSummary({ ...unread, exploited: undefined })).toContain("EPSS was not read in this extraction.");
});
