// The lines in view: a list of any length of which only what is seen is drawn. It stays at the end while lines come in, until somebody scrolls up. Rows are kept by the
// number of their line and stand in order, so that selecting text, the focus and reading aloud survive what comes in.
import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
  type VirtualizerOptions,
} from "@tanstack/virtual-core";
import { make } from "../dom.ts";
import type { LineFilter } from "./line-filter.ts";
import { expand, rowOf } from "./log-row.ts";

/** As near to the end as this counts as being there. */
const NEAR_PX = 24;
const ROW_PX = 22;
const CHARACTER_PX = 7.8;
/** Rows that were never seen may turn out taller than thought, and those that come in for it too. */
const MAX_ROUNDS = 4;

export class LineList {
  readonly element: HTMLElement;
  readonly #canvas = make("div", { class: "canvas" });
  readonly #filter: LineFilter;
  readonly #onMove: () => void;
  readonly #virtual: Virtualizer<HTMLElement, HTMLElement>;
  readonly #rows = new Map<number, HTMLElement>();
  readonly #open = new Set<number>();
  #unmount: (() => void) | undefined;
  #tellOffset: ((offset: number, isScrolling: boolean) => void) | undefined;
  #lastTop = 0;
  #current: number | undefined;
  #columns = 100;
  #wraps = true;
  #pressedAt = { x: 0, y: 0 };
  #toggled: number | undefined;
  #drawing = false;
  #moved = false;
  /** It stays at the end. */
  following = true;

  constructor(filter: LineFilter, onMove: () => void) {
    this.#filter = filter;
    this.#onMove = onMove;
    // Each new line would be read out by itself; a status beside the list says how many have come, now and then.
    this.element = make("div", {
      class: "lines",
      part: "lines",
      role: "log",
      "aria-live": "off",
      "aria-label": "Log lines",
      tabindex: "0",
    });
    this.element.append(this.#canvas);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#walk(event));
    this.#canvas.addEventListener("pointerdown", ({ clientX, clientY }) => {
      this.#pressedAt = { x: clientX, y: clientY };
    });
    this.#canvas.addEventListener("click", (event) => this.#clicked(event));
    this.#virtual = new Virtualizer(this.#options());
  }

  /** Once it is part of a page. */
  start(): void {
    this.#unmount = this.#virtual._didMount();
    this.#virtual._willUpdate();
  }

  stop(): void {
    this.#unmount?.();
  }

  /** Lines have come, or others are shown. */
  update(): void {
    this.#virtual.setOptions({ ...this.#virtual.options, count: this.#filter.count });
    this.#virtual._willUpdate();
    this.#draw();
  }

  /** Every line is another one. */
  forget(): void {
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
    this.#onMove();
  }

  wrap(on: boolean): void {
    this.#wraps = on;
    this.#virtual.measure();
    for (const row of this.#rows.values()) this.#virtual.measureElement(row);
    this.update();
  }

  /** Whether there is anything below what is seen. */
  get isAtEnd(): boolean {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    return scrollHeight - clientHeight - scrollTop <= NEAR_PX;
  }

  focus(): void {
    this.element.focus({ preventScroll: true });
  }

  #options(): VirtualizerOptions<HTMLElement, HTMLElement> {
    return {
      count: 0,
      getScrollElement: () => this.element,
      estimateSize: (place) => this.#estimate(place),
      getItemKey: (place) => this.#filter.at(place)?.no ?? -1,
      overscan: 10,
      scrollToFn: (offset, options, instance) => {
        elementScroll(offset, options, instance);
        this.#lastTop = this.element.scrollTop;
      },
      observeElementRect: (instance, tell) => {
        let width = -1;
        return observeElementRect(instance, (rect) => {
          tell(rect);
          if (rect.width === width) return;
          width = rect.width;
          this.#columns = Math.max(20, Math.floor((width - 130) / CHARACTER_PX));
          // What was measured at another width is as wrong as what was never measured.
          instance.measure();
        });
      },
      observeElementOffset: (instance, tell) => {
        this.#tellOffset = tell;
        return observeElementOffset(instance, tell);
      },
      measureElement,
      onChange: () => this.#draw(),
    };
  }

  #estimate(place: number): number {
    const line = this.#filter.at(place);
    if (!line || !this.#wraps) return ROW_PX;
    return (Math.ceil(line.message.length / this.#columns) || 1) * (ROW_PX - 2) + 2;
  }

  /** What is measured while it is drawn may move the rest: it is drawn again after all of it, not after each row, since each would lay out the page anew. */
  #draw(): void {
    if (this.#drawing) {
      this.#moved = true;
      return;
    }
    this.#drawing = true;
    try {
      for (let round = 0; round < MAX_ROUNDS; round++) {
        this.#moved = false;
        this.#render();
        if (this.following && this.#stick()) this.#moved = true;
        if (!this.#moved) return;
      }
    } finally {
      this.#drawing = false;
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
        row = rowOf(line);
        if (this.#open.has(line.no)) expand(row, line, true);
        this.#rows.set(line.no, row);
        fresh.push(row);
      }
      row.dataset.index = String(index);
      row.style.transform = `translateY(${start}px)`;
      // One that stands in its place is not moved: it would lose what is selected in it.
      if (before === row) before = row.nextSibling;
      else this.#canvas.insertBefore(row, before);
    }
    for (const row of fresh) this.#virtual.measureElement(row);
  }

  #drop(no: number, row: HTMLElement): void {
    // A focus that vanished would throw whoever uses the keyboard back to the top of the page.
    if ((this.element.getRootNode() as ShadowRoot).activeElement === row) this.focus();
    this.#rows.delete(no);
    row.remove();
  }

  /** To the end. True when that was another place. */
  #stick(): boolean {
    const end = this.element.scrollHeight - this.element.clientHeight;
    if (end - this.element.scrollTop < 1) return false;
    this.element.scrollTop = end;
    this.#lastTop = this.element.scrollTop;
    this.#tellOffset?.(this.#lastTop, false);
    return true;
  }

  /** Whoever scrolls up wants to stay there; whoever comes back to the end wants to follow again. */
  #scrolled(): void {
    const { scrollTop } = this.element;
    if (this.isAtEnd) this.following = true;
    else if (scrollTop < this.#lastTop - 1) this.following = false;
    this.#lastTop = scrollTop;
    this.#onMove();
  }

  /** A click opens a line; a text that is being selected is no click. */
  #clicked(event: MouseEvent): void {
    const target = event.target as HTMLElement;
    const row = target.closest<HTMLElement>(".line");
    if (!row || target.closest(".details")) return;
    const no = Number(row.dataset.no);
    const moved = Math.hypot(event.clientX - this.#pressedAt.x, event.clientY - this.#pressedAt.y) > 4;
    // One that was made by a key has no place.
    if (moved && event.detail > 0) return;
    if (event.detail === 2 && !target.closest(".toggle")) {
      // The second click of two selects a word; what the first has done is taken back.
      if (this.#toggled === no) this.#toggle(no);
      return;
    }
    if (event.detail > 2) return;
    this.#toggled = this.#toggle(no) ? no : undefined;
    this.#current = no;
  }

  #toggle(no: number): boolean {
    const row = this.#rows.get(no);
    const place = this.#filter.placeOf(no);
    const line = this.#filter.at(place);
    if (!row || !line || !row.classList.contains("more")) return false;
    const open = !this.#open.has(no);
    if (open) this.#open.add(no);
    else this.#open.delete(no);
    // It is opened to be read, not to run away with the next line.
    if (open && place < this.#filter.count - 1) this.following = false;
    expand(row, line, open);
    this.#virtual.measureElement(row);
    this.#onMove();
    return true;
  }

  #walk(event: KeyboardEvent): void {
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
    const known = this.#current === undefined ? -1 : this.#filter.placeOf(this.#current);
    const from = known >= 0 ? known : this.following ? count : (this.#virtual.range?.startIndex ?? 0) - 1;
    this.#goTo(Math.min(count - 1, Math.max(0, from + step)));
  }

  #goTo(place: number): void {
    this.following = place === this.#filter.count - 1;
    this.#current = this.#filter.at(place)!.no;
    if (!this.following) {
      this.#virtual.scrollToIndex(place, { align: "auto" });
      this.#tellOffset?.(this.element.scrollTop, false);
    }
    this.#draw();
    this.#rows.get(this.#current)?.focus({ preventScroll: true });
    this.#onMove();
  }
}
