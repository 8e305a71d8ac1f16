// The step "vuln_scan" as a job: dep-scan is a script that succeeds, fails, hangs or is killed. Messages are compared exactly.
import fs from "node:fs";
import path from "node:path";
import { userError } from "@stillwake/kit/failures";
import { describe, expect, it } from "vitest";
import { isAlive } from "../../../../test/support/processes/fault-checks.ts";
import { SAMPLES } from "../../src/demo/sample.ts";
import type { Vulnerability, VulnerabilityScan } from "../../src/model.ts";
import { readSettings } from "../../src/settings.ts";
import { scanVulnerabilities } from "../../src/vulnerabilities/scan.ts";
import { setUpScans } from "../support/scan-job.ts";

const { folder: root, run, pool } = await setUpScans();

const UNAVAILABLE = "Vulnerability scanning unavailable (dep-scan not installed)";
const USES_BUILT_IN = "info Using the built-in matcher instead, with 11 advisories";
/** Matches of the sample advisories in the SBOM below. */
const BUILT_IN = ["STILLWAKE-2026-0002 pkg:npm/minimist@1.2.0", "STILLWAKE-2026-0001 pkg:npm/lodash@4.17.15"];

describe("the vulnerability scan", () => {
  it("without dep-scan has a warning and uses the built-in matcher", async () => {
    const { lines, found, missing } = await scan(undefined);
    expect(lines).toEqual([
      "info Running vulnerability scan...",
      `warning ${UNAVAILABLE}`,
      USES_BUILT_IN,
      "success Vulnerability scan complete - found 2 vulnerabilities (1 critical)",
    ]);
    expect([found, missing]).toEqual([BUILT_IN, []]);
  });

  it("without dep-scan and advisories is missing, with a warning", async () => {
    const empty = fs.mkdtempSync(path.join(root, "empty-"));
    for (const [advisories, reason] of [
      [empty, "the folder of EXTRACTION_ADVISORIES contains no advisories"],
      [path.join(root, "nowhere"), "the folder of EXTRACTION_ADVISORIES cannot be read"],
    ] as const) {
      const { lines, missing } = await scan(undefined, { EXTRACTION_ADVISORIES: advisories });
      expect(lines).toEqual([
        "info Running vulnerability scan...",
        `warning ${UNAVAILABLE}`,
        `warning Vulnerabilities were not checked: ${reason}`,
      ]);
      expect(missing).toEqual(["vuln_scan"]);
    }
  });

  it("warns of advisories that cannot be read or compared, and uses the rest", async () => {
    const advisories = fs.mkdtempSync(path.join(root, "advisories-"));
    const ranges = (name: string, fixed: string) => [
      {
        package: { ecosystem: "npm", name },
        ranges: [{ type: "ECOSYSTEM", events: [{ introduced: "0" }, { fixed }] }],
      },
    ];
    fs.writeFileSync(
      path.join(advisories, "a.json"),
      JSON.stringify({ id: "A-1", affected: ranges("lodash", "5.0.0") }),
    );
    fs.writeFileSync(
      path.join(advisories, "b.json"),
      JSON.stringify({ id: "A-2", affected: ranges("minimist", "the next") }),
    );
    fs.writeFileSync(path.join(advisories, "c.json"), "{");
    const { lines, found } = await scan(undefined, { EXTRACTION_ADVISORIES: advisories });
    expect(lines).toContain("warning 1 file of the advisories could not be read");
    expect(lines).toContain("warning 1 version cannot be compared with the package's advisories");
    expect(found).toEqual(["A-1 pkg:npm/lodash@4.17.15"]);
  });

  it("logs the first line of a crashed dep-scan, without colours and paths", async () => {
    const { lines, found } = await scan(
      String.raw`printf '\n\033[31mCannot open /opt/tools/lib/vdb/data.vdb6 for %s\033[0m\nTraceback\n' "$PWD/sbom.json" >&2; exit 3`,
    );
    expect(lines).toContainEqual(
      expect.stringMatching(
        /^warning Vulnerability scan failed: Cannot open …\/data\.vdb6 for dep-scan-\w+\/sbom\.json$/,
      ),
    );
    expect(lines).toContain(USES_BUILT_IN);
    expect(found).toEqual(BUILT_IN);
  });

  it.each([
    ["that says nothing", "exit 4", "exit code 4"],
    ["that ran out of memory", "kill -9 $$", "out of memory"],
    ["that was killed in a container", "echo Killed >&2; exit 137", "Killed"],
    ["that was killed otherwise", "kill -TERM $$", "killed by SIGTERM"],
    ["that writes no report", "exit 0", "dep-scan wrote no report"],
    ["that writes half a report", 'echo "{\\"vulner" > sbom.vdr.json', "its report cannot be read"],
    ["that writes another report", "echo [] > sbom.vdr.json", "its report has no list of vulnerabilities"],
    ["whose report is a link", "ln -s /etc/passwd sbom.vdr.json", "its report is not a regular file"],
  ])("with a dep-scan %s has a warning and uses the built-in matcher", async (_, script, reason) => {
    const { lines, found } = await scan(script);
    expect(lines).toContain(`warning Vulnerability scan failed: ${reason}`);
    expect(lines).toContain(USES_BUILT_IN);
    expect(found).toEqual(BUILT_IN);
  });

  it("kills a dep-scan that hangs, with all its children", async () => {
    const pids = path.join(root, "pids");
    const { lines, found } = await scan(`sleep 600 & echo $! $$ > ${pids}; wait`, {
      EXTRACTION_VULNERABILITIES_SECONDS: "0.7",
    });
    expect(lines).toContain("warning Vulnerability scan timed out");
    expect(lines).toContain(USES_BUILT_IN);
    expect(found).toEqual(BUILT_IN);
    for (const pid of fs.readFileSync(pids, "utf8").trim().split(" ")) {
      expect(isAlive(Number(pid))).toBe(false);
    }
  });

  it("uses the report of dep-scan, including reachability", async () => {
    const recorded = path.join(root, "recorded");
    const report = path.join(root, "report.json");
    fs.writeFileSync(report, JSON.stringify(REPORT));
    const { lines, vulnerabilities } = await scan(
      `echo "$@" > ${recorded}; env >> ${recorded}; pwd >> ${recorded}; cp ${report} sbom.vdr.json`,
    );
    expect(lines).toEqual([
      "info Running vulnerability scan...",
      "success Vulnerability scan complete - found 3 vulnerabilities (1 critical)",
    ]);
    expect(vulnerabilities).toEqual([
      {
        id: "CVE-1900-0002",
        aliases: ["GHSA-aaaa-bbbb-cccc"],
        cve: "CVE-1900-0002",
        purl: "pkg:npm/minimist@1.2.0",
        name: "minimist",
        version: "1.2.0",
        severity: "critical",
        score: 9.8,
        summary: "An argument named like a prototype is taken for one",
        fixed: ["1.2.6"],
        reachable: true,
        source: "dep-scan",
        url: "https://nvd.example/CVE-1900-0002",
      },
      expect.objectContaining({
        id: "GHSA-dddd-eeee-ffff",
        cve: "CVE-1900-0001",
        severity: "high",
        reachable: false,
        url: null,
      }),
      expect.objectContaining({
        id: "CVE-1900-0009",
        purl: "pkg:npm/lodash@4.17.15",
        severity: "unknown",
        score: null,
        fixed: [],
      }),
    ]);
    const call = fs.readFileSync(recorded, "utf8");
    expect(call).toMatch(
      /--no-banner .*--profile research --src \S+\/checkout --bom \S+\/sbom\.json --reports-dir \S+/,
    );
    expect(call).toMatch(/^VDB_HOME=.*\/cache\/vdb$/m);
    expect(call).not.toMatch(/EXTRACTION_|DATABASE|postgres/i);
  });

  it("accepts a dep-scan that reports no vulnerabilities", async () => {
    const { lines, found } = await scan("echo 'No oss vulnerabilities detected for type bom'");
    expect(lines.at(-1)).toBe("success Vulnerability scan complete - found 0 vulnerabilities (0 critical)");
    expect(found).toEqual([]);
  });

  it("is missing if the files cannot be fetched, without the built-in matcher", async () => {
    const gone = "Repository not found - it may have been deleted or made private";
    const { lines, missing } = await scan("exit 0", {}, () =>
      Promise.reject(userError(gone, { code: "CLONE_NOT_FOUND" })),
    );
    expect(lines).toEqual(["info Running vulnerability scan...", `warning ${gone}`]);
    expect(missing).toEqual(["vuln_scan"]);
  });

  it("skips package URLs that have too many bytes for a key, with a warning", async () => {
    const refs = [`pkg:npm/${"\u65e5".repeat(900)}@1`, "pkg:npm/lodash@4.17.15"];
    const report = path.join(root, "long.json");
    fs.writeFileSync(
      report,
      JSON.stringify({ vulnerabilities: [{ id: "A-1", affects: refs.map((ref) => ({ ref })) }] }),
    );
    const { lines, found } = await scan(`cp ${report} sbom.vdr.json`);
    expect(found).toEqual(["A-1 pkg:npm/lodash@4.17.15"]);
    expect(lines).toContain("warning dep-scan reported too many findings - only 1 are kept");
  });

  it("warns of packages with advisories but without a version", async () => {
    const { lines } = await scan(undefined, {}, undefined, ["lodash", "ms"]);
    expect(lines).toContain("warning 1 package has advisories but no version to compare");
  });

  it("does not fetch the checkout if dep-scan is not installed", async () => {
    const { lines } = await scan(undefined, {}, () => Promise.reject(new Error("fetched the checkout")));
    expect(lines).toContain(USES_BUILT_IN);
  });
});

/** Entries of newer and older versions, and one with few fields. */
const REPORT = {
  bomFormat: "CycloneDX",
  vulnerabilities: [
    {
      "bom-ref": "CVE-1900-0002/pkg:npm/minimist@1.2.0",
      id: "CVE-1900-0002",
      affects: [
        {
          ref: "pkg:npm/minimist@1.2.0",
          versions: [
            { range: "vers:npm/>=0.0.0|<1.2.6|!=1.2.6", status: "affected" },
            { version: "1.2.6", status: "unaffected" },
          ],
        },
      ],
      ratings: [{ method: "CVSSv31", severity: "critical", score: 9.8, vector: "CVSS:3.1/AV:N" }],
      description: "An argument named like a prototype is taken for one",
      references: [
        { id: "GHSA-aaaa-bbbb-cccc", source: { name: "GitHub Advisory", url: "https://example.com" } },
        { id: "CVE-1900-7777", source: { name: "NVD" } },
      ],
      source: { name: "NVD", url: "https://nvd.example/CVE-1900-0002" },
      properties: [{ name: "depscan:insights", value: "Used in 3 locations\\nReachable and Exploitable" }],
    },
    {
      id: "GHSA-dddd-eeee-ffff",
      affects: [{ ref: "pkg:npm/lodash@4.17.15", versions: [{ version: "4.17.15", status: "affected" }] }],
      ratings: [{ score: "7.4", severity: "unknown" }],
      references: [{ id: "CVE-1900-0001" }],
      source: { url: "javascript:alert(1)" },
      properties: [{ name: "depscan:insights", value: "Indirect dependency" }],
    },
    { id: "CVE-1900-0009", affects: [{ ref: "pkg:npm/lodash@4.17.15" }, { ref: "not a package" }, 5], ratings: {} },
    { id: 7, affects: [{ ref: "pkg:npm/lodash@4.17.15" }] },
  ],
};

const sbomOf = (packages: string[]) => ({
  bomFormat: "CycloneDX",
  specVersion: "1.6",
  metadata: { component: { name: "sample", type: "application", "bom-ref": "root" } },
  components: packages.map((name) => ({
    type: "library",
    name: name.split("@")[0],
    version: name.split("@")[1],
    purl: `pkg:npm/${name}`,
    "bom-ref": `pkg:npm/${name}`,
  })),
  dependencies: [],
});

let scans = 0;

/** A job with this step. `script`: the shell script of depscan. */
async function scan(
  script: string | undefined,
  env: Record<string, string> = {},
  source?: () => Promise<string>,
  packages?: string[],
) {
  scans += 1;
  const folder = path.join(root, `scan-${scans}`);
  const [tools, checkout, sbom] = ["tools", "checkout", "bom.json"].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  fs.mkdirSync(tools, { recursive: true });
  fs.mkdirSync(checkout);
  fs.writeFileSync(sbom, JSON.stringify(sbomOf(packages ?? ["lodash@4.17.15", "minimist@1.2.0", "ms@2.0.0"])));
  if (script !== undefined) fs.writeFileSync(path.join(tools, "depscan"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const settings = readSettings({
    EXTRACTION_TOOL_PATH: tools,
    EXTRACTION_CACHE: path.join(folder, "cache"),
    EXTRACTION_ADVISORIES: path.join(SAMPLES, "advisories"),
    ...env,
  });
  const { job, lines } = await run(async (job) => {
    const scanned = await job.optional<VulnerabilityScan>(
      "vuln_scan",
      {
        start: "Running vulnerability scan...",
        end: ({ vulnerabilities: all }) =>
          `Vulnerability scan complete - found ${all.length} vulnerabilities (${all.filter(({ severity }) => severity === "critical").length} critical)`,
      },
      (step) => scanVulnerabilities(step, { sbom, source: source ?? (async () => checkout), pool, settings }),
    );
    return { found: scanned?.vulnerabilities ?? [] };
  });
  const vulnerabilities = (job.output as { found: Vulnerability[] }).found;
  return {
    lines,
    vulnerabilities,
    found: vulnerabilities.map(({ id, purl }) => `${id} ${purl}`),
    missing: job.missing,
  };
}
