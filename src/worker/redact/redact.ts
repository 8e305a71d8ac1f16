// Redacts registered secrets from everything a job writes for people. This is the second line of defence: the first is
// to keep secrets out of payloads. Each secret is searched as it is and in its encodings (secret-forms.ts). A limit or
// a line break can cut a secret, so a part of a secret at the edge of a text is redacted too.
import type { Failure } from "../../db/calls/job.ts";
import { InvalidInput } from "../../errors.ts";
import type { Outcome } from "../attempt/outcome.ts";
import { formsOf, MIN_SECRET_LENGTH, SecretForms, textsOf } from "./secret-forms.ts";

const MASK = "***";
/** Maximum characters of all forms: user code can register any number of secrets. */
const MAX_SIZE = 16 * 1024 * 1024;

export class Redactor {
  /** Created with the first secret of the job: most have none. Until then the shared ones. */
  #forms: SecretForms | undefined;
  readonly #shared: SecretForms | undefined;
  readonly #onAdd: ((secret: unknown) => void) | undefined;

  /** `shared`: secrets of all jobs, whose forms are computed once. `onAdd` receives every secret that user code registers. */
  constructor(shared?: SecretForms, onAdd?: (secret: unknown) => void) {
    this.#shared = shared;
    this.#forms = shared;
    this.#onAdd = onAdd;
  }

  /** Registers a string, or all leaves of an object: a JSON key file is as secret as its private key. */
  add(secret: unknown): void {
    if (typeof secret === "string" && secret.length < MIN_SECRET_LENGTH) {
      throw new InvalidInput(
        `A secret of ${secret.length} characters is too short: redacting it would mask ordinary words`,
        {
          field: "secret",
          remedy: `Register secrets of at least ${MIN_SECRET_LENGTH} characters`,
        },
      );
    }
    if (typeof secret !== "string" && (typeof secret !== "object" || secret === null)) {
      throw new InvalidInput(`A secret must be a string or an object, not ${typeof secret}`, {
        field: "secret",
        remedy: "Pass a string or an object",
      });
    }
    this.register(secret);
    this.#onAdd?.(secret);
  }

  /** Like add(), for values of the input: ignores texts that are too short instead of throwing. */
  register(secret: unknown): void {
    for (const text of textsOf(secret)) {
      if (text.length < MIN_SECRET_LENGTH || (this.#forms?.size ?? 0) > MAX_SIZE) continue;
      if (this.#forms === undefined || this.#forms === this.#shared) this.#forms = new SecretForms(this.#shared?.all);
      for (const form of formsOf(text)) this.#forms.add(form);
    }
  }

  get hasSecrets(): boolean {
    return this.#forms !== undefined;
  }

  containsSecret(text: string): boolean {
    return this.#forms?.isFoundIn(text) ?? false;
  }

  redact(text: string): string {
    if (!this.#forms) return text;
    const masked = this.#forms.replace(text, MASK);
    const whole = /[\r\n]/.test(masked)
      ? masked.replace(/[^\r\n]+/g, (line) => this.#redactEdges(line))
      : this.#redactEdges(masked);
    return whole.includes("…") ? this.#redactCuts(whole) : whole;
  }

  /** Redacts every text and key of a structure. */
  redactValue(value: unknown): unknown {
    if (!this.hasSecrets) return value;
    if (typeof value === "string") return this.redact(value);
    if (typeof value === "number") return this.containsSecret(String(value)) ? MASK : value;
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map((child) => this.redactValue(child));
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [this.redact(key), this.redactValue(child)]));
  }

  /** Redacts failure, pause reason and output, which is displayed, sent and passed to a parent. */
  redactOutcome(outcome: Outcome): void {
    if (!this.hasSecrets) return;
    if (outcome.kind === "completed" && outcome.output !== undefined) outcome.output = this.redactValue(outcome.output);
    if (outcome.kind === "failed") outcome.failure = this.redactValue(outcome.failure) as Failure;
    if (outcome.kind === "paused") outcome.reason = this.redact(outcome.reason);
  }

  /** A redacted copy of an error, for tracing. */
  redactError(error: unknown): unknown {
    if (!this.hasSecrets) return error;
    if (!(error instanceof Error)) return new Error(this.redact(String(error)));
    const copy = new Error(this.redact(error.message));
    copy.name = this.redact(error.name);
    copy.stack = this.redact(error.stack ?? "");
    const { code } = error as { code?: unknown };
    return code === undefined ? copy : Object.assign(copy, { code: this.redact(String(code)) });
  }

  /** For a line that ends with the start of a secret, starts with the end of one, or is the middle of one. */
  #redactEdges(line: string): string {
    const text = line.trim();
    if (text.length < MIN_SECRET_LENGTH) return line;
    const rest = this.#forms!.containPart(text, minEdgeLength)
      ? MASK
      : this.#redactParts(text, minEdgeLength, minEdgeLength);
    return rest === text ? line : line.replace(text, () => rest);
  }

  /** For texts that were truncated with "…": a secret may have been cut there. */
  #redactCuts(text: string): string {
    const parts = text.split("…");
    const last = parts.length - 1;
    const minLength = () => MIN_SECRET_LENGTH;
    return parts
      .map((part, index) => this.#redactParts(part, index > 0 ? minLength : never, index < last ? minLength : never))
      .join("…");
  }

  #redactParts(text: string, minAtStart: (form: string) => number, minAtEnd: (form: string) => number): string {
    const end = this.#forms!.matchAtEnd(text, minAtEnd);
    const left = end > 0 ? text.slice(0, -end) + MASK : text;
    const start = this.#forms!.matchAtStart(left, minAtStart);
    return start > 0 ? MASK + left.slice(start) : left;
  }
}

/** The forms of secrets that every job has; undefined without any. */
export function sharedForms(secrets: readonly string[]): SecretForms | undefined {
  const forms = secrets.filter(({ length }) => length >= MIN_SECRET_LENGTH).flatMap(formsOf);
  return forms.length === 0 ? undefined : new SecretForms(forms);
}

/** A few characters at the edge of a line can match by chance; a third of a secret cannot. */
function minEdgeLength(form: string): number {
  return Math.min(Math.max(MIN_SECRET_LENGTH, Math.ceil(form.length / 3)), 2 * MIN_SECRET_LENGTH);
}

function never(): number {
  return Number.POSITIVE_INFINITY;
}
