// One row of the log: time, level, message and duration. A message with line breaks stays in its row, which has one time
// and one level, so that it cannot forge a second line.
import { formatDuration, formatTime } from "../../text/format.ts";
import { createDetails, createMaskedNodes, hasDetails } from "../details.ts";
import { createElement, icon, setAttributes } from "../dom.ts";
import { escapeTextLine, maskedText } from "../safe-text.ts";
import type { Line } from "../snapshot.ts";

// Each level differs in shape as well as in colour: disc, tick, triangle, cross; a state change is a diamond.
const SHAPES: Record<string, string> = {
  info: "M5 2a3 3 0 1 0 0 6a3 3 0 1 0 0-6z",
  success: "M1.2 5.4 3.9 8.2 9 2.2",
  warning: "M5 1 9.3 8.8H.7z",
  error: "M1.8 1.8 8.2 8.2M8.2 1.8 1.8 8.2",
  event: "M5 .8 9.2 5 5 9.2 .8 5z",
};

const fullDate = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function createRow(line: Line): HTMLElement {
  const { no, kind, level, at, message, step, tookMs, data } = line;
  const expandable = hasDetails(data);
  const row = createElement("div", {
    class: `line ${kind} ${level}${expandable ? " more" : ""}`,
    part: `line line-${level} line-${kind}`,
    tabindex: "-1",
    "data-no": String(no),
    ...(line.seq !== null && { "data-seq": line.seq }),
  });
  const time = createElement("time", { part: "time" });
  if (at !== null) {
    setAttributes(time, { datetime: at, title: fullDate.format(new Date(at)) });
    time.append(formatTime(at));
  }
  const mark = createElement(
    "span",
    { class: "mark", part: "mark" },
    icon(SHAPES[kind === "log" || kind === "end" ? level : "event"]!, level),
  );
  mark.append(createElement("span", { class: "unseen" }, ` ${level}: `));
  const body = createElement("div", { class: "body" });
  body.append(
    createElement(
      "span",
      { class: "message", part: "message", dir: "auto" },
      ...createMaskedNodes(maskedText(message)),
    ),
  );
  if (tookMs !== null)
    body.append(" ", createElement("span", { class: "badge", part: "badge" }, formatDuration(tookMs)));
  if (step !== null)
    body.append(" ", createElement("span", { class: "step", part: "step", dir: "auto" }, escapeTextLine(step)));
  row.append(time, mark, body);
  if (expandable) {
    row.append(
      createElement(
        "button",
        { type: "button", class: "toggle", part: "toggle", tabindex: "-1", "aria-expanded": "false" },
        "Details",
      ),
    );
  }
  return row;
}

export function expand(row: HTMLElement, line: Line, open: boolean): void {
  row.querySelector(".details")?.remove();
  row.querySelector(".toggle")?.setAttribute("aria-expanded", String(open));
  row.classList.toggle("open", open);
  if (open) row.append(createDetails(line.data));
}
