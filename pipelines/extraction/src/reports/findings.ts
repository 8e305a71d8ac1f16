// findings.json: all findings as data, with the texts of the tools.
import type { Finding } from "../model.ts";
import { storable } from "../untrusted.ts";
import { countBySeverity, exploitationFor, orderFindings } from "./order.ts";
import type { Content } from "./reports.ts";

const FORMAT = 1;
const MAX_TEXT = 4_000;

export function* writeFindings(content: Content): Generator<string> {
  const { input, checkout, dependencies, coverage, vulnerabilities, code, secrets, exploited, origins } = content;
  const { extractionId, at } = content;
  const head = {
    format: FORMAT,
    extraction: extractionId,
    ...(at !== undefined && { at }),
    project: input.projectId,
    repository: { provider: input.provider, name: input.repository, branch: checkout.branch, commit: checkout.commit },
    packagePath: input.packagePath,
    dependencies,
    // Of the dependencies, those that were checked for vulnerabilities. Null if it is not known.
    checked: coverage,
    counts: {
      vulnerabilities: vulnerabilities ? countBySeverity(vulnerabilities) : null,
      code: code ? countBySeverity(code) : null,
      secrets: secrets ? countBySeverity(secrets) : null,
    },
  };
  // Streamed: thousands of findings do not become one string.
  yield `${JSON.stringify(head, null, 2).slice(0, -2)},\n`;
  yield* writeList("vulnerabilities", vulnerabilities, (vulnerability) => {
    const { epss = null, percentile = null, kev = null } = exploitationFor(vulnerability, exploited) ?? {};
    const { direct = null, manifest = null } = origins.get(vulnerability.purl) ?? {};
    return {
      ...vulnerability,
      summary: storable(vulnerability.summary, MAX_TEXT),
      direct,
      manifest: manifest ?? null,
      epss,
      percentile,
      kev,
    };
  });
  yield ",\n";
  yield* writeList("code", code && orderFindings(code), toStorable);
  yield ",\n";
  yield* writeList("secrets", secrets && orderFindings(secrets), toStorable);
  yield "\n}\n";
}

/** Null if it was not scanned, which is not the same as an empty list. */
function* writeList<Item>(
  name: string,
  items: readonly Item[] | undefined,
  toJson: (item: Item) => unknown,
): Generator<string> {
  if (!items) {
    yield `  "${name}": null`;
    return;
  }
  yield `  "${name}": [`;
  for (const [index, item] of items.entries()) yield `${index === 0 ? "" : ","}\n    ${JSON.stringify(toJson(item))}`;
  yield items.length === 0 ? "]" : "\n  ]";
}

function toStorable(finding: Finding): Finding {
  return { ...finding, path: storable(finding.path, MAX_TEXT), message: storable(finding.message, MAX_TEXT) };
}
