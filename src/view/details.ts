// What a line carries besides its words: numbers and names as JSON, the stack of an error as it was written. Fields that look like secrets are masked until somebody
// asks for each of them.
import { make } from "./dom.ts";
import { maskedJson, plain } from "./plain.ts";

/** False when there is nothing to show that the line does not show itself. */
export function hasDetails(data: unknown): boolean {
  if (data === null || data === undefined) return false;
  if (typeof data !== "object") return true;
  return Object.keys(data).some((name) => name !== "took_ms");
}

export function detailsOf(data: unknown): HTMLElement {
  const { stack, rest } = withoutStack(data);
  const shown = make("div", { class: "details", part: "details" });
  if (hasDetails(rest)) shown.append(payloadOf(rest));
  if (stack !== undefined) shown.append(make("pre", { class: "stack", part: "stack" }, plain(stack)));
  return shown;
}

/** A payload as indented JSON. */
function payloadOf(value: unknown): HTMLElement {
  const pre = make("pre", { class: "payload", part: "payload" });
  for (const part of maskedJson(value)) {
    if (typeof part === "string") pre.append(part);
    else {
      const reveal = make(
        "button",
        { type: "button", class: "mask", part: "mask", title: "Show it", "aria-label": "A hidden value. Show it" },
        "••••••",
      );
      reveal.addEventListener("click", (event) => {
        event.stopPropagation();
        reveal.replaceWith(part.secret);
      });
      pre.append(reveal);
    }
  }
  return pre;
}

function withoutStack(data: unknown): { stack: string | undefined; rest: unknown } {
  if (typeof data !== "object" || data === null || Array.isArray(data)) return { stack: undefined, rest: data };
  const { stack, ...rest } = data as { stack?: unknown };
  return typeof stack === "string" ? { stack, rest } : { stack: undefined, rest: data };
}
