// Renders the API description as one HTML page, without scripts and external resources.
import { createHash } from "node:crypto";
import type { ApiDescription } from "./openapi.ts";

const style = `:root{color-scheme:light dark;--ink:light-dark(#142022,#e6eced);--soft:light-dark(#52646a,#98a8ac);--paper:light-dark(#f7f8f8,#0e1213);--panel:light-dark(#fff,#151b1d);
--line:light-dark(#dde4e5,#263134);--teal:light-dark(#0b6a71,#4fc3c7)}
body{font:15px/1.5 ui-sans-serif,system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--paper)}a{color:var(--teal)}
h1{font-size:1.75rem}h2{margin-top:2.5rem;font-size:1.25rem}section{border-top:1px solid var(--line);padding:.6rem 0}
h3{font:600 1rem ui-monospace,monospace;margin:.4rem 0;overflow-wrap:anywhere}h3 b{display:inline-block;min-width:4.2rem;color:var(--teal)}
p{margin:.3rem 0}.access,summary{color:var(--soft)}pre{background:var(--panel);border:1px solid var(--line);border-radius:5px;padding:.6rem;overflow:auto;font-size:.8rem}summary{cursor:pointer}
td{padding:.1rem 1rem .1rem 0;vertical-align:top}code{font-family:ui-monospace,monospace;font-size:.85rem;overflow-wrap:anywhere}`;

interface Operation {
  tags: string[];
  summary: string;
  description: string;
  parameters?: { name: string; in: string; required: boolean; schema: object }[];
  requestBody?: { content: Record<string, { schema: object }> };
  responses: Record<string, { content?: Record<string, { schema: object }> }>;
}

export function docsPage(described: ApiDescription): string {
  const { info, paths, tags, components } = described;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, ...(operation as Operation) })),
  );
  const groups = tags.map(({ name }) => {
    const tagged = operations.filter((operation) => operation.tags.includes(name));
    return `<h2>${escapeHtml(name)}</h2>${tagged.map(renderOperation).join("")}`;
  });
  const schemas = Object.entries(components.schemas).map(
    ([name, schema]) =>
      `<section id="${escapeHtml(name)}"><h3>${escapeHtml(name)}</h3>${renderSchema(schema)}</section>`,
  );
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escapeHtml(info.title)} API</title>
<style>${style}</style></head><body><h1>${escapeHtml(info.title)} ${escapeHtml(info.version)}</h1><p>${escapeHtml(info.description)}</p>
<p>See also <a href="./">the dashboard</a> and <a href="openapi.json">openapi.json</a>. Authenticate with <code>authorization: Bearer &lt;token&gt;</code>.</p>
${groups.join("\n")}<h2>Schemas</h2>${schemas.join("\n")}</body></html>`;
}

/** Allows only the page's inline style, by its hash. */
export function docsPolicy(): string {
  const hash = createHash("sha256").update(style).digest("base64");
  return `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

function renderOperation({
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
      `<tr><td><code>${escapeHtml(name)}</code></td><td>${where}${required ? "" : ", optional"}</td><td><code>${escapeHtml(JSON.stringify({ ...schema, pattern: undefined }))}</code></td></tr>`,
  );
  const body = Object.values(requestBody?.content ?? {})[0];
  const [status, success] = Object.entries(responses)[0] ?? [];
  const response = Object.entries(success?.content ?? {})[0];
  const [access, ...paragraphs] = description.split("\n\n").reverse();
  return `<section><h3><b>${method.toUpperCase()}</b> ${escapeHtml(path)}</h3><p>${escapeHtml(summary)}</p>${paragraphs.map((text) => `<p>${escapeHtml(text)}</p>`).join("")}
<p class="access">${escapeHtml(access ?? "")}</p>${rows.length > 0 ? `<table>${rows.join("")}</table>` : ""}
${body ? `<details><summary>Body</summary>${renderSchema(body.schema)}</details>` : ""}
<details><summary>Response ${escapeHtml(status ?? "")}${response ? ` ${escapeHtml(response[0])}` : ""}</summary>${response ? renderSchema(response[1].schema) : ""}</details></section>`;
}

function renderSchema(schema: object): string {
  // A format is easier to read than the regular expression that implements it.
  const omitPattern = (_: string, value: unknown) =>
    value !== null && typeof value === "object" && "format" in value ? { ...value, pattern: undefined } : value;
  const text = escapeHtml(JSON.stringify(schema, omitPattern, 2));
  // Focusable, because a scrolling area must be reachable by keyboard.
  return `<pre tabindex="0">${text.replaceAll(/#\/components\/schemas\/(\w+)/g, '<a href="#$1">$1</a>')}</pre>`;
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
