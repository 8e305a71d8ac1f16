// The live log panel: lines (line-list.ts), a toolbar (log-toolbar.ts), a text when there are no lines, a button that
// jumps to the end, and a status for screen readers. Framework-free: React and the custom element both embed it.
import { formatCount, formatPlural } from "../../text/format.ts";
import { copyText, saveText } from "../clipboard.ts";
import { createElement, mount, setText } from "../dom.ts";
import type { JobStore } from "../job-store.ts";
import { isHidden, onVisible } from "../page-visibility.ts";
import { escapeTextLine, maskSecrets } from "../safe-text.ts";
import { formatConnection, formatEmptyLog, formatLines, formatRefusal } from "../sentences.ts";
import type { Snapshot } from "../snapshot.ts";
import { LineFilter } from "./line-filter.ts";
import { LineList } from "./line-list.ts";
import { LOG_STYLE } from "./log-style.ts";
import { button, LogToolbar, type Run } from "./log-toolbar.ts";

export interface LogViewOptions {
  store: JobStore;
  /** Jobs that the user can switch to, such as earlier ones of the same key. */
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
  readonly #empty = createElement("div", { class: "empty", part: "empty" });
  readonly #refusalText = createElement("span");
  readonly #refused = createElement("div", { class: "refused", part: "refused", role: "status" }, this.#refusalText);
  readonly #jump = button("Jump to end", "jump", () => this.jumpToEnd());
  readonly #status = createElement("div", { class: "unseen", role: "status", part: "status" });
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
      filter: (query) => {
        this.#filter.setQuery(query);
        this.#show(store.getSnapshot());
      },
      wrap: (on) => {
        this.#panel.classList.toggle("nowrap", !on);
        this.#list.wrap(on);
      },
      copy: () => copyText(formatLines(this.#filter.all())),
      download: () =>
        saveText(
          `job-${store.id}.log`,
          formatLines(store.getSnapshot().lines, (at) => at),
        ),
      run: (id) => this.#onRun?.(id),
    });
    const viewport = createElement("div", { class: "viewport" }, this.#list.element, this.#empty, this.#jump);
    this.#refused.append(button("Try again", "again", () => store.reopen()));
    this.#panel = createElement(
      "div",
      { class: "panel", part: "panel" },
      this.#toolbar.element,
      this.#refused,
      viewport,
      this.#status,
    );
    this.#panel.addEventListener("keydown", (event) => this.#onKeyDown(event));
    root.append(this.#panel);
    this.#list.start();
    this.setRuns(runs, onRun);
    // A hidden page is not rendered: browsers skip its layout, and rows would accumulate.
    this.#unsubscribe = store.subscribe(() => {
      if (!isHidden()) this.update();
    });
    this.#stopListening = onVisible(() => this.update());
    this.update();
  }

  setRuns(runs: readonly Run[], onRun?: (id: string) => void): void {
    this.#onRun = onRun;
    this.#toolbar.showRuns(runs);
  }

  /** Scrolls to the end and follows new lines. */
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

  /** Renders the current snapshot; also after the panel was moved within its page, which resets its scroll position. */
  update(): void {
    const snapshot = this.#store.getSnapshot();
    if (this.#filter.update(snapshot.lines)) this.#list.reset();
    const steps = snapshot.steps.map(({ name }) => name);
    this.#toolbar.show(snapshot.counts, steps, formatConnection(snapshot));
    this.#show(snapshot);
    this.#announce(snapshot.version);
  }

  #show(snapshot: Snapshot): void {
    this.#list.update();
    const refused = formatRefusal(snapshot);
    this.#refused.hidden = refused === null;
    setText(this.#refusalText, escapeTextLine(refused ?? ""));
    this.#showEmpty(snapshot);
    this.#showJump();
  }

  #showJump(): void {
    const { count } = this.#filter;
    if (this.#list.following || this.#seen > count) this.#seen = count;
    const added = count - this.#seen;
    setText(this.#jump, added > 0 ? `Jump to end · ${formatPlural(added, "new line")}` : "Jump to end");
    this.#jump.hidden = this.#list.following || this.#list.isAtEnd;
  }

  #showEmpty(snapshot: Snapshot): void {
    this.#empty.hidden = this.#filter.count > 0;
    if (this.#filter.count > 0) return;
    const all = snapshot.lines.length;
    const sentence = all > 0 ? `No line of ${formatCount(all)} matches.` : formatEmptyLog(snapshot);
    if (this.#empty.firstChild?.textContent === sentence) return;
    this.#empty.replaceChildren(createElement("span", {}, sentence));
    if (all > 0) this.#empty.append(button("Show all lines", "clear", () => this.#toolbar.clear()));
  }

  #onKeyDown(event: KeyboardEvent): void {
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

  /** Announces the number of new lines to screen readers, at most every five seconds. */
  #announce(version: number): void {
    // Lines that were loaded before are not announced.
    if (this.#announced.version < 0) this.#announced = { version, at: Date.now() };
    if (version === this.#announced.version || this.#announcing !== undefined) return;
    const wait = Math.max(0, this.#announced.at + ANNOUNCE_MS - Date.now());
    this.#announcing = setTimeout(() => {
      this.#announcing = undefined;
      const now = this.#store.getSnapshot();
      const added = now.version - this.#announced.version;
      this.#announced = { version: now.version, at: Date.now() };
      const latest = escapeTextLine(maskSecrets(now.lines.at(-1)?.message ?? ""));
      setText(this.#status, `${formatPlural(added, "new line")}, latest: ${latest.slice(0, 200)}`);
    }, wait);
  }
}
