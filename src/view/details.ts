// What a line carries besides its words: numbers and names as JSON, the stack of an error as it was written. Fields that look like secrets are masked until somebody
// asks for each of them.
import { make } from "./dom.ts";
import { COVER, type JsonPart, maskedJson, maskedText } from "./plain.ts";

/** False when there is nothing to show that the line does not show itself. */
export function hasDetails(data: unknown): boolean {
  if (data === null || data === undefined) return false;
  if (typeof data !== "object") return true;
  return Object.keys(data).some((name) => name !== "took_ms");
}

export function detailsOf(data: unknown): HTMLElement {
  const { stack, rest } = withoutStack(data);
  const shown = make("div", { class: "details", part: "details" });
  if (hasDetails(rest)) shown.append(make("pre", { class: "payload", part: "payload" }, ...masked(maskedJson(rest))));
  if (stack !== undefined) {
    shown.append(make("pre", { class: "stack", part: "stack" }, ...masked(maskedText(stack))));
  }
  return shown;
}

/** Text, with a button in the place of each part that is shown when it is asked for. */
export function masked(parts: readonly JsonPart[]): (string | HTMLElement)[] {
  return parts.map((part) => {
    if (typeof part === "string") return part;
    const reveal = make(
      "button",
      { type: "button", class: "mask", part: "mask", title: "Show it", "aria-label": "A hidden value. Show it" },
      COVER,
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
