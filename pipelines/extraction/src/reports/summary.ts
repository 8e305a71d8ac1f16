// summary.html: a self-contained page without scripts. All untrusted text is escaped.
import { PROVIDER_NAMES } from "../contract.ts";
import { type Exploitation, type Finding, SEVERITIES, type Severity, type Vulnerability } from "../model.ts";
import { visibleText, webLink } from "../untrusted.ts";
import { countBySeverity, exploitationFor, orderFindings } from "./order.ts";
import type { Content } from "./reports.ts";
import { missingNotes } from "./sarif.ts";
import { STYLE } from "./summary-style.ts";

/** Rows per table; findings.json has all of them. */
const MAX_ROWS = 500;
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

export function writeSummary(content: Content): string {
  const { input, code, secrets, vulnerabilities } = content;
  const title = `Security summary of ${visibleText(input.repository, 400)}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${head(content)}
${missingNotes(content)
  .map((safeText) => `<p class="notice" role="note">${escapeHtml(safeText)}.</p>\n`)
  .join("")}${tiles(content)}
${vulnerabilities ? vulnerabilityTable(content, vulnerabilities) : ""}
${code ? findingTable("Code", "No dangerous code was found.", orderFindings(code)) : ""}
${secrets ? findingTable("Secrets", "No secrets were found in the files of this commit.", orderFindings(secrets)) : ""}
</main>
<footer>Extraction <code>${escapeHtml(content.extractionId)}</code>. All findings are in findings.json and findings.sarif, all packages in sbom.cdx.json.</footer>
</body>
</html>
`;
}

function head({ input, checkout, at }: Content): string {
  const facts = [
    ["Commit", `<code>${text(checkout.commit, 80)}</code>`],
    ["Branch", text(checkout.branch, 250)],
    ...(input.packagePath === "." ? [] : [["Folder", text(input.packagePath, 1_000)]]),
    ...(at === undefined
      ? []
      : [
          [
            "Extracted",
            `<time datetime="${escapeHtml(at)}">${text(at.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC"), 40)}</time>`,
          ],
        ]),
  ];
  return `<header>
<p class="kicker">${escapeHtml(PROVIDER_NAMES[input.provider])} · security summary</p>
<h1>${text(input.repository, 400)}</h1>
<dl>${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${value}</dd></div>`).join("")}</dl>
</header>`;
}

function tiles(content: Content): string {
  const { vulnerabilities, code, secrets, dependencies, exploited } = content;
  const attacked = vulnerabilities?.filter((item) => exploitationFor(item, exploited)?.kev).length ?? 0;
  const { direct, transitive } = dependencies;
  const tile = (name: string, found: readonly { severity: Severity }[] | undefined, more = "") =>
    `<section class="tile"><h2>${name}</h2><p class="number">${found ? formatCount(found.length) : "–"}</p>${found ? severityBar(found) : `<p class="quiet">not scanned</p>`}${more}</section>`;
  return `<div class="tiles">
${tile("Vulnerabilities", vulnerabilities, `${checkedPart(content)}${attacked > 0 ? `<p><span class="mark kev">${formatCount(attacked)} known to be exploited</span></p>` : ""}`)}
${tile("Code", code)}
${tile("Secrets", secrets)}
<section class="tile"><h2>Dependencies</h2><p class="number">${formatCount(direct + transitive)}</p><p class="quiet">${formatCount(direct)} direct, ${formatCount(transitive)} transitive</p></section>
</div>`;
}

/** Empty if all dependencies were checked for vulnerabilities, or none. */
function checkedPart({ vulnerabilities, coverage }: Content): string {
  if (!vulnerabilities || !coverage || coverage.checked >= coverage.total) return "";
  return `<p class="quiet">in ${formatCount(coverage.checked)} of ${formatCount(coverage.total)} dependencies</p>`;
}

function severityBar(found: readonly { severity: Severity }[]): string {
  const counts = countBySeverity(found);
  const present = SEVERITIES.filter((severity) => counts[severity] > 0);
  if (present.length === 0) return `<p class="quiet">none found</p>`;
  const bar = present.map((name) => `<span class="${name}" style="flex-grow:${counts[name]}"></span>`).join("");
  const labels = present
    .map((name) => `<li><span class="dot ${name}"></span>${formatCount(counts[name])} ${name}</li>`)
    .join("");
  return `<div class="bar" aria-hidden="true">${bar}</div><ul class="counts">${labels}</ul>`;
}

function vulnerabilityTable(content: Content, found: readonly Vulnerability[]): string {
  const { exploited, origins } = content;
  const rows = found.slice(0, MAX_ROWS).map((item) => {
    const known = exploitationFor(item, exploited);
    const origin = origins.get(item.purl);
    const from = origin
      ? [origin.direct ? "direct" : "transitive", origin.manifest ?? ""].filter(Boolean).join(" · ")
      : "";
    return `<tr>
<td>${badge(item.severity)}${item.score === null ? "" : `<span class="quiet score">${item.score.toFixed(1)}</span>`}</td>
<td class="wide">${linkedId(item)}${badges(item, known)}<p>${text(item.summary, 300)}</p></td>
<td><b>${text(item.name, 200)}</b> ${text(item.version, 100)}${from === "" ? "" : `<p class="quiet">${text(from, 300)}</p>`}</td>
<td>${item.fixed.length > 0 ? text(item.fixed.slice(0, 5).join(", "), 200) : `<span class="quiet">no fix known</span>`}</td>
<td class="right">${likelihood(known)}</td>
</tr>`;
  });
  const columns = [
    "Severity",
    "Vulnerability",
    "Package",
    "Fixed in",
    `<abbr title="Likelihood of exploitation in the next 30 days">EPSS</abbr>`,
  ];
  const none =
    checkedPart(content) === ""
      ? "No known vulnerabilities were found."
      : "No known vulnerabilities were found in the dependencies that were checked.";
  return section("Vulnerabilities", none, columns, rows, found.length);
}

function findingTable(title: string, none: string, found: readonly Finding[]): string {
  const rows = found.slice(0, MAX_ROWS).map(
    (item) => `<tr>
<td>${badge(item.severity)}</td>
<td class="wide">${text(item.message, 300)}<p class="quiet">${[item.rule, ...item.cwe, item.engine].map((part) => text(part, 200)).join(" · ")}</p></td>
<td class="place"><code>${text(item.path, 1_000)}</code><span class="quiet">:${item.line}</span></td>
</tr>`,
  );
  return section(title, none, ["Severity", "Finding", "Location"], rows, found.length);
}

function section(title: string, none: string, columns: string[], rows: string[], all: number): string {
  if (rows.length === 0) return `<section><h2>${title}</h2><p class="quiet">${none}</p></section>`;
  const more =
    all > rows.length ? `<p class="quiet">${formatCount(all - rows.length)} more are in findings.json.</p>` : "";
  return `<section><h2>${title} <span class="quiet">${formatCount(all)}</span></h2>
<div class="scroll" tabindex="0" role="region" aria-label="${title}"><table>
<thead><tr>${columns.map((column) => `<th scope="col">${column}</th>`).join("")}</tr></thead>
<tbody>
${rows.join("\n")}
</tbody></table></div>${more}</section>`;
}

function linkedId({ id, url }: Vulnerability): string {
  const address = webLink(url);
  const name = `<code>${text(id, 200)}</code>`;
  return address === undefined ? name : `<a href="${escapeHtml(address)}" rel="noopener noreferrer">${name}</a>`;
}

function badges({ reachable }: Vulnerability, known: Exploitation | undefined): string {
  const { kev } = known ?? {};
  return [
    kev
      ? ` <span class="mark kev">exploited since ${text(kev.added, 20)} (<abbr title="CISA's list of known exploited vulnerabilities">KEV</abbr>)</span>`
      : "",
    kev?.ransomware ? ` <span class="mark kev">ransomware</span>` : "",
    reachable === true
      ? ` <span class="mark">reachable</span>`
      : reachable === false
        ? ` <span class="mark faint">not reachable</span>`
        : "",
  ].join("");
}

function likelihood(known: Exploitation | undefined): string {
  if (known?.epss == null) return `<span class="quiet">–</span>`;
  return `${(known.epss * 100).toFixed(1)} %${known.percentile === null ? "" : `<p class="quiet">above ${Math.floor(known.percentile * 100)} %</p>`}`;
}

function badge(severity: Severity): string {
  return `<span class="badge ${severity}">${severity}</span>`;
}

/** 12,345: the same separator on every machine. */
function formatCount(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

function text(value: string, maxLength: number): string {
  return escapeHtml(visibleText(value, maxLength));
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escapeHtml(value: string): string {
  return value.replace(/[&<>"']/g, (character) => ENTITIES[character]!);
}
