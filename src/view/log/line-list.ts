// A virtualized list of lines: only visible rows are in the DOM. It follows the end until the user scrolls up. Rows are
// reused by line number and stay in order, so that selection, focus and screen readers survive new lines.
import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
  type VirtualizerOptions,
} from "@tanstack/virtual-core";
import { createElement } from "../dom.ts";
import type { LineFilter } from "./line-filter.ts";
import { createRow, expand } from "./log-row.ts";

/** This close to the end counts as the end. */
const NEAR_END_PX = 24;
const ROW_PX = 22;
const CHARACTER_PX = 7.8;
/** Newly rendered rows may be taller than estimated, which brings other rows into view. */
const MAX_RENDERS = 4;

export class LineList {
  readonly element: HTMLElement;
  readonly #canvas = createElement("div", { class: "canvas" });
  readonly #filter: LineFilter;
  readonly #onScroll: () => void;
  readonly #virtual: Virtualizer<HTMLElement, HTMLElement>;
  readonly #rows = new Map<number, HTMLElement>();
  readonly #open = new Set<number>();
  #unmount: (() => void) | undefined;
  #setOffset: ((offset: number, isScrolling: boolean) => void) | undefined;
  #lastTop = 0;
  #current: number | undefined;
  #columns = 100;
  #wraps = true;
  #pressedAt = { x: 0, y: 0 };
  #toggled: number | undefined;
  #isDrawing = false;
  #isDirty = false;
  /** Whether it scrolls to new lines. */
  following = true;

  constructor(filter: LineFilter, onScroll: () => void) {
    this.#filter = filter;
    this.#onScroll = onScroll;
    // Not live: screen readers would read every line. A status element announces the number of new lines instead.
    this.element = createElement("div", {
      class: "lines",
      part: "lines",
      role: "log",
      "aria-live": "off",
      "aria-label": "Log lines",
      tabindex: "0",
    });
    this.element.append(this.#canvas);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#onKeyDown(event));
    this.#canvas.addEventListener("pointerdown", ({ clientX, clientY }) => {
      this.#pressedAt = { x: clientX, y: clientY };
    });
    this.#canvas.addEventListener("click", (event) => this.#clicked(event));
    this.#virtual = new Virtualizer(this.#options());
  }

  /** Called after the element was added to a page. */
  start(): void {
    this.#unmount = this.#virtual._didMount();
    this.#virtual._willUpdate();
  }

  stop(): void {
    this.#unmount?.();
  }

  /** Called when lines were appended or the filter changed. */
  update(): void {
    this.#virtual.setOptions({ ...this.#virtual.options, count: this.#filter.count });
    this.#virtual._willUpdate();
    this.#draw();
  }

  /** Called when the list of lines was replaced. */
  reset(): void {
    for (const row of this.#rows.values()) row.remove();
    this.#rows.clear();
    this.#open.clear();
    this.#current = undefined;
    this.following = true;
    this.#virtual.measure();
  }

  jumpToEnd(): void {
    this.following = true;
    this.#draw();
    this.#onScroll();
  }

  wrap(on: boolean): void {
    this.#wraps = on;
    this.#virtual.measure();
    for (const row of this.#rows.values()) this.#virtual.measureElement(row);
    this.update();
  }

  /** Whether the last line is visible. */
  get isAtEnd(): boolean {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    return scrollHeight - clientHeight - scrollTop <= NEAR_END_PX;
  }

  focus(): void {
    this.element.focus({ preventScroll: true });
  }

  #options(): VirtualizerOptions<HTMLElement, HTMLElement> {
    return {
      count: 0,
      getScrollElement: () => this.element,
      estimateSize: (index) => this.#estimate(index),
      getItemKey: (index) => this.#filter.at(index)?.no ?? -1,
      overscan: 10,
      scrollToFn: (offset, options, instance) => {
        elementScroll(offset, options, instance);
        this.#lastTop = this.element.scrollTop;
      },
      observeElementRect: (instance, onRect) => {
        let width = -1;
        return observeElementRect(instance, (rect) => {
          onRect(rect);
          if (rect.width === width) return;
          width = rect.width;
          this.#columns = Math.max(20, Math.floor((width - 130) / CHARACTER_PX));
          // Heights measured at another width are wrong.
          instance.measure();
        });
      },
      observeElementOffset: (instance, onOffset) => {
        this.#setOffset = onOffset;
        return observeElementOffset(instance, onOffset);
      },
      measureElement,
      onChange: () => this.#draw(),
    };
  }

  #estimate(index: number): number {
    const line = this.#filter.at(index);
    if (!line || !this.#wraps) return ROW_PX;
    return (Math.ceil(line.message.length / this.#columns) || 1) * (ROW_PX - 2) + 2;
  }

  /** Measuring a row may move the others: renders again after all rows, not after each one, to save layouts. */
  #draw(): void {
    if (this.#isDrawing) {
      this.#isDirty = true;
      return;
    }
    this.#isDrawing = true;
    try {
      for (let round = 0; round < MAX_RENDERS; round++) {
        this.#isDirty = false;
        this.#render();
        if (this.following && this.#scrollToEnd()) this.#isDirty = true;
        if (!this.#isDirty) return;
      }
    } finally {
      this.#isDrawing = false;
    }
  }

  #render(): void {
    const items = this.#virtual.getVirtualItems();
    this.#canvas.style.height = `${this.#virtual.getTotalSize()}px`;
    const wanted = new Set(items.map(({ index }) => this.#filter.at(index)?.no));
    for (const [no, row] of this.#rows) if (!wanted.has(no)) this.#drop(no, row);
    const fresh: HTMLElement[] = [];
    let before = this.#canvas.firstChild;
    for (const { index, start } of items) {
      const line = this.#filter.at(index);
      if (!line) continue;
      let row = this.#rows.get(line.no);
      if (!row) {
        row = createRow(line);
        if (this.#open.has(line.no)) expand(row, line, true);
        this.#rows.set(line.no, row);
        fresh.push(row);
      }
      row.dataset.index = String(index);
      row.style.transform = `translateY(${start}px)`;
      // A row in the right position is not moved: it would lose its selection.
      if (before === row) before = row.nextSibling;
      else this.#canvas.insertBefore(row, before);
    }
    for (const row of fresh) this.#virtual.measureElement(row);
  }

  #drop(no: number, row: HTMLElement): void {
    // Removing the focused row would move the keyboard focus to the top of the page.
    if ((this.element.getRootNode() as ShadowRoot).activeElement === row) this.focus();
    this.#rows.delete(no);
    row.remove();
  }

  /** Returns true when the position changed. */
  #scrollToEnd(): boolean {
    const end = this.element.scrollHeight - this.element.clientHeight;
    if (end - this.element.scrollTop < 1) return false;
    this.element.scrollTop = end;
    this.#lastTop = this.element.scrollTop;
    this.#setOffset?.(this.#lastTop, false);
    return true;
  }

  /** Scrolling up stops following; scrolling to the end starts it again. */
  #scrolled(): void {
    const { scrollTop } = this.element;
    if (this.isAtEnd) this.following = true;
    else if (scrollTop < this.#lastTop - 1) this.following = false;
    this.#lastTop = scrollTop;
    this.#onScroll();
  }

  /** A click opens the details of a line. Selecting text is not a click. */
  #clicked(event: MouseEvent): void {
    const target = event.target as HTMLElement;
    const row = target.closest<HTMLElement>(".line");
    if (!row || target.closest(".details")) return;
    const no = Number(row.dataset.no);
    const moved = Math.hypot(event.clientX - this.#pressedAt.x, event.clientY - this.#pressedAt.y) > 4;
    // A click by keyboard has detail 0 and no position.
    if (moved && event.detail > 0) return;
    if (event.detail === 2 && !target.closest(".toggle")) {
      // A double click selects a word: undo the toggle of the first click.
      if (this.#toggled === no) this.#toggle(no);
      return;
    }
    if (event.detail > 2) return;
    this.#toggled = this.#toggle(no) ? no : undefined;
    this.#current = no;
  }

  #toggle(no: number): boolean {
    const row = this.#rows.get(no);
    const index = this.#filter.indexOf(no);
    const line = this.#filter.at(index);
    if (!row || !line || !row.classList.contains("more")) return false;
    const open = !this.#open.has(no);
    if (open) this.#open.add(no);
    else this.#open.delete(no);
    // Stop following, so that the opened line stays in view.
    if (open && index < this.#filter.count - 1) this.following = false;
    expand(row, line, open);
    this.#virtual.measureElement(row);
    this.#onScroll();
    return true;
  }

  #onKeyDown(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest(".details")) return;
    const { count } = this.#filter;
    if (event.key === "Enter" && target.classList.contains("line")) {
      event.preventDefault();
      this.#toggle(Number(target.dataset.no));
      return;
    }
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count }[event.key];
    if (step === undefined || count === 0) return;
    event.preventDefault();
    const current = this.#current === undefined ? -1 : this.#filter.indexOf(this.#current);
    const from = current >= 0 ? current : this.following ? count : (this.#virtual.range?.startIndex ?? 0) - 1;
    this.#goTo(Math.min(count - 1, Math.max(0, from + step)));
  }

  #goTo(index: number): void {
    this.following = index === this.#filter.count - 1;
    this.#current = this.#filter.at(index)!.no;
    if (!this.following) {
      this.#virtual.scrollToIndex(index, { align: "auto" });
      this.#setOffset?.(this.element.scrollTop, false);
    }
    this.#draw();
    this.#rows.get(this.#current)?.focus({ preventScroll: true });
    this.#onScroll();
  }
}
