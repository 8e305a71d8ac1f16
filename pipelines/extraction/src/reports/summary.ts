// summary.html: one page that a person can keep, print and send on. It needs nothing from anywhere, runs nothing, and shows every text of a stranger as text.
import { PROVIDER_NAMES } from "../contract.ts";
import { type Exploitation, type Finding, SEVERITIES, type Severity, type Vulnerability } from "../model.ts";
import { countBySeverity, exploitationOf, orderFindings } from "./order.ts";
import type { Content } from "./reports.ts";
import { missing } from "./sarif.ts";
import { STYLE } from "./summary-style.ts";
import { linkTo, visible } from "./words.ts";

/** Rows of each table. More than that nobody reads here, and findings.json has them all. */
const MAX_ROWS = 500;
/** The page may show and style itself, and nothing else. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

export function writeSummary(content: Content): string {
  const { input, code, secrets, vulnerabilities } = content;
  const title = `Security summary of ${visible(input.repository, 400)}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
${head(content)}
${missing(content)
  .map((text) => `<p class="notice" role="note">${escaped(text)}.</p>\n`)
  .join("")}${tiles(content)}
${vulnerabilities ? tableOfVulnerabilities(content, vulnerabilities) : ""}
${code ? tableOfFindings("Code", "Nothing dangerous was found in the code.", orderFindings(code)) : ""}
${secrets ? tableOfFindings("Secrets", "No secrets were found in the files of this commit.", orderFindings(secrets)) : ""}
</main>
<footer>Extraction <code>${escaped(content.extractionId)}</code>. All findings are in findings.json and findings.sarif, all packages in sbom.cdx.json.</footer>
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
            "Made",
            `<time datetime="${escaped(at)}">${text(at.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC"), 40)}</time>`,
          ],
        ]),
  ];
  return `<header>
<p class="kicker">${escaped(PROVIDER_NAMES[input.provider])} · security summary</p>
<h1>${text(input.repository, 400)}</h1>
<dl>${facts.map(([name, value]) => `<div><dt>${name}</dt><dd>${value}</dd></div>`).join("")}</dl>
</header>`;
}

function tiles({ vulnerabilities, code, secrets, dependencies, exploited }: Content): string {
  const attacked = vulnerabilities?.filter((one) => exploitationOf(one, exploited)?.kev).length ?? 0;
  const { direct, transitive } = dependencies;
  const tile = (name: string, found: readonly { severity: Severity }[] | undefined, more = "") =>
    `<section class="tile"><h2>${name}</h2><p class="number">${found ? amount(found.length) : "–"}</p>${found ? severityBar(found) : `<p class="quiet">not looked for</p>`}${more}</section>`;
  return `<div class="tiles">
${tile("Vulnerabilities", vulnerabilities, attacked > 0 ? `<p><span class="mark kev">${amount(attacked)} known to be exploited</span></p>` : "")}
${tile("Code", code)}
${tile("Secrets", secrets)}
<section class="tile"><h2>Dependencies</h2><p class="number">${amount(direct + transitive)}</p><p class="quiet">${amount(direct)} direct, ${amount(transitive)} transitive</p></section>
</div>`;
}

function severityBar(found: readonly { severity: Severity }[]): string {
  const counts = countBySeverity(found);
  const there = SEVERITIES.filter((severity) => counts[severity] > 0);
  if (there.length === 0) return `<p class="quiet">none found</p>`;
  const bar = there.map((one) => `<span class="${one}" style="flex-grow:${counts[one]}"></span>`).join("");
  const words = there.map((one) => `<li><span class="dot ${one}"></span>${amount(counts[one])} ${one}</li>`).join("");
  return `<div class="bar" aria-hidden="true">${bar}</div><ul class="counts">${words}</ul>`;
}

function tableOfVulnerabilities({ exploited, origins }: Content, found: readonly Vulnerability[]): string {
  const rows = found.slice(0, MAX_ROWS).map((one) => {
    const known = exploitationOf(one, exploited);
    const origin = origins.get(one.purl);
    const from = origin
      ? [origin.direct ? "direct" : "transitive", origin.manifest ?? ""].filter(Boolean).join(" · ")
      : "";
    return `<tr>
<td>${badge(one.severity)}${one.score === null ? "" : `<span class="quiet score">${one.score.toFixed(1)}</span>`}</td>
<td class="wide">${linked(one)}${marks(one, known)}<p>${text(one.summary, 300)}</p></td>
<td><b>${text(one.name, 200)}</b> ${text(one.version, 100)}${from === "" ? "" : `<p class="quiet">${text(from, 300)}</p>`}</td>
<td>${one.fixed.length > 0 ? text(one.fixed.slice(0, 5).join(", "), 200) : `<span class="quiet">no fix known</span>`}</td>
<td class="right">${likelihood(known)}</td>
</tr>`;
  });
  const columns = [
    "Severity",
    "Vulnerability",
    "Package",
    "Fixed in",
    `<abbr title="The likelihood of an attack in the next 30 days">EPSS</abbr>`,
  ];
  return section("Vulnerabilities", "No known vulnerabilities were found.", columns, rows, found.length);
}

function tableOfFindings(title: string, none: string, found: readonly Finding[]): string {
  const rows = found.slice(0, MAX_ROWS).map(
    (one) => `<tr>
<td>${badge(one.severity)}</td>
<td class="wide">${text(one.message, 300)}<p class="quiet">${[one.rule, ...one.cwe, one.engine].map((part) => text(part, 200)).join(" · ")}</p></td>
<td class="place"><code>${text(one.path, 1_000)}</code><span class="quiet">:${one.line}</span></td>
</tr>`,
  );
  return section(title, none, ["Severity", "Finding", "Place"], rows, found.length);
}

function section(title: string, none: string, columns: string[], rows: string[], all: number): string {
  if (rows.length === 0) return `<section><h2>${title}</h2><p class="quiet">${none}</p></section>`;
  const more = all > rows.length ? `<p class="quiet">${amount(all - rows.length)} more are in findings.json.</p>` : "";
  return `<section><h2>${title} <span class="quiet">${amount(all)}</span></h2>
<div class="scroll" tabindex="0" role="region" aria-label="${title}"><table>
<thead><tr>${columns.map((one) => `<th scope="col">${one}</th>`).join("")}</tr></thead>
<tbody>
${rows.join("\n")}
</tbody></table></div>${more}</section>`;
}

function linked({ id, url }: Vulnerability): string {
  const address = linkTo(url);
  const name = `<code>${text(id, 200)}</code>`;
  return address === undefined ? name : `<a href="${escaped(address)}" rel="noopener noreferrer">${name}</a>`;
}

function marks({ reachable }: Vulnerability, known: Exploitation | undefined): string {
  const { kev } = known ?? {};
  return [
    kev
      ? ` <span class="mark kev">exploited since ${text(kev.added, 20)} (<abbr title="The list of known exploited vulnerabilities of CISA">KEV</abbr>)</span>`
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

/** 12,345: with the same separator on every machine. */
function amount(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

function text(given: string, most: number): string {
  return escaped(visible(given, most));
}

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escaped(given: string): string {
  return given.replace(/[&<>"']/g, (one) => ENTITIES[one]!);
}
