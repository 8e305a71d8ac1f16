// What was typed into a form, and the value it makes. A draft holds text as it was typed, so that half a number is not lost; a value is what is sent.
// A draft can be made of a value again, for those who go from JSON back to the fields.
import type { Field, Json, Member } from "./form-model.ts";

/** How one field stands. `left` means that nothing is said, `none` that null is. */
export interface Draft {
  as: "given" | "left" | "none";
  /** Text, numbers and JSON, as typed. */
  text: string;
  on: boolean;
  /** Which of the options, or of the variants. */
  chosen: number;
  /** Members by name, elements by place, or the variant that was chosen. */
  parts: Record<string, Draft>;
}

export interface Issue {
  path: string;
  message: string;
}

/** A fresh draft: defaults filled in, what may be left out left out. */
export function begin(field: Field, required: boolean): Draft {
  if (field.default !== undefined) {
    const draft = draftOf(field, field.default);
    if (draft) return draft;
  }
  const draft = blank(field);
  if (field.nullable && required && !["group", "list", "variants", "fixed"].includes(field.kind)) {
    return { ...draft, as: "none" };
  }
  const typed = field.kind === "text" || field.kind === "number" || field.kind === "json";
  // Typed fields are left out by leaving them empty.
  return required || typed ? draft : { ...draft, as: "left" };
}

/** A draft in which something is said, as far as there is something to begin with. */
export function blank(field: Field): Draft {
  const draft: Draft = { as: "given", text: "", on: false, chosen: 0, parts: {} };
  if (field.kind === "group") return { ...draft, parts: beginMembers(field.members) };
  if (field.kind === "list") {
    const items = Array.from({ length: Math.min(field.min, 20) }, (_, place) => [place, begin(field.item, true)]);
    return { ...draft, parts: Object.fromEntries(items) };
  }
  if (field.kind === "choice") return { ...draft, chosen: -1 };
  if (field.kind === "variants") return choose(draft, field.variants, 0);
  return draft;
}

export function choose(draft: Draft, variants: Field[], chosen: number): Draft {
  return { ...draft, as: "given", chosen, parts: { it: begin(variants[chosen]!, true) } };
}

export function elements(draft: Draft): Draft[] {
  return Object.keys(draft.parts).map((_, place) => draft.parts[place]!);
}

export function withElements(draft: Draft, items: Draft[]): Draft {
  return { ...draft, parts: Object.fromEntries(items.map((item, place) => [place, item])) };
}

/** The value, or undefined where nothing is said; and what is already known to be wrong. The server has the last word. */
export function saidBy(field: Field, draft: Draft, path = "input", required = true): { value?: Json; issues: Issue[] } {
  const wrong = (message: string) => ({ issues: [{ path, message }] });
  const none = () => (required ? wrong("This is needed") : { issues: [] });
  if (field.kind === "sealed") return { issues: [] };
  if (draft.as === "none") return { value: null, issues: [] };
  if (draft.as === "left") return none();
  switch (field.kind) {
    case "fixed":
      return { value: field.value, issues: [] };
    case "switch":
      return { value: draft.on, issues: [] };
    case "choice": {
      const value = field.options[draft.chosen];
      return value === undefined ? none() : { value, issues: [] };
    }
    case "text":
      return textValue(field, draft.text, none, wrong);
    case "number":
      return numberValue(field, draft.text.trim(), none, wrong);
    case "json":
      return draft.text.trim() === "" ? none() : parsed(draft.text, wrong);
    case "variants":
      return saidBy(field.variants[draft.chosen]!, draft.parts.it!, path, required);
    case "list": {
      const made = elements(draft).map((item, place) => saidBy(field.item, item, `${path}[${place}]`));
      const issues = made.flatMap((one) => one.issues);
      if (made.length < field.min) issues.push({ path, message: `At least ${field.min} are needed` });
      return { value: made.map(({ value }) => value ?? null), issues };
    }
    case "group": {
      const value: { [name: string]: Json } = {};
      const issues: Issue[] = [];
      for (const { name, field: member, required: needed } of field.members) {
        const made = saidBy(member, draft.parts[name] ?? begin(member, needed), `${path}.${name}`, needed);
        issues.push(...made.issues);
        if (made.value !== undefined) set(value, name, made.value);
      }
      return { value, issues };
    }
  }
}

type Wrong = (message: string) => { issues: Issue[] };

function textValue(field: Field & { kind: "text" }, text: string, none: () => { issues: Issue[] }, wrong: Wrong) {
  if (text === "") return none();
  const { minLength = 0, maxLength = Number.POSITIVE_INFINITY } = field;
  if (text.length < minLength) return wrong(`At least ${minLength} characters are needed`);
  if (text.length > maxLength) return wrong(`${text.length} characters are more than the ${maxLength} allowed`);
  if (field.format !== "date-time") return { value: text, issues: [] };
  const value = sentMoment(text);
  return value === undefined ? wrong("This is not a moment") : { value, issues: [] };
}

function numberValue(field: Field & { kind: "number" }, text: string, none: () => { issues: Issue[] }, wrong: Wrong) {
  if (text === "") return none();
  const value = Number(text);
  if (!Number.isFinite(value)) return wrong("This is not a number");
  if (field.integer && !Number.isInteger(value)) return wrong("This must be a whole number");
  const { min = -Infinity, max = Infinity, above = -Infinity, below = Infinity } = field;
  if (value < min) return wrong(`This must be at least ${min}`);
  if (value > max) return wrong(`This must be at most ${max}`);
  if (value <= above) return wrong(`This must be more than ${above}`);
  if (value >= below) return wrong(`This must be less than ${below}`);
  return { value, issues: [] };
}

function parsed(text: string, wrong: Wrong): { value?: Json; issues: Issue[] } {
  try {
    return { value: JSON.parse(text), issues: [] };
  } catch (error) {
    return wrong(`This is not JSON: ${(error as Error).message}`);
  }
}

/** A draft that makes this value, or undefined where the fields cannot say it. */
export function draftOf(field: Field, value: Json): Draft | undefined {
  const draft: Draft = { as: "given", text: "", on: false, chosen: 0, parts: {} };
  if (field.kind === "sealed") return undefined;
  if (field.kind === "json") return { ...draft, text: JSON.stringify(value, null, 2) };
  if (value === null && field.nullable) return { ...blank(field), as: "none" };
  switch (field.kind) {
    case "fixed":
      return isEqual(value, field.value) ? draft : undefined;
    case "switch":
      return typeof value === "boolean" ? { ...draft, on: value } : undefined;
    case "choice": {
      const chosen = field.options.findIndex((one) => isEqual(one, value));
      return chosen < 0 ? undefined : { ...draft, chosen };
    }
    case "text":
      // An empty text cannot be told from one that was left out.
      if (typeof value !== "string" || value === "") return undefined;
      return field.format === "date-time" ? momentDraft(value, draft) : { ...draft, text: value };
    case "number":
      return typeof value === "number" ? { ...draft, text: String(value) } : undefined;
    case "variants": {
      for (const [chosen, variant] of field.variants.entries()) {
        const it = draftOf(variant, value);
        if (it) return { ...draft, chosen, parts: { it } };
      }
      return undefined;
    }
    case "list": {
      if (!Array.isArray(value)) return undefined;
      const items = value.map((one) => draftOf(field.item, one));
      return items.every((one) => one !== undefined) ? withElements(draft, items) : undefined;
    }
    case "group":
      return groupDraft(field.members, value, draft);
  }
}

function groupDraft(members: Member[], value: Json, draft: Draft): Draft | undefined {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
  const known = new Set(members.map(({ name }) => name));
  if (Object.keys(value).some((name) => !known.has(name))) return undefined;
  const parts: Record<string, Draft> = {};
  for (const { name, field, required } of members) {
    const made = Object.hasOwn(value, name) ? draftOf(field, value[name]!) : leftOut(field, required);
    if (!made) return undefined;
    set(parts, name, made);
  }
  return { ...draft, parts };
}

/** Not said, although there is a default: it stays not said. */
function leftOut(field: Field, required: boolean): Draft {
  const draft = blank(field);
  const typed = field.kind === "text" || field.kind === "number" || field.kind === "json";
  return required || typed ? draft : { ...draft, as: "left" };
}

function beginMembers(members: Member[]): Record<string, Draft> {
  const parts: Record<string, Draft> = {};
  for (const { name, field, required } of members) set(parts, name, begin(field, required));
  return parts;
}

/** A member may be called __proto__ and is then a member like any. */
function set<Value>(record: Record<string, Value>, name: string, value: Value): void {
  Object.defineProperty(record, name, { value, enumerable: true, writable: true, configurable: true });
}

/** A field for local time has whole seconds and no zone. What it would send back as another text, though of the same moment, it cannot say. */
function momentDraft(value: string, draft: Draft): Draft | undefined {
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) return undefined;
  const text = new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  return sentMoment(text) === value ? { ...draft, text } : undefined;
}

function sentMoment(text: string): string | undefined {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

function isEqual(one: Json, two: Json): boolean {
  return JSON.stringify(one) === JSON.stringify(two);
}
