// Findings of each kind for tests of the reports, and hostile texts.
import type { Finding, Vulnerability } from "../../src/model.ts";
import type { Content } from "../../src/reports/reports.ts";

const vulnerability = (
  fields: Partial<Vulnerability> & Pick<Vulnerability, "id" | "purl" | "name">,
): Vulnerability => ({
  aliases: [],
  cve: null,
  version: "1.0.0",
  severity: "high",
  score: null,
  summary: "A vulnerability.",
  fixed: [],
  reachable: null,
  source: "built-in",
  url: `https://osv.example/${fields.id}`,
  ...fields,
});

const finding = (fields: Partial<Finding> & Pick<Finding, "kind" | "rule" | "path">): Finding => ({
  severity: "high",
  line: 3,
  endLine: 3,
  message: "A value is executed as code.",
  cwe: [],
  engine: "ast-grep",
  fingerprint: `${fields.kind} ${fields.rule} ${fields.path}`,
  ...fields,
});

/** In the order of the reports. */
export function someContent(): Content {
  return {
    extractionId: "0198c0de-0000-7000-8000-000000000001",
    input: {
      projectId: "11111111-1111-4111-8111-111111111111",
      provider: "github",
      repository: "acme/site",
      packagePath: ".",
    },
    checkout: { commit: "c0ffee", branch: "main", files: 12, bytes: 3456 },
    sbom: { components: 3, manifests: ["package-lock.json", "service/go.mod", "web/package-lock.json"] },
    dependencies: { direct: 2, transitive: 1 },
    coverage: { checked: 3, total: 3, notes: [] },
    at: "2026-03-04T05:06:07.890Z",
    vulnerabilities: [
      vulnerability({
        id: "GHSA-2",
        purl: "pkg:npm/minimist@1.2.0",
        name: "minimist",
        cve: "CVE-2021-44906",
        severity: "critical",
        score: 9.8,
        fixed: ["1.2.6"],
        reachable: true,
      }),
      vulnerability({
        id: "GHSA-1",
        purl: "pkg:npm/lodash@4.17.15",
        name: "lodash",
        version: "4.17.15",
        score: 7.4,
        fixed: ["4.17.21"],
      }),
      vulnerability({ id: "GO-3", purl: "pkg:golang/gin@1.6.0", name: "gin", severity: "medium" }),
    ],
    exploited: {
      byCve: {
        "CVE-2021-44906": { epss: 0.91, percentile: 0.99, kev: { added: "2024-01-02", due: null, ransomware: true } },
      },
      read: { epss: true, kev: true },
    },
    code: [finding({ kind: "code", rule: "js-eval", path: "src/a b.js", cwe: ["CWE-95"] })],
    secrets: [
      finding({
        kind: "secret",
        rule: "aws-access-token",
        path: "config.env",
        message: "Possible secret: aws access token",
        cwe: ["CWE-798"],
        engine: "gitleaks",
      }),
    ],
    origins: new Map([
      ["pkg:npm/minimist@1.2.0", { direct: false, manifest: "web/package-lock.json" }],
      ["pkg:npm/lodash@4.17.15", { direct: true, manifest: "package-lock.json" }],
      ["pkg:golang/gin@1.6.0", { direct: true, manifest: "service/go.mod" }],
    ]),
  };
}

/** A component of an SBOM. */
export const component = (purl: string, manifest?: string) => ({
  type: "library",
  name: purl.split("/").at(-1)!.split("@")[0],
  version: purl.split("@").at(-1),
  purl,
  "bom-ref": purl,
  ...(manifest && { properties: [{ name: "SrcFile", value: manifest }] }),
});

export const HOSTILE = {
  markup: `"'><script>alert(1)</script><img src=x onerror=alert(2)>`,
  controls: "\u001b[31mred\u001b[0m \u202egnitirw\u2066 \u200b \u0007 \u009b1m",
  long: "x".repeat(1_000_000),
};
