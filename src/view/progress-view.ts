// The progress of a job: a sentence, a bar, the rate and the remaining time. Uses the colours of the page.
import { createElement, mount, setAttributes, setText } from "./dom.ts";
import type { JobStore } from "./job-store.ts";
import { escapeTextLine, maskSecrets } from "./safe-text.ts";
import { formatProgress, formatRefusal, headline } from "./sentences.ts";

export class ProgressView {
  readonly #store: JobStore;
  readonly #host: HTMLElement;
  readonly #root: HTMLElement;
  readonly #sentence = createElement("div", { class: "sentence", part: "sentence", dir: "auto" });
  readonly #bar = createElement("div", {
    class: "bar",
    part: "bar",
    role: "progressbar",
    "aria-valuemin": "0",
    "aria-valuemax": "100",
  });
  readonly #fill = createElement("div", { class: "fill", part: "fill" });
  readonly #figures = createElement("div", { class: "figures", part: "figures" });
  readonly #again = createElement("button", { type: "button", class: "again", part: "again" }, "Try again");
  readonly #unsubscribe: () => void;
  readonly #timer: ReturnType<typeof setInterval>;

  /** `alone`: shown without a log, which has its own button to reconnect. */
  constructor(container: Element, store: JobStore, { alone = false } = {}) {
    this.#store = store;
    const { host, root } = mount(container, "progress", STYLE, "progress, sentence, bar, fill, figures, again");
    this.#host = host;
    this.#bar.append(this.#fill);
    this.#root = createElement(
      "div",
      { class: "progress", part: "progress" },
      this.#sentence,
      this.#bar,
      this.#figures,
    );
    root.append(this.#root);
    this.#again.hidden = true;
    this.#again.addEventListener("click", () => store.reopen());
    if (alone) this.#root.append(this.#again);
    this.#unsubscribe = store.subscribe(() => this.#draw());
    this.#timer = setInterval(() => this.#draw(), 1000);
    this.#draw();
  }

  destroy(): void {
    clearInterval(this.#timer);
    this.#unsubscribe();
    this.#host.remove();
  }

  #draw(): void {
    const snapshot = this.#store.getSnapshot();
    const { job, progress, connection } = snapshot;
    const sentence = escapeTextLine(maskSecrets(headline(snapshot)));
    setText(this.#sentence, sentence);
    const isRefused = formatRefusal(snapshot) !== null;
    this.#again.hidden = !isRefused;
    // While the stream is refused the last known state may be outdated.
    const state = isRefused && !job?.endedAt ? "refused" : (job?.state ?? "unknown");
    setAttributes(this.#root, { "data-state": state });
    const fraction = state === "completed" ? 1 : (progress?.fraction ?? null);
    const percent = fraction === null ? null : Math.floor(fraction * 100);
    const isIndeterminate = state === "running" && fraction === null;
    this.#bar.classList.toggle("moving", isIndeterminate);
    this.#bar.hidden = fraction === null && !isIndeterminate;
    this.#fill.style.width = fraction === null ? "" : `${fraction * 100}%`;
    setAttributes(this.#bar, { "aria-valuenow": percent === null ? null : String(percent), "aria-label": sentence });
    const notice = connection === "reconnecting" ? "Reconnecting…" : "";
    setText(
      this.#figures,
      state === "running" ? [formatProgress(snapshot), notice].filter(Boolean).join(" · ") : notice,
    );
  }
}

const STYLE = `
:host { display: block; }
[hidden] { display: none !important; }
.progress {
  --teal: var(--stillwake-accent, light-dark(#0f766e, #2dd4bf)); --good: var(--stillwake-good, light-dark(#15803d, #4ade80));
  --bad: var(--stillwake-bad, light-dark(#b91c1c, #f87171)); --amber: var(--stillwake-attention, light-dark(#b45309, #fbbf24));
  --one: var(--teal); font: 15px/24px var(--stillwake-font, system-ui, sans-serif); color: inherit;
}
.progress[data-state="completed"] { --one: var(--good); }
.progress[data-state="failed"] { --one: var(--bad); }
.progress[data-state="cancelled"], .progress[data-state="paused"], .progress[data-state="queued"], .progress[data-state="refused"] { --one: var(--amber); }
.sentence { overflow-wrap: anywhere; unicode-bidi: isolate; }
[data-state="failed"] .sentence { color: var(--bad); }
.bar { height: 8px; border-radius: 999px; margin: 8px 0 4px; background: color-mix(in srgb, currentColor 12%, transparent); overflow: hidden; }
.fill { height: 100%; width: 0; border-radius: inherit; background: var(--one); }
.moving .fill { width: 30%; }
.again { font: inherit; font-size: 13px; line-height: 20px; color: var(--teal); background: none; border: 1px solid currentColor; border-radius: 6px; padding: 3px 10px; cursor: pointer; }
.again:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
.figures { font-size: 13px; line-height: 20px; min-height: 20px; font-variant-numeric: tabular-nums; opacity: 0.75; }
@media (prefers-reduced-motion: no-preference) {
  .fill { transition: width 300ms linear; }
  .moving .fill { animation: sweep 1.6s ease-in-out infinite alternate; }
  @keyframes sweep { from { transform: translateX(-20%); } to { transform: translateX(253%); } }
}
`;
