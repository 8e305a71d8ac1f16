// The built-in matcher with sample and real advisories.
import path from "node:path";
import { describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { readBom } from "../../src/sbom/components.ts";
import { type Advisories, loadAdvisories, readAdvisory } from "../../src/vulnerabilities/advisories.ts";
import { matchAdvisories } from "../../src/vulnerabilities/match.ts";
import { type Component, componentOf } from "../../src/vulnerabilities/packages.ts";

const SAMPLE = path.resolve(import.meta.dirname, "../../sample");
const never = new AbortController().signal;

describe("the built-in matcher", () => {
  it("reports one finding for a vulnerability in several databases", () => {
    const { vulnerabilities } = matchAdvisories(
      [componentOf("pkg:pypi/pyyaml@5.3")!, componentOf("pkg:pypi/pyyaml@5.2")!],
      indexed(
        osv("PYSEC-2020-96", ["CVE-2020-1747", "GHSA-6757-jp84-gxfx"], { fixed: "5.3.1" }),
        osv("GHSA-6757-jp84-gxfx", ["CVE-2020-1747"], {
          fixed: "5.3.1",
          score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H",
        }),
        osv("PYSEC-2021-142", ["CVE-2020-14343"], { fixed: "5.4" }),
      ),
    );
    expect(vulnerabilities.map(({ id, purl, severity, fixed }) => [id, purl, severity, fixed])).toEqual([
      ["GHSA-6757-jp84-gxfx", "pkg:pypi/pyyaml@5.2", "critical", ["5.3.1"]],
      ["GHSA-6757-jp84-gxfx", "pkg:pypi/pyyaml@5.3", "critical", ["5.3.1"]],
      ["PYSEC-2021-142", "pkg:pypi/pyyaml@5.2", "unknown", ["5.4"]],
      ["PYSEC-2021-142", "pkg:pypi/pyyaml@5.3", "unknown", ["5.4"]],
    ]);
    expect(vulnerabilities[0]).toMatchObject({
      cve: "CVE-2020-1747",
      aliases: ["CVE-2020-1747", "PYSEC-2020-96"],
      score: 9.8,
    });
  });

  it("reports packages without a version, which only match advisories about all versions", () => {
    const [flask, other] = [componentOf("pkg:pypi/flask")!, componentOf("pkg:pypi/other")!];
    const listed = { id: "L-1", affected: [{ package: { name: "flask", ecosystem: "PyPI" }, versions: ["0.1"] }] };
    for (const record of [osv("F-1", [], { name: "flask", fixed: "1.0" }), listed]) {
      expect(matchAdvisories([flask, other], indexed(record))).toEqual({
        vulnerabilities: [],
        undecided: [],
        unversioned: ["pkg:pypi/flask"],
      });
    }
    const { vulnerabilities, unversioned } = matchAdvisories([flask], indexed(osv("F-2", [], { name: "flask" })));
    expect([vulnerabilities.map(({ id, version }) => [id, version]), unversioned]).toEqual([[["F-2", ""]], []]);
  });

  it("finds the vulnerabilities of the sample repository in the sample advisories", async () => {
    const purls = [
      "pkg:npm/lodash@4.17.15",
      "pkg:npm/minimist@1.2.0",
      "pkg:npm/minimist@0.0.8",
      "pkg:npm/mkdirp@0.5.1",
      "pkg:npm/js-yaml@3.13.0",
      "pkg:npm/debug@2.6.8",
      "pkg:npm/ms@2.0.0",
      "pkg:pypi/requests@2.19.0",
      "pkg:pypi/pyyaml@5.3",
      "pkg:pypi/jinja2@2.10",
      "pkg:golang/golang.org/x/text@v0.3.0",
      "pkg:golang/github.com/dgrijalva/jwt-go@v3.2.0+incompatible",
    ];
    const { advisories, vulnerabilities } = await matched(
      path.join(SAMPLE, "advisories"),
      purls.map((purl) => componentOf(purl)!),
    );
    expect([advisories.count, advisories.broken.count]).toEqual([11, 0]);
    expect(vulnerabilities.map(({ id, purl, severity, score }) => `${id} ${purl} ${severity} ${score}`)).toEqual([
      "STILLWAKE-2026-0002 pkg:npm/minimist@0.0.8 critical 9.8",
      "STILLWAKE-2026-0002 pkg:npm/minimist@1.2.0 critical 9.8",
      "STILLWAKE-2026-0007 pkg:pypi/pyyaml@5.3 critical 9.8",
      "STILLWAKE-2026-0010 pkg:golang/github.com/dgrijalva/jwt-go@v3.2.0+incompatible high 7.5",
      "STILLWAKE-2026-0003 pkg:npm/js-yaml@3.13.0 high 7.5",
      "STILLWAKE-2026-0001 pkg:npm/lodash@4.17.15 high 7.4",
      "STILLWAKE-2026-0005 pkg:pypi/requests@2.19.0 high 7.4",
      "STILLWAKE-2026-0006 pkg:pypi/jinja2@2.10 high 7.3",
      "STILLWAKE-2026-0004 pkg:npm/debug@2.6.8 low 3.1",
      "STILLWAKE-2026-0009 pkg:golang/golang.org/x/text@v0.3.0 unknown null",
    ]);
    expect(vulnerabilities.every(({ summary }) => summary.startsWith("Sample: "))).toBe(true);
  });

  const osvFolder = shared("data", "osv");
  const sbom = shared("data", "sbom", "cdxgen-12.8.4-sample.json");
  it.skipIf(!osvFolder || !sbom)(
    `finds the verified vulnerabilities in the saved advisories${osvFolder ? "" : " (skipped: ../shared is missing)"}`,
    async () => {
      const components = (await readBom(sbom!)).dependencies.map(({ purl }) => componentOf(purl)!);
      expect(components).toHaveLength(58);
      const { advisories, vulnerabilities, undecided } = await matched(osvFolder!, components);
      expect([advisories.count, advisories.broken.count, undecided]).toEqual([25, 0, []]);
      expect(vulnerabilities.map(({ id, purl }) => `${id} ${purl}`).sort()).toEqual([
        "GHSA-p6mc-m468-83gw pkg:npm/lodash@4.17.15",
        "GHSA-r683-j2x4-v87g pkg:npm/node-fetch@2.6.0",
        "GHSA-xvch-5gv4-984h pkg:npm/minimist@1.2.0",
        "GO-2021-0052 pkg:golang/github.com/gin-gonic/gin@v1.6.0",
        "GO-2021-0113 pkg:golang/golang.org/x/text@v0.3.5",
        "GO-2022-1059 pkg:golang/golang.org/x/text@v0.3.5",
        "GO-2023-1737 pkg:golang/github.com/gin-gonic/gin@v1.6.0",
        "GO-2026-5970 pkg:golang/golang.org/x/text@v0.3.5",
        "PYSEC-2019-15 pkg:pypi/django@2.2.0",
        "PYSEC-2020-176 pkg:pypi/pyyaml@5.1",
        "PYSEC-2020-33 pkg:pypi/django@2.2.0",
        "PYSEC-2020-34 pkg:pypi/django@2.2.0",
        "PYSEC-2020-96 pkg:pypi/pyyaml@5.1",
        "PYSEC-2021-142 pkg:pypi/pyyaml@5.1",
        "PYSEC-2023-74 pkg:pypi/requests@2.19.1",
      ]);
      expect(vulnerabilities.find(({ name }) => name === "minimist")).toMatchObject({
        severity: "critical",
        cve: "CVE-2021-44906",
      });
    },
  );

  it("matches 50,000 components with 20,000 advisories", () => {
    const components = Array.from(
      { length: 50_000 },
      (_, at) => componentOf(`pkg:npm/package-${at}@1.${at % 50}.${at % 7}`)!,
    );
    const records = Array.from({ length: 20_000 }, (_, at) =>
      osv(`STILLWAKE-${at}`, [`CVE-1900-${10_000 + at}`], {
        name: `package-${(at * 7) % 60_000}`,
        ecosystem: "npm",
        fixed: "1.25.0",
      }),
    );
    const index = indexed(...records);
    const began = performance.now();
    const { vulnerabilities } = matchAdvisories(components, index);
    const tookMs = performance.now() - began;
    expect(vulnerabilities.length).toBeGreaterThan(5000);
    recordFigure(
      "extraction: 50,000 components × 20,000 advisories",
      Math.round(tookMs),
      "ms",
      `${vulnerabilities.length} findings`,
    );
  });
});

async function matched(folder: string, components: Component[]) {
  const advisories = await loadAdvisories(folder, new Set(components.map(({ key }) => key)), never);
  return { advisories, ...matchAdvisories(components, advisories) };
}

interface OsvFields {
  name?: string;
  ecosystem?: string;
  fixed?: string;
  score?: string;
}

function osv(id: string, aliases: string[], { name = "pyyaml", ecosystem = "PyPI", fixed, score }: OsvFields): unknown {
  const ranges = [{ type: "ECOSYSTEM", events: [{ introduced: "0" }, ...(fixed ? [{ fixed }] : [])] }];
  return {
    id,
    aliases,
    summary: id,
    affected: [{ package: { name, ecosystem }, ranges }],
    severity: score ? [{ score }] : [],
  };
}

function indexed(...records: unknown[]): Pick<Advisories, "byPackage"> {
  const byPackage: Advisories["byPackage"] = new Map();
  for (const record of records) {
    const advisory = readAdvisory(record);
    if (!advisory) throw new Error("not an advisory");
    for (const affected of advisory.affected) {
      byPackage.set(affected.key, [...(byPackage.get(affected.key) ?? []), { advisory, affected }]);
    }
  }
  return { byPackage };
}
