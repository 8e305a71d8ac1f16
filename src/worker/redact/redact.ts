// Hides registered secrets from everything a job writes for people. The second line of defence: the first is not to have them in payloads.
// Each is looked for as it is and in the forms it takes on the way (secret-forms.ts). A secret that is cut, by a limit or over two lines, shows in
// parts: what stands at the edge of a text and is a part of one is hidden too.

import type { Failure } from "../../db/calls/jobs.ts";
import { InvalidInput } from "../../errors.ts";
import type { Outcome } from "../attempt/outcome.ts";
import { formsOf, LEAST, SecretForms, textsOf } from "./secret-forms.ts";

const MASK = "***";
/** Characters of forms beyond which nothing more is taken: user code can register without end, and the keeper would search for it all. */
const MAX_SIZE = 16 * 1024 * 1024;

export class Redactor {
  /** Made when there is something to hide: most jobs have no secrets. */
  #forms: SecretForms | undefined;
  readonly #onAdd: ((secret: unknown) => void) | undefined;

  /** `onAdd` is told of every secret that user code registers. */
  constructor(onAdd?: (secret: unknown) => void) {
    this.#onAdd = onAdd;
  }

  /** Text, or data whose leaves are all hidden: a JSON key file is as secret as its private key. */
  add(secret: unknown): void {
    if (typeof secret === "string" && secret.length < LEAST) {
      throw new InvalidInput(`A secret of ${secret.length} characters would hide ordinary words`, {
        field: "secret",
        remedy: `Register secrets of at least ${LEAST} characters`,
      });
    }
    if (typeof secret !== "string" && (typeof secret !== "object" || secret === null)) {
      throw new InvalidInput(`A ${typeof secret} cannot be a secret`, {
        field: "secret",
        remedy: "Pass a text or an object",
      });
    }
    this.register(secret);
    this.#onAdd?.(secret);
  }

  /** The same of what nobody has written with redaction in mind: what is too short to be looked for is passed over. */
  register(secret: unknown): void {
    for (const text of textsOf(secret)) {
      if (text.length < LEAST || (this.#forms?.size ?? 0) > MAX_SIZE) continue;
      this.#forms ??= new SecretForms();
      for (const form of formsOf(text)) this.#forms.add(form);
    }
  }

  /** True when there is anything to hide. */
  get hides(): boolean {
    return this.#forms !== undefined;
  }

  finds(text: string): boolean {
    return this.#forms?.isIn(text) ?? false;
  }

  hide(text: string): string {
    if (!this.#forms) return text;
    const masked = this.#forms.replace(text, MASK);
    const whole = /[\r\n]/.test(masked)
      ? masked.replace(/[^\r\n]+/g, (line) => this.#withoutEdges(line))
      : this.#withoutEdges(masked);
    return whole.includes("…") ? this.#withoutCuts(whole) : whole;
  }

  /** The same in every text of a structure, and in its keys. */
  hideIn(value: unknown): unknown {
    if (!this.hides) return value;
    if (typeof value === "string") return this.hide(value);
    if (typeof value === "number") return this.finds(String(value)) ? MASK : value;
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map((child) => this.hideIn(child));
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [this.hide(key), this.hideIn(child)]));
  }

  /** What an attempt ends with: its words, and its output, which is shown, sent and handed to a parent. */
  hideEnd(outcome: Outcome): void {
    if (!this.hides) return;
    if (outcome.kind === "completed" && outcome.output !== undefined) outcome.output = this.hideIn(outcome.output);
    if (outcome.kind === "failed") outcome.failure = this.hideIn(outcome.failure) as Failure;
    if (outcome.kind === "paused") outcome.reason = this.hide(outcome.reason);
  }

  /** An error for those who trace, with nothing in it that must not be seen. */
  hideError(error: unknown): unknown {
    if (!this.hides) return error;
    if (!(error instanceof Error)) return new Error(this.hide(String(error)));
    const shown = new Error(this.hide(error.message));
    shown.name = this.hide(error.name);
    shown.stack = this.hide(error.stack ?? "");
    const { code } = error as { code?: unknown };
    return code === undefined ? shown : Object.assign(shown, { code: this.hide(String(code)) });
  }

  /** A line that ends with the beginning of a secret, begins with the end of one, or is nothing but the middle of one. */
  #withoutEdges(line: string): string {
    const text = line.trim();
    if (text.length < LEAST) return line;
    const rest = this.#forms!.hold(text, enough) ? MASK : this.#withoutParts(text, enough, enough);
    return rest === text ? line : line.replace(text, () => rest);
  }

  /** Where a text was cut before it came here, a secret may have been cut with it: what is left of one is hidden too. */
  #withoutCuts(text: string): string {
    const parts = text.split("…");
    const last = parts.length - 1;
    const any = () => LEAST;
    const cut = parts.map((part, place) => this.#withoutParts(part, place > 0 ? any : none, place < last ? any : none));
    return cut.join("…");
  }

  #withoutParts(text: string, atStart: (form: string) => number, atEnd: (form: string) => number): string {
    const end = this.#forms!.beginningAt(text, atEnd);
    const left = end > 0 ? text.slice(0, -end) + MASK : text;
    const start = this.#forms!.endAt(left, atStart);
    return start > 0 ? MASK + left.slice(start) : left;
  }
}

/** At the edge of a line a few characters may be there by chance: "postgres" begins many a URL. A third of a secret is not. */
function enough(form: string): number {
  return Math.min(Math.max(LEAST, Math.ceil(form.length / 3)), 2 * LEAST);
}

function none(): number {
  return Number.POSITIVE_INFINITY;
}
