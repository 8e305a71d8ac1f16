// Affected versions, severities and package URLs. Random cases are compared with the registries' own rules; EXTRACTION_SEED=<seed>
// repeats a run.
import * as pep440 from "@renovatebot/pep440";
import fc from "fast-check";
import semver from "semver";
import { describe, expect, it } from "vitest";
import { componentOf } from "../../src/vulnerabilities/packages.ts";
import { baseScore, ratingOf, severityOfScore } from "../../src/vulnerabilities/severity.ts";
import { affectedBy, type Event, sameVersion } from "../../src/vulnerabilities/versions.ts";

const seed = Number(process.env.EXTRACTION_SEED ?? Date.now() % 1_000_000);

describe("a version", () => {
  const range = (...events: Array<[Event["kind"], string]>) => [
    { events: events.map(([kind, version]) => ({ kind, version })) },
  ];

  it.each([
    ["npm", "4.17.15", range(["introduced", "0"], ["fixed", "4.17.20"]), "affected"],
    ["npm", "4.17.20", range(["introduced", "0"], ["fixed", "4.17.20"]), "unaffected"],
    ["npm", "4.17.20-rc.1", range(["introduced", "0"], ["fixed", "4.17.20"]), "affected"],
    ["npm", "2.6.0", range(["introduced", "1.0"], ["fixed", "3.1.1"]), "affected"],
    ["npm", "1.5.0", range(["introduced", "1.0.0"], ["fixed", "1.2.0"], ["introduced", "1.4.0"]), "affected"],
    ["npm", "1.3.0", range(["introduced", "1.0.0"], ["fixed", "1.2.0"], ["introduced", "1.4.0"]), "unaffected"],
    ["npm", "2.0.0", range(["introduced", "0"], ["last_affected", "2.0.0"]), "affected"],
    ["npm", "2.0.1", range(["introduced", "0"], ["last_affected", "2.0.0"]), "unaffected"],
    ["npm", "2.0.1", range(["introduced", "0"], ["limit", "2.0.0"]), "unaffected"],
    ["npm", "1.9.0", range(["introduced", "0"], ["limit", "2.0.0"]), "affected"],
    ["npm", "9.9.9", range(["introduced", "0"], ["limit", "*"]), "affected"],
    ["npm", "latest", range(["introduced", "1.0.0"]), "unknown"],
    ["PyPI", "2.2.0", range(["introduced", "2.2"], ["fixed", "2.2.1"]), "affected"],
    ["PyPI", "2.2rc1", range(["introduced", "2.2"], ["fixed", "2.2.1"]), "unaffected"],
    ["PyPI", "1!1.0", range(["introduced", "0"], ["fixed", "2020.1"]), "unaffected"],
    ["Go", "v0.3.5", range(["introduced", "0"], ["fixed", "0.3.7"]), "affected"],
    ["Go", "v3.2.0+incompatible", range(["introduced", "0"], ["fixed", "3.2.1"]), "affected"],
    [
      "Go",
      "v0.0.0-20190308221718-c2843e01d9a2",
      range(["introduced", "0"], ["fixed", "0.0.0-20200220183623-bac4c82f6975"]),
      "affected",
    ],
    ["Maven", "4.5.2.Final", range(["introduced", "4.0.0"], ["fixed", "4.5.3.Final"]), "affected"],
    ["Maven", "1.0-alpha-2", range(["introduced", "0"], ["fixed", "1.0"]), "affected"],
    ["Maven", "1.0-pre2", range(["introduced", "0"], ["fixed", "1.0"]), "unknown"],
    ["Maven", "2.14.1", range(["introduced", "2.0-beta9"], ["fixed", "2.15.0"]), "affected"],
    ["Maven", "2.0-beta9", range(["introduced", "2.0-beta9"], ["fixed", "2.15.0"]), "affected"],
    ["Maven", "2.0-rc1", range(["introduced", "2.0-beta9"], ["fixed", "2.15.0"]), "unknown"],
    ["Maven", "30.0-jre", range(["introduced", "0"], ["fixed", "32.0.0-android"]), "affected"],
    ["Maven", "32.0.1-jre", range(["introduced", "0"], ["fixed", "32.0.0-android"]), "unaffected"],
    ["Maven", "9.4.11.v20180605", range(["introduced", "9.4.0"], ["fixed", "9.4.17.v20190418"]), "affected"],
    ["Maven", "3f2a1c", range(["introduced", "0"], ["fixed", "2.0"]), "unknown"],
    ["Maven", "1.5", range(["introduced", "1.0-beta1"], ["fixed", "1.0"]), "unaffected"],
    ["RubyGems", "5.2.0", range(["introduced", "5.0.0.beta1"], ["fixed", "5.2.4.3"]), "affected"],
    ["RubyGems", "5.2.4.rc1", range(["introduced", "5.0.0.beta1"], ["fixed", "5.2.4.3"]), "affected"],
    ["Packagist", "v4.4.0", range(["introduced", "4.4.0-BETA1"], ["fixed", "4.4.50"]), "affected"],
    ["Packagist", "v4.4.1", range(["introduced", "4.4.0-BETA1"], ["fixed", "4.4.50"]), "affected"],
    ["Packagist", "1.x-dev", range(["introduced", "0"], ["fixed", "1.2.0"]), "unknown"],
    ["Packagist", "1.2.x-dev", range(["introduced", "0"], ["fixed", "1.2.7"]), "unknown"],
    ["Packagist", "dev-master", range(["introduced", "0"], ["fixed", "1.2.7"]), "unknown"],
    ["npm", "1.0.0", range(["last_affected", "1.0.0"], ["introduced", "1.0.0"]), "affected"],
    ["npm", "1.1.0", range(["last_affected", "1.0.0"], ["introduced", "1.0.0"]), "unaffected"],
    [
      "npm",
      "1.5.0",
      range(["introduced", "1.0.0"], ["fixed", "2.0.0"], ["introduced", "0"], ["fixed", "1.0.0"]),
      "affected",
    ],
    ["NuGet", "7.0.10.1", range(["introduced", "7.0.0"], ["fixed", "7.0.11"]), "affected"],
    ["NuGet", "7.0.0-rc.2", range(["introduced", "7.0.0-rc.1"], ["fixed", "7.0.1"]), "affected"],
    ["Packagist", "v5.4.1", range(["introduced", "5.0"], ["fixed", "5.4.2"]), "affected"],
    ["RubyGems", "4.2.11.1", range(["introduced", "0"], ["fixed", "4.2.11.2"]), "affected"],
    ["crates.io", "0.9.9", range(["introduced", "0.0.0-0"], ["fixed", "0.10.0"]), "affected"],
  ] as const)("%s %s is compared by the rules of its ecosystem (case %#)", (ecosystem, version, ranges, verdict) => {
    expect(affectedBy(ecosystem, version, ranges, [])).toBe(verdict);
  });

  it("is found in a list in any notation", () => {
    expect(sameVersion("PyPI", "2.2.0", "2.2")).toBe(true);
    expect(sameVersion("Go", "v1.2.0", "1.2.0")).toBe(true);
    expect(sameVersion("npm", "1.2.1", "1.2.10")).toBe(false);
    expect(affectedBy("Maven", "1.0-alpha-2", [], ["1.0-alpha-2"])).toBe("affected");
  });

  it("is limited by the last known affected version of an open range", () => {
    const [open] = range(["introduced", "0"]);
    const until = (lastKnown: string, version: string) => affectedBy("npm", version, [{ ...open!, lastKnown }], []);
    expect([until("<= 7.0.10", "7.0.10"), until("<= 7.0.10", "7.0.11")]).toEqual(["affected", "unaffected"]);
    expect([until(">= 2, < 3", "1.9.0"), until(">= 2, < 3", "2.1.0")]).toEqual(["unaffected", "affected"]);
    const [closed] = range(["introduced", "0"], ["fixed", "9.0.0"]);
    expect(affectedBy("npm", "8.0.0", [{ ...closed!, lastKnown: "<= 7.0.10" }], [])).toBe("affected");
  });

  const small = fc.integer({ min: 0, max: 3 });
  const semantic = fc
    .tuple(small, small, small, fc.constantFrom("", "", "", "-alpha", "-alpha.1", "-beta.2", "-0"))
    .map(([major, minor, patch, pre]) => `${major}.${minor}.${patch}${pre}`);
  const python = fc
    .tuple(
      small,
      small,
      fc.constantFrom("", "", ".0", ".1"),
      fc.constantFrom("", "", "a1", "b2", "rc1", ".dev3", ".post1"),
    )
    .map(([major, minor, patch, rest]) => `${major}.${minor}${patch}${rest}`);

  it.each([
    ["npm", seed, semantic, semver.compare],
    ["Go", seed, semantic, semver.compare],
    ["PyPI", seed, python, pep440.compare],
  ] as const)(
    "of %s (seed %i) is affected only between introduced and fixed, whatever the order of events",
    (ecosystem, seed, versions, compare) => {
      const bounds = fc.uniqueArray(versions, {
        minLength: 1,
        maxLength: 7,
        comparator: (a, b) => compare(a, b) === 0,
      });
      const property = fc.property(versions, bounds, fc.infiniteStream(fc.nat()), (version, unsorted, random) => {
        const sorted = unsorted.toSorted(compare);
        const events = sorted.map(
          (bound, at): Event => ({ kind: at % 2 === 0 ? "introduced" : "fixed", version: bound }),
        );
        const shuffled = events
          .map((event) => ({ event, at: random.next().value as number }))
          .sort((a, b) => a.at - b.at)
          .map(({ event }) => event);
        const below = sorted.filter((bound) => compare(version, bound) >= 0).length;
        expect(affectedBy(ecosystem, version, [{ events: shuffled }], [])).toBe(
          below % 2 === 1 ? "affected" : "unaffected",
        );
      });
      fc.assert(property, { seed, numRuns: 500 });
    },
  );

  it(`is affected like npm's range (seed ${seed})`, () => {
    const property = fc.property(semantic, semantic, semantic, (version, from, to) => {
      const events: Event[] = [
        { kind: "introduced", version: from },
        { kind: "last_affected", version: to },
      ];
      const expected = semver.satisfies(version, `>=${from} <=${to}`, { includePrerelease: true });
      // Skip empty ranges.
      fc.pre(semver.lte(from, to));
      expect(affectedBy("npm", version, [{ events }], [])).toBe(expected ? "affected" : "unaffected");
    });
    fc.assert(property, { seed, numRuns: 500 });
  });
});

describe("a severity", () => {
  it.each([
    ["CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8, "critical"],
    ["CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10, "critical"],
    ["CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:H/I:H/A:H", 9.9, "critical"],
    ["CVSS:3.0/AV:A/AC:L/PR:N/UI:N/S:C/C:H/I:N/A:H", 9.3, "critical"],
    ["CVSS:3.0/AV:N/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 8.8, "high"],
    ["CVSS:3.1/AV:L/AC:L/PR:N/UI:R/S:U/C:H/I:H/A:H", 7.8, "high"],
    ["CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", 7.5, "high"],
    ["CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:N/I:H/A:H", 7.4, "high"],
    ["CVSS:3.1/AV:P/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 6.8, "medium"],
    ["CVSS:3.1/AV:L/AC:L/PR:H/UI:N/S:U/C:H/I:H/A:H", 6.7, "medium"],
    ["CVSS:3.1/AV:N/AC:L/PR:H/UI:N/S:U/C:H/I:H/A:N", 6.5, "medium"],
    ["CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:L/I:L/A:N", 6.4, "medium"],
    ["CVSS:3.0/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1, "medium"],
    ["CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:U/C:L/I:L/A:N", 5.4, "medium"],
    ["CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N", 3.1, "low"],
    ["CVSS:3.1/AV:P/AC:H/PR:H/UI:R/S:U/C:N/I:N/A:N", 0, "low"],
    ["CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/E:P/RL:O/RC:C", 9.8, "critical"],
    // Published scores of FIRST's examples and of advisories: CVE-2020-3549, CVE-2022-41741, CVE-2021-44228.
    ["CVSS:4.0/AV:N/AC:L/AT:P/PR:N/UI:P/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", 7.7, "high"],
    ["CVSS:4.0/AV:L/AC:L/AT:P/PR:L/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", 7.3, "high"],
    ["CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:H/SI:H/SA:H", 10, "critical"],
    ["CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", 9.3, "critical"],
    ["CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N/E:U", 9.3, "critical"],
    ["CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:N/VI:N/VA:N/SC:N/SI:N/SA:N", 0, "low"],
  ] as const)("of %s has the score %d", (vector, score, severity) => {
    expect([baseScore(vector), severityOfScore(score)]).toEqual([score, severity]);
  });

  it("comes from the newest CVSS vector, else from the label", () => {
    const four = "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N";
    const three = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H";
    const rate = (scores: string[], label?: string) =>
      ratingOf({ severity: scores.map((score) => ({ score })) }, label);
    expect(rate([three, four], "LOW")).toEqual({ severity: "critical", score: 9.3 });
    expect(rate([three], "LOW")).toEqual({ severity: "high", score: 7.5 });
    expect(rate(["CVSS:4.0/AV:N", three])).toEqual({ severity: "high", score: 7.5 });
    expect(rate(["Negligible"], "MODERATE")).toEqual({ severity: "medium", score: null });
    expect(rate([])).toEqual({ severity: "unknown", score: null });
    for (const broken of [
      "CVSS:3.1/AV:N",
      `${three}/AV:P`,
      `${four}/AV:P`,
      `${four}/E:A/E:A`,
      `${four}/ZZ:H`,
      "CVSS:3.1/AV:constructor/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H",
      "CVSS:4.0/__proto__:N/AV:X",
      "CVSS:4.0/",
      "7.5",
      "AV:N/AC:L/Au:N/C:P/I:P/A:P",
    ]) {
      expect([broken, rate([broken])]).toEqual([broken, { severity: "unknown", score: null }]);
    }
  });
});

describe("a package URL", () => {
  it.each([
    ["pkg:npm/%40babel/core@7.1.0", "@babel/core", "7.1.0", "npm/@babel/core"],
    ["pkg:npm/@babel/core@7.1.0", "@babel/core", "7.1.0", "npm/@babel/core"],
    ["pkg:pypi/Ruamel.YAML_Clib@0.2", "Ruamel.YAML_Clib", "0.2", "PyPI/ruamel-yaml-clib"],
    [
      "pkg:golang/github.com/dgrijalva/jwt-go@v3.2.0%2Bincompatible",
      "github.com/dgrijalva/jwt-go",
      "v3.2.0+incompatible",
      "Go/github.com/dgrijalva/jwt-go",
    ],
    [
      "pkg:maven/org.jboss.resteasy/resteasy-core@3.11.0.Final?type=jar",
      "org.jboss.resteasy:resteasy-core",
      "3.11.0.Final",
      "Maven/org.jboss.resteasy:resteasy-core",
    ],
    ["pkg:nuget/Newtonsoft.Json@12.0.1", "Newtonsoft.Json", "12.0.1", "NuGet/newtonsoft.json"],
  ])("%s has the name of its registry", (purl, name, version, key) => {
    expect(componentOf(purl)).toMatchObject({ purl, name, version, key });
  });

  it.each([
    "pkg:npm/left-pad",
    "pkg:npm/@scope/name",
    "pkg:deb/debian/curl@7.1",
    "npm/left-pad@1",
    "pkg:npm/%E0%A4%A@1",
  ])("%s does not throw", (purl) => {
    expect(() => componentOf(purl)).not.toThrow();
  });
});
