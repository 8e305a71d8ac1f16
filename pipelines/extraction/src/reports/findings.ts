// findings.json: everything that was found, as data. Texts are as the tools gave them.
import { storable } from "../analysis/collect.ts";
import type { Finding } from "../model.ts";
import { countBySeverity, exploitationOf, orderFindings } from "./order.ts";
import type { Content } from "./reports.ts";

const FORMAT = 1;
const MAX_TEXT = 4_000;

export function* writeFindings(content: Content): Generator<string> {
  const { input, checkout, dependencies, vulnerabilities, code, secrets, exploited, origins, extractionId, at } =
    content;
  const head = {
    format: FORMAT,
    extraction: extractionId,
    ...(at !== undefined && { at }),
    project: input.projectId,
    repository: { provider: input.provider, name: input.repository, branch: checkout.branch, commit: checkout.commit },
    packagePath: input.packagePath,
    dependencies,
    counts: {
      vulnerabilities: vulnerabilities ? countBySeverity(vulnerabilities) : null,
      code: code ? countBySeverity(code) : null,
      secrets: secrets ? countBySeverity(secrets) : null,
    },
  };
  // Piece by piece: thousands of findings are not made into one text.
  yield `${JSON.stringify(head, null, 2).slice(0, -2)},\n`;
  yield* list("vulnerabilities", vulnerabilities, (one) => {
    const { epss = null, percentile = null, kev = null } = exploitationOf(one, exploited) ?? {};
    const { direct = null, manifest = null } = origins.get(one.purl) ?? {};
    return {
      ...one,
      summary: storable(one.summary, MAX_TEXT),
      direct,
      manifest: manifest ?? null,
      epss,
      percentile,
      kev,
    };
  });
  yield ",\n";
  yield* list("code", code && orderFindings(code), finding);
  yield ",\n";
  yield* list("secrets", secrets && orderFindings(secrets), finding);
  yield "\n}\n";
}

/** Null where nobody could look, which is not the same as nothing. */
function* list<One>(name: string, all: readonly One[] | undefined, show: (one: One) => unknown): Generator<string> {
  if (!all) {
    yield `  "${name}": null`;
    return;
  }
  yield `  "${name}": [`;
  for (const [at, one] of all.entries()) yield `${at === 0 ? "" : ","}\n    ${JSON.stringify(show(one))}`;
  yield all.length === 0 ? "]" : "\n  ]";
}

function finding(one: Finding): Finding {
  return { ...one, path: storable(one.path, MAX_TEXT), message: storable(one.message, MAX_TEXT) };
}
