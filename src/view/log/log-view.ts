// The live log panel: lines (line-list.ts) under a toolbar (log-toolbar.ts), what to say when there are none, the way back to the end, and a word now and then for those
// who hear the page. Framework-free: React and the custom element both put it into a page.

import { copyText, saveText } from "../clipboard.ts";
import { make, mount, say } from "../dom.ts";
import type { JobStore } from "../job-store.ts";
import { isHidden, onReturn } from "../page-visibility.ts";
import { plainLine, veiled } from "../plain.ts";
import type { Snapshot } from "../snapshot.ts";
import { connectionWords, emptyWords, plural, refusal } from "../words.ts";
import { LineFilter } from "./line-filter.ts";
import { LineList } from "./line-list.ts";
import { textOf } from "./line-text.ts";
import { LOG_STYLE } from "./log-style.ts";
import { button, LogToolbar, type Run } from "./log-toolbar.ts";

export interface LogViewOptions {
  store: JobStore;
  /** Jobs to choose from, such as earlier ones of the same key. */
  runs?: readonly Run[] | undefined;
  onRun?: ((id: string) => void) | undefined;
}

const ANNOUNCE_MS = 5000;
const PARTS =
  "panel, toolbar, level, level-info, level-success, level-warning, level-error, steps, runs, search, connection, wrap, copy, download, lines, line, line-info, line-success, line-warning, line-error, line-log, line-event, line-gap, time, mark, message, badge, step, toggle, details, payload, stack, mask, jump, empty, status, refused, again";

export class LogView {
  readonly #store: JobStore;
  readonly #host: HTMLElement;
  readonly #panel: HTMLElement;
  readonly #empty = make("div", { class: "empty", part: "empty" });
  readonly #why = make("span");
  readonly #refused = make("div", { class: "refused", part: "refused", role: "status" }, this.#why);
  readonly #jump = button("Jump to end", "jump", () => this.jumpToEnd());
  readonly #status = make("div", { class: "unseen", role: "status", part: "status" });
  readonly #filter = new LineFilter();
  readonly #list = new LineList(this.#filter, () => this.#showJump());
  readonly #toolbar: LogToolbar;
  readonly #unsubscribe: () => void;
  readonly #stopListening: () => void;
  #onRun: ((id: string) => void) | undefined;
  #seen = 0;
  #announced = { version: -1, at: 0 };
  #announcing: ReturnType<typeof setTimeout> | undefined;

  constructor(container: Element, { store, runs = [], onRun }: LogViewOptions) {
    this.#store = store;
    const { host, root } = mount(container, "log", LOG_STYLE, PARTS);
    this.#host = host;
    this.#toolbar = new LogToolbar({
      ask: (question) => {
        this.#filter.ask(question);
        this.#show(store.getSnapshot());
      },
      wrap: (on) => {
        this.#panel.classList.toggle("nowrap", !on);
        this.#list.wrap(on);
      },
      copy: () => copyText(textOf(this.#filter.all())),
      download: () =>
        saveText(
          `job-${store.id}.log`,
          textOf(store.getSnapshot().lines, (at) => at),
        ),
      run: (id) => this.#onRun?.(id),
    });
    const stage = make("div", { class: "stage" }, this.#list.element, this.#empty, this.#jump);
    this.#refused.append(button("Try again", "again", () => store.reopen()));
    this.#panel = make(
      "div",
      { class: "panel", part: "panel" },
      this.#toolbar.element,
      this.#refused,
      stage,
      this.#status,
    );
    this.#panel.addEventListener("keydown", (event) => this.#pressed(event));
    root.append(this.#panel);
    this.#list.start();
    this.setRuns(runs, onRun);
    // What nobody sees is not drawn: browsers lay out nothing there, and rows would pile up.
    this.#unsubscribe = store.subscribe(() => {
      if (!isHidden()) this.update();
    });
    this.#stopListening = onReturn(() => this.update());
    this.update();
  }

  setRuns(runs: readonly Run[], onRun?: (id: string) => void): void {
    this.#onRun = onRun;
    this.#toolbar.showRuns(runs);
  }

  /** Back to the end, and stays there. */
  jumpToEnd(): void {
    this.#list.jumpToEnd();
  }

  destroy(): void {
    this.#unsubscribe();
    this.#stopListening();
    clearTimeout(this.#announcing);
    this.#toolbar.close();
    this.#list.stop();
    this.#host.remove();
  }

  /** Shows what the store has now; also for a panel that was moved within its page and has lost its place there. */
  update(): void {
    const snapshot = this.#store.getSnapshot();
    if (this.#filter.take(snapshot.lines)) this.#list.forget();
    const steps = snapshot.steps.map(({ name }) => name);
    this.#toolbar.show(snapshot.counts, steps, connectionWords(snapshot));
    this.#show(snapshot);
    this.#announce(snapshot.version);
  }

  #show(snapshot: Snapshot): void {
    this.#list.update();
    const refused = refusal(snapshot);
    this.#refused.hidden = refused === null;
    say(this.#why, plainLine(refused ?? ""));
    this.#showEmpty(snapshot);
    this.#showJump();
  }

  #showJump(): void {
    const { count } = this.#filter;
    if (this.#list.following || this.#seen > count) this.#seen = count;
    const fresh = count - this.#seen;
    say(this.#jump, fresh > 0 ? `Jump to end · ${plural(fresh, "new line")}` : "Jump to end");
    this.#jump.hidden = this.#list.following || this.#list.isAtEnd;
  }

  #showEmpty(snapshot: Snapshot): void {
    this.#empty.hidden = this.#filter.count > 0;
    if (this.#filter.count > 0) return;
    const all = snapshot.lines.length;
    const sentence = all > 0 ? `None of ${plural(all, "line")} matches.` : emptyWords(snapshot);
    if (this.#empty.firstChild?.textContent === sentence) return;
    this.#empty.replaceChildren(make("span", {}, sentence));
    if (all > 0) this.#empty.append(button("Show all lines", "clear", () => this.#toolbar.clear()));
  }

  #pressed(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !target.matches("input, select")) {
      event.preventDefault();
      this.#toolbar.search.focus();
    } else if (event.key === "Escape" && target === this.#toolbar.search) {
      this.#toolbar.clearSearch();
      this.#list.focus();
    }
  }

  /** How many have come, for those who hear the page: not more often than somebody can listen. */
  #announce(version: number): void {
    // What was there before somebody came is no news.
    if (this.#announced.version < 0) this.#announced = { version, at: Date.now() };
    if (version === this.#announced.version || this.#announcing !== undefined) return;
    const wait = Math.max(0, this.#announced.at + ANNOUNCE_MS - Date.now());
    this.#announcing = setTimeout(() => {
      this.#announcing = undefined;
      const now = this.#store.getSnapshot();
      const fresh = now.version - this.#announced.version;
      this.#announced = { version: now.version, at: Date.now() };
      const latest = plainLine(veiled(now.lines.at(-1)?.message ?? ""));
      say(this.#status, `${plural(fresh, "new line")}, latest: ${latest.slice(0, 200)}`);
    }, wait);
  }
}
