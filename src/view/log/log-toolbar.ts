// The toolbar of the log: filters, search, copy and download. It has no access to the lines: the view passes counts and
// step names in, and receives the choices of the user.
import { formatCount } from "../../text/format.ts";
import { createElement, setAttributes, setText } from "../dom.ts";
import { escapeTextLine } from "../safe-text.ts";
import type { Level } from "../wire.ts";
import { LEVELS, type LineQuery } from "./line-filter.ts";

/** Another job that the user can switch to, such as an earlier one of the same key. */
export interface Run {
  id: string;
  label: string;
  state?: string | undefined;
  current?: boolean | undefined;
}

export interface ToolbarActions {
  filter(query: Partial<LineQuery>): void;
  wrap(on: boolean): void;
  copy(): Promise<boolean>;
  download(): void;
  run(id: string): void;
}

const LABELS: Record<Level, string> = { info: "Info", success: "Success", warning: "Warnings", error: "Errors" };
const SEARCH_MS = 120;

export class LogToolbar {
  readonly element: HTMLElement;
  readonly search: HTMLInputElement;
  readonly #levels = new Map<Level, { button: HTMLButtonElement; number: HTMLElement }>();
  readonly #steps: HTMLSelectElement;
  readonly #runs: HTMLSelectElement;
  readonly #wrap: HTMLButtonElement;
  readonly #connection: HTMLElement;
  readonly #actions: ToolbarActions;
  #stepNames = "";
  #pressed = new Set<Level>(LEVELS);
  #timers = new Set<ReturnType<typeof setTimeout>>();

  constructor(actions: ToolbarActions) {
    this.#actions = actions;
    const levels = createElement("div", { class: "levels", role: "group", "aria-label": "Levels shown" });
    for (const level of LEVELS) levels.append(this.#levelButton(level));
    this.#steps = createElement(
      "select",
      { class: "steps", part: "steps", "aria-label": "Step" },
      createElement("option", { value: "" }, "All steps"),
    );
    this.#steps.addEventListener("change", () => actions.filter({ step: this.#steps.value.slice(1) || null }));
    this.#runs = createElement("select", { class: "runs", part: "runs", "aria-label": "Job", hidden: true });
    this.#runs.addEventListener("change", () => actions.run(this.#runs.value));
    this.search = createElement("input", {
      type: "search",
      class: "search",
      part: "search",
      placeholder: "Search  /",
      "aria-label": "Search log lines",
      spellcheck: "false",
      autocomplete: "off",
    });
    let typing: ReturnType<typeof setTimeout> | undefined;
    this.search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = this.#after(() => actions.filter({ text: this.search.value }), SEARCH_MS);
    });
    this.#wrap = button("Wrap", "wrap", () => {
      const on = this.#wrap.getAttribute("aria-pressed") !== "true";
      setAttributes(this.#wrap, { "aria-pressed": String(on) });
      actions.wrap(on);
    });
    setAttributes(this.#wrap, { "aria-pressed": "true", title: "Wrap long lines" });
    const copy = button("Copy", "copy", async () => {
      setText(copy, (await actions.copy()) ? "Copied" : "Not allowed");
      this.#after(() => setText(copy, "Copy"), 2000);
    });
    const download = button("Download", "download", () => actions.download());
    this.#connection = createElement("span", { class: "connection", part: "connection" });
    this.element = createElement(
      "div",
      { class: "toolbar", part: "toolbar" },
      this.#runs,
      levels,
      this.#steps,
      this.search,
      createElement("span", { class: "space" }),
      this.#connection,
      createElement("span", { class: "acts" }, this.#wrap, copy, download),
    );
  }

  show(counts: Readonly<Record<Level, number>>, steps: readonly string[], connection: string): void {
    for (const [level, { number }] of this.#levels) setText(number, formatCount(counts[level]));
    setText(this.#connection, connection);
    const names = JSON.stringify(steps);
    if (names === this.#stepNames) return;
    this.#stepNames = names;
    const chosen = this.#steps.value;
    this.#steps.replaceChildren(createElement("option", { value: "" }, "All steps"));
    // The "=" distinguishes a step from "All steps", whose value is empty.
    for (const name of steps) this.#steps.append(createElement("option", { value: `=${name}` }, escapeTextLine(name)));
    this.#steps.value = chosen;
  }

  showRuns(runs: readonly Run[]): void {
    this.#runs.hidden = runs.length < 2;
    const options = runs.map(({ id, label, state }) =>
      createElement("option", { value: id }, escapeTextLine(state ? `${label} · ${state}` : label)),
    );
    this.#runs.replaceChildren(...options);
    const current = runs.find((run) => run.current);
    if (current) this.#runs.value = current.id;
  }

  /** Resets all filters. */
  clear(): void {
    this.search.value = "";
    this.#steps.value = "";
    this.#pressed = new Set(LEVELS);
    for (const { button } of this.#levels.values()) setAttributes(button, { "aria-pressed": "true" });
    this.#actions.filter({ text: "", step: null, levels: new Set(LEVELS) });
  }

  clearSearch(): void {
    this.search.value = "";
    this.#actions.filter({ text: "" });
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #levelButton(level: Level): HTMLButtonElement {
    const number = createElement("span", { class: "number" }, "0");
    const toggle = button("", `level ${level}`, () => {
      if (this.#pressed.has(level)) this.#pressed.delete(level);
      else this.#pressed.add(level);
      setAttributes(toggle, { "aria-pressed": String(this.#pressed.has(level)) });
      this.#actions.filter({ levels: new Set(this.#pressed) });
    });
    setAttributes(toggle, { "aria-pressed": "true", part: `level level-${level}` });
    toggle.append(`${LABELS[level]} `, number);
    this.#levels.set(level, { button: toggle, number });
    return toggle;
  }

  #after(call: () => void, ms: number): ReturnType<typeof setTimeout> {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      call();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }
}

export function button(text: string, name: string, onClick: () => void): HTMLButtonElement {
  const element = createElement("button", { type: "button", class: name, part: name.split(" ")[0]! }, text);
  element.addEventListener("click", onClick);
  return element;
}
