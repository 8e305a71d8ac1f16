// Hides registered secrets from everything a job writes for people. The second line of defence: the first is not to have them in payloads.
// Each is looked for as it is and in the forms it takes on the way: base64 at each of the three offsets, URL and JSON escapes, hex.
import { InvalidInput } from "../errors.ts";

const LEAST = 8;
const MASK = "***";

export class Redactor {
  #pattern: RegExp | undefined;
  readonly #forms = new Set<string>();

  /** Text, or data whose leaves are all hidden: a JSON key file is as secret as its private key. */
  add(secret: unknown): void {
    // A log is written line by line, so each line of a key is looked for by itself too.
    for (const leaf of leavesOf(secret).flatMap((text) => [text, ...text.split(/[\r\n]+/)])) {
      for (const form of formsOf(leaf)) this.#forms.add(form);
    }
    const longestFirst = [...this.#forms].sort((a, b) => b.length - a.length);
    // Without any, the pattern would match between all characters.
    if (longestFirst.length > 0) this.#pattern = new RegExp(longestFirst.map(literally).join("|"), "g");
  }

  hide(text: string): string {
    if (!this.#pattern) return text;
    const [last = "", ...cut] = text.replace(this.#pattern, MASK).split("…").reverse();
    return [...cut.reverse().map((part) => this.#withoutBeginning(part)), last].join("…");
  }

  /** The same in every text of a structure. */
  hideIn(value: unknown): unknown {
    if (typeof value === "string") return this.hide(value);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, this.hideIn(child)]));
  }

  /** Where a text was cut before it came here, a secret may have been cut with it: what is left of one is hidden too. */
  #withoutBeginning(part: string): string {
    for (const form of this.#forms) {
      for (let length = Math.min(form.length - 1, part.length); length >= LEAST; length--) {
        if (part.endsWith(form.slice(0, length))) return `${part.slice(0, -length)}${MASK}`;
      }
    }
    return part;
  }
}

function leavesOf(secret: unknown): string[] {
  if (typeof secret === "string") {
    if (secret.length < LEAST) {
      throw new InvalidInput(`A secret of ${secret.length} characters would hide ordinary words`, {
        field: "secret",
        remedy: `Register secrets of at least ${LEAST} characters`,
      });
    }
    let inner: unknown;
    try {
      inner = JSON.parse(secret);
    } catch {}
    return [secret, ...(typeof inner === "object" && inner !== null ? longLeaves(inner) : [])];
  }
  if (typeof secret === "object" && secret !== null) return longLeaves(secret);
  throw new InvalidInput(`A ${typeof secret} cannot be a secret`, {
    field: "secret",
    remedy: "Pass a text or an object",
  });
}

/** Short values inside a structure (a type, a region) are no secrets. */
function longLeaves(value: unknown): string[] {
  if (typeof value === "string") return value.length >= LEAST ? [value] : [];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(longLeaves) : [];
}

function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const hex = bytes.toString("hex");
  const forms = [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1), hex, hex.toUpperCase()];
  for (const offset of [0, 1, 2]) {
    // The characters at both ends also carry bits of their neighbours: only those in between are always the same.
    const first = offset === 0 ? 0 : offset + 1;
    const text = Buffer.concat([Buffer.alloc(offset), bytes])
      .toString("base64")
      .replaceAll("=", "");
    const kept = text.slice(first, (offset + bytes.length) % 3 === 0 ? undefined : -1);
    forms.push(kept, kept.replaceAll("+", "-").replaceAll("/", "_"));
  }
  return forms.filter((form) => form.length >= LEAST);
}

function literally(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
}
