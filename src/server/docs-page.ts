// The description for people: one page without scripts and without anything from elsewhere.
import { createHash } from "node:crypto";
import type { Described } from "./openapi.ts";

const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.6rem}h2{margin-top:2.5rem;font-size:1.2rem}section{border-top:1px solid #d0d7de;padding:.6rem 0}
h3{font:600 1rem ui-monospace,monospace;margin:.4rem 0}h3 b{display:inline-block;min-width:4.2rem;color:#0550ae}
p{margin:.3rem 0}.who{color:#57606a}pre{background:#f6f8fa;padding:.6rem;overflow:auto;font-size:.85rem}summary{cursor:pointer;color:#57606a}
td{padding:.1rem 1rem .1rem 0;vertical-align:top}code{font-family:ui-monospace,monospace}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}section{border-color:#30363d}h3 b{color:#79c0ff}.who,summary{color:#9198a1}pre{background:#161b22}}`;

interface Operation {
  tags: string[];
  summary: string;
  description: string;
  parameters?: { name: string; in: string; required: boolean; schema: object }[];
  requestBody?: { content: Record<string, { schema: object }> };
  responses: Record<string, { content?: Record<string, { schema: object }> }>;
}

export function docsPage(described: Described): string {
  const { info, paths, tags, components } = described;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => ({ method, path, ...(one as Operation) })),
  );
  const groups = tags.map(({ name }) => {
    const of = operations.filter((one) => one.tags.includes(name));
    return `<h2>${safe(name)}</h2>${of.map(sectionOf).join("")}`;
  });
  const schemas = Object.entries(components.schemas).map(
    ([name, schema]) => `<section id="${safe(name)}"><h3>${safe(name)}</h3>${jsonOf(schema)}</section>`,
  );
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${safe(info.title)} API</title>
<style>${style}</style></head><body><h1>${safe(info.title)} ${safe(info.version)}</h1><p>${safe(info.description)}</p>
<p>For programs: <a href="openapi.json">openapi.json</a>. Send <code>authorization: Bearer &lt;token&gt;</code>.</p>
${groups.join("\n")}<h2>Shapes</h2>${schemas.join("\n")}</body></html>`;
}

/** The page's own style and nothing else may be applied. */
export function docsPolicy(): string {
  const hash = createHash("sha256").update(style).digest("base64");
  return `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

function sectionOf({
  method,
  path,
  summary,
  description,
  parameters = [],
  requestBody,
  responses,
}: Operation & { method: string; path: string }): string {
  const rows = parameters.map(
    ({ name, in: where, required, schema }) =>
      `<tr><td><code>${safe(name)}</code></td><td>${where}${required ? "" : ", optional"}</td><td><code>${safe(JSON.stringify(schema))}</code></td></tr>`,
  );
  const body = Object.values(requestBody?.content ?? {})[0];
  const [status, good] = Object.entries(responses)[0] ?? [];
  const answer = Object.entries(good?.content ?? {})[0];
  const [who, ...about] = description.split("\n\n").reverse();
  return `<section><h3><b>${method.toUpperCase()}</b> ${safe(path)}</h3><p>${safe(summary)}</p>${about.map((text) => `<p>${safe(text)}</p>`).join("")}
<p class="who">${safe(who ?? "")}</p>${rows.length > 0 ? `<table>${rows.join("")}</table>` : ""}
${body ? `<details><summary>Body</summary>${jsonOf(body.schema)}</details>` : ""}
<details><summary>Answer ${safe(status ?? "")}${answer ? ` ${safe(answer[0])}` : ""}</summary>${answer ? jsonOf(answer[1].schema) : ""}</details></section>`;
}

function jsonOf(schema: object): string {
  const text = safe(JSON.stringify(schema, null, 2));
  return `<pre>${text.replaceAll(/#\/components\/schemas\/(\w+)/g, '<a href="#$1">$1</a>')}</pre>`;
}

function safe(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
