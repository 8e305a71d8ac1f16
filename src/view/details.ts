// The details of a log line: its data as JSON, and the stack of an error. Values that look like secrets are masked until
// the user reveals each of them.
import { createElement } from "./dom.ts";
import { type JsonPart, MASK, maskedJson, maskedText } from "./safe-text.ts";

/** False when the data contains nothing that the line does not show. */
export function hasDetails(data: unknown): boolean {
  if (data === null || data === undefined) return false;
  if (typeof data !== "object") return true;
  return Object.keys(data).some((name) => name !== "took_ms");
}

export function createDetails(data: unknown): HTMLElement {
  const { stack, rest } = withoutStack(data);
  const shown = createElement("div", { class: "details", part: "details" });
  if (hasDetails(rest))
    shown.append(createElement("pre", { class: "payload", part: "payload" }, ...createMaskedNodes(maskedJson(rest))));
  if (stack !== undefined) {
    shown.append(createElement("pre", { class: "stack", part: "stack" }, ...createMaskedNodes(maskedText(stack))));
  }
  return shown;
}

/** Text nodes, with a button in place of each masked part. */
export function createMaskedNodes(parts: readonly JsonPart[]): (string | HTMLElement)[] {
  return parts.map((part) => {
    if (typeof part === "string") return part;
    const reveal = createElement(
      "button",
      { type: "button", class: "mask", part: "mask", title: "Show", "aria-label": "Hidden value. Show it" },
      MASK,
    );
    reveal.addEventListener("click", (event) => {
      event.stopPropagation();
      reveal.replaceWith(part.secret);
    });
    return reveal;
  });
}

function withoutStack(data: unknown): { stack: string | undefined; rest: unknown } {
  if (typeof data !== "object" || data === null || Array.isArray(data)) return { stack: undefined, rest: data };
  const { stack, ...rest } = data as { stack?: unknown };
  return typeof stack === "string" ? { stack, rest } : { stack: undefined, rest: data };
}
