// What stands above the lines: which of them to show, a search, and what to do with them. It knows no lines; the view tells it what there is and is told what was chosen.
import { make, say, set } from "../dom.ts";
import { plainLine } from "../plain.ts";
import type { Level } from "../wire.ts";
import { count } from "../words.ts";
import { LEVELS, type Question } from "./line-filter.ts";

/** Another job that can be looked at in the same place, such as an earlier one of the same key. */
export interface Run {
  id: string;
  label: string;
  state?: string | undefined;
  current?: boolean | undefined;
}

export interface ToolbarActions {
  ask(question: Partial<Question>): void;
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
    const levels = make("div", { class: "levels", role: "group", "aria-label": "Levels shown" });
    for (const level of LEVELS) levels.append(this.#levelButton(level));
    this.#steps = make(
      "select",
      { class: "steps", part: "steps", "aria-label": "Step" },
      make("option", { value: "" }, "All steps"),
    );
    this.#steps.addEventListener("change", () => actions.ask({ step: this.#steps.value.slice(1) || null }));
    this.#runs = make("select", { class: "runs", part: "runs", "aria-label": "Which job to show", hidden: true });
    this.#runs.addEventListener("change", () => actions.run(this.#runs.value));
    this.search = make("input", {
      type: "search",
      class: "search",
      part: "search",
      placeholder: "Search  /",
      "aria-label": "Search the lines",
      spellcheck: "false",
      autocomplete: "off",
    });
    let typing: ReturnType<typeof setTimeout> | undefined;
    this.search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = this.#later(() => actions.ask({ text: this.search.value }), SEARCH_MS);
    });
    this.#wrap = button("Wrap", "wrap", () => {
      const on = this.#wrap.getAttribute("aria-pressed") !== "true";
      set(this.#wrap, { "aria-pressed": String(on) });
      actions.wrap(on);
    });
    set(this.#wrap, { "aria-pressed": "true", title: "Break long lines" });
    const copy = button("Copy", "copy", async () => {
      say(copy, (await actions.copy()) ? "Copied" : "Not allowed");
      this.#later(() => say(copy, "Copy"), 2000);
    });
    const download = button("Download", "download", () => actions.download());
    this.#connection = make("span", { class: "connection", part: "connection" });
    this.element = make(
      "div",
      { class: "toolbar", part: "toolbar" },
      this.#runs,
      levels,
      this.#steps,
      this.search,
      make("span", { class: "space" }),
      this.#connection,
      make("span", { class: "acts" }, this.#wrap, copy, download),
    );
  }

  show(counts: Readonly<Record<Level, number>>, steps: readonly string[], connection: string): void {
    for (const [level, { number }] of this.#levels) say(number, count(counts[level]));
    say(this.#connection, connection);
    const names = JSON.stringify(steps);
    if (names === this.#stepNames) return;
    this.#stepNames = names;
    const chosen = this.#steps.value;
    this.#steps.replaceChildren(make("option", { value: "" }, "All steps"));
    // A step may have an empty name for a browser, never one that begins with the sign that is put before it here.
    for (const name of steps) this.#steps.append(make("option", { value: `=${name}` }, plainLine(name)));
    this.#steps.value = chosen;
  }

  showRuns(runs: readonly Run[]): void {
    this.#runs.hidden = runs.length < 2;
    const options = runs.map(({ id, label, state }) =>
      make("option", { value: id }, plainLine(state ? `${label} · ${state}` : label)),
    );
    this.#runs.replaceChildren(...options);
    const current = runs.find((run) => run.current);
    if (current) this.#runs.value = current.id;
  }

  /** Everything is shown again. */
  clear(): void {
    this.search.value = "";
    this.#steps.value = "";
    this.#pressed = new Set(LEVELS);
    for (const { button } of this.#levels.values()) set(button, { "aria-pressed": "true" });
    this.#actions.ask({ text: "", step: null, levels: new Set(LEVELS) });
  }

  clearSearch(): void {
    this.search.value = "";
    this.#actions.ask({ text: "" });
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #levelButton(level: Level): HTMLButtonElement {
    const number = make("span", { class: "number" }, "0");
    const one = button("", `level ${level}`, () => {
      if (this.#pressed.has(level)) this.#pressed.delete(level);
      else this.#pressed.add(level);
      set(one, { "aria-pressed": String(this.#pressed.has(level)) });
      this.#actions.ask({ levels: new Set(this.#pressed) });
    });
    set(one, { "aria-pressed": "true", part: `level level-${level}` });
    one.append(`${LABELS[level]} `, number);
    this.#levels.set(level, { button: one, number });
    return one;
  }

  #later(call: () => void, ms: number): ReturnType<typeof setTimeout> {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      call();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }
}

export function button(text: string, name: string, onClick: () => void): HTMLButtonElement {
  const made = make("button", { type: "button", class: name, part: name.split(" ")[0]! }, text);
  made.addEventListener("click", onClick);
  return made;
}
