// findings.sarif: the requirements of the standard and of GitHub, and the locations of vulnerable packages.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { readOrigins } from "../../src/reports/origins.ts";
import { MAX_RESULTS, writeSarif } from "../../src/reports/sarif.ts";
import { component, someContent } from "../support/report-content.ts";
import { expectSarif, type SarifRun } from "../support/sarif.ts";

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "extraction-sarif-"));
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

test("the file is valid SARIF, and vulnerabilities are located at their manifests", async () => {
  const run = expectSarif(writeSarif(someContent()));
  const results = run.results.map(
    (result) => `${result.ruleId} ${result.locations[0]?.physicalLocation.artifactLocation.uri} ${result.level}`,
  );
  expect(results).toEqual([
    "GHSA-2 web/package-lock.json error",
    "GHSA-1 package-lock.json error",
    "GO-3 service/go.mod warning",
    "code/js-eval src/a%20b.js error",
    "secret/aws-access-token config.env error",
  ]);
  expect(run.tool.driver.rules[3]?.properties).toEqual({
    tags: ["security", "code", "external/cwe/cwe-95"],
    "security-severity": "8.0",
  });
});

test("a package is located at the file that cdxgen names, else at the nearest manifest of its type", async () => {
  const file = path.join(folder, "origins.json");
  const named: Record<string, string | undefined> = {
    "pkg:npm/whole@1": "web/app/package-lock.json",
    "pkg:npm/pnpm@1": "pnpm-lock.yaml",
    "pkg:npm/deeper@1": "web/app/pnpm-lock.yaml",
    "pkg:npm/above@1": "package-lock.json",
    "pkg:npm/unlisted@1": "far/below/pnpm-lock.yaml",
    "pkg:golang/x@v1": undefined,
    "pkg:pypi/y@1": undefined,
    "pkg:swift/z@1": undefined,
  };
  const components = Object.entries(named).map(([purl, manifest]) => component(purl, manifest));
  fs.writeFileSync(file, JSON.stringify({ metadata: {}, components }));
  const manifests = ["package-lock.json", "pnpm-lock.yaml", "go/go.mod", "py/Pipfile.lock", "web/app/pnpm-lock.yaml"];
  const origins = await readOrigins(file, new Set(Object.keys(named)), {
    packagePath: "web/app",
    manifests: ["package-lock.json", ...manifests.map((name) => `web/app/${name}`)],
  });
  expect(Object.fromEntries([...origins].map(([purl, { manifest }]) => [purl, manifest]))).toEqual({
    "pkg:npm/whole@1": "web/app/package-lock.json",
    "pkg:npm/pnpm@1": "web/app/pnpm-lock.yaml",
    "pkg:npm/deeper@1": "web/app/pnpm-lock.yaml",
    "pkg:npm/above@1": "package-lock.json",
    "pkg:npm/unlisted@1": "web/app/far/below/pnpm-lock.yaml",
    "pkg:golang/x@v1": "web/app/go/go.mod",
    "pkg:pypi/y@1": "web/app/py/Pipfile.lock",
    "pkg:swift/z@1": undefined,
  });
});

test("a result without a location is at the manifest, the package path or the SBOM", () => {
  const locationOf = (packagePath: string, manifests: string[]) => {
    const base = someContent();
    const input = { ...base.input, packagePath };
    const content = { ...base, input, sbom: { components: 3, manifests }, origins: new Map(), code: [], secrets: [] };
    const [first] = expectSarif(writeSarif(content)).results;
    return first!.locations.map(({ physicalLocation }) => physicalLocation);
  };
  const at = (uri: string) => [{ artifactLocation: { uri, uriBaseId: "SRCROOT" }, region: { startLine: 1 } }];
  expect(locationOf("web", ["web/go.mod"])).toEqual(at("web/go.mod"));
  expect(locationOf("web", [])).toEqual(at("web"));
  expect(locationOf(".", [])).toEqual(at("sbom.cdx.json"));
});

test("the file has only the most severe results within GitHub's limit, and a note", () => {
  const base = someContent();
  const [exploited, other] = base.vulnerabilities!;
  const low = Array.from({ length: MAX_RESULTS }, (_, at) => ({
    ...other!,
    id: `LOW-${at}`,
    severity: "low" as const,
    cve: at === MAX_RESULTS - 1 ? exploited!.cve : null,
  }));
  const { results, tool, invocations } = (
    JSON.parse(writeSarif({ ...base, vulnerabilities: low })) as { runs: [SarifRun] }
  ).runs[0];
  expect([results.length, tool.driver.rules.length]).toEqual([MAX_RESULTS, MAX_RESULTS]);
  const ids = new Set(results.map(({ ruleId }) => ruleId));
  for (const kept of ["code/js-eval", "secret/aws-access-token", `LOW-${MAX_RESULTS - 1}`, "LOW-0"])
    expect(ids).toContain(kept);
  expect(ids).not.toContain(`LOW-${MAX_RESULTS - 2}`);
  expect(invocations[0]?.toolExecutionNotifications.map(({ message }) => message.text)).toEqual([
    "This file has only the 25000 most severe of 25002 findings; findings.json has all of them",
  ]);
});
