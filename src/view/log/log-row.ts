// One line on the screen: when, how it went, what was said, how long it took. A line break of a message stays within its row, which has one time and one mark, so that
// no message can pretend to be two.
import { detailsOf, hasDetails, masked } from "../details.ts";
import { icon, make, set } from "../dom.ts";
import { maskedText, plainLine } from "../plain.ts";
import type { Line } from "../snapshot.ts";
import { clock, span } from "../words.ts";

// Each level has a shape of its own besides its colour: a disc, a tick, a triangle, a cross; a change of state is a diamond.
const SHAPES: Record<string, string> = {
  info: "M5 2a3 3 0 1 0 0 6a3 3 0 1 0 0-6z",
  success: "M1.2 5.4 3.9 8.2 9 2.2",
  warning: "M5 1 9.3 8.8H.7z",
  error: "M1.8 1.8 8.2 8.2M8.2 1.8 1.8 8.2",
  event: "M5 .8 9.2 5 5 9.2 .8 5z",
};

const moments = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function rowOf(line: Line): HTMLElement {
  const { no, kind, level, at, message, step, tookMs, data } = line;
  const expandable = hasDetails(data);
  const row = make("div", {
    class: `line ${kind} ${level}${expandable ? " more" : ""}`,
    part: `line line-${level} line-${kind}`,
    tabindex: "-1",
    "data-no": String(no),
    ...(line.seq !== null && { "data-seq": line.seq }),
  });
  const time = make("time", { part: "time" });
  if (at !== null) {
    set(time, { datetime: at, title: moments.format(new Date(at)) });
    time.append(clock(at));
  }
  const mark = make(
    "span",
    { class: "mark", part: "mark" },
    icon(SHAPES[kind === "log" || kind === "end" ? level : "event"]!, level),
  );
  mark.append(make("span", { class: "unseen" }, ` ${level}: `));
  const body = make("div", { class: "body" });
  body.append(make("span", { class: "message", part: "message", dir: "auto" }, ...masked(maskedText(message))));
  if (tookMs !== null) body.append(" ", make("span", { class: "badge", part: "badge" }, span(tookMs)));
  if (step !== null) body.append(" ", make("span", { class: "step", part: "step", dir: "auto" }, plainLine(step)));
  row.append(time, mark, body);
  if (expandable) {
    row.append(
      make(
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
  if (open) row.append(detailsOf(line.data));
}
