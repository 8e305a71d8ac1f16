// The draft of a form, and its conversion to a value and back. A draft has the text as it was typed, also if it is not
// valid yet; the value is what is sent.
import type { Field, Json, Member } from "./form-model.ts";

/** The draft of one field. `omitted`: not sent; `null`: sent as null. */
export interface Draft {
  as: "value" | "omitted" | "null";
  /** For text, numbers and JSON, as typed. */
  text: string;
  on: boolean;
  /** The index of the selected option or variant. */
  chosen: number;
  /** Members by name, list items by index, or `it` for the selected variant. */
  parts: Record<string, Draft>;
}

export interface Issue {
  path: string;
  message: string;
}

/** A new draft with defaults; optional fields are omitted. */
export function createDraft(field: Field, required: boolean): Draft {
  if (field.default !== undefined) {
    const draft = draftFromValue(field, field.default);
    if (draft) return draft;
  }
  const draft = filledDraft(field);
  if (field.nullable && required && !["group", "list", "variants", "fixed"].includes(field.kind)) {
    return { ...draft, as: "null" };
  }
  const typed = field.kind === "text" || field.kind === "number" || field.kind === "json";
  // Empty typed fields are omitted anyway.
  return required || typed ? draft : { ...draft, as: "omitted" };
}

/** A draft that is sent, with the minimum number of list items and the first variant. */
export function filledDraft(field: Field): Draft {
  const draft: Draft = { as: "value", text: "", on: false, chosen: 0, parts: {} };
  if (field.kind === "group") return { ...draft, parts: createMembers(field.members) };
  if (field.kind === "list") {
    const items = Array.from({ length: Math.min(field.min, 20) }, (_, index) => [index, createDraft(field.item, true)]);
    return { ...draft, parts: Object.fromEntries(items) };
  }
  if (field.kind === "choice") return { ...draft, chosen: -1 };
  if (field.kind === "variants") return chooseVariant(draft, field.variants, 0);
  return draft;
}

export function chooseVariant(draft: Draft, variants: Field[], chosen: number): Draft {
  return { ...draft, as: "value", chosen, parts: { it: createDraft(variants[chosen]!, true) } };
}

export function elements(draft: Draft): Draft[] {
  return Object.keys(draft.parts).map((_, index) => draft.parts[index]!);
}

export function withElements(draft: Draft, items: Draft[]): Draft {
  return { ...draft, parts: Object.fromEntries(items.map((item, index) => [index, item])) };
}

/** The value, undefined if it is omitted, and the issues found here. The server validates as well. */
export function readDraft(
  field: Field,
  draft: Draft,
  path = "input",
  required = true,
): { value?: Json; issues: Issue[] } {
  const invalid = (message: string) => ({ issues: [{ path, message }] });
  const omitted = () => (required ? invalid("This is required") : { issues: [] });
  if (field.kind === "sealed") return { issues: [] };
  if (draft.as === "null") return { value: null, issues: [] };
  if (draft.as === "omitted") return omitted();
  switch (field.kind) {
    case "fixed":
      return { value: field.value, issues: [] };
    case "switch":
      return { value: draft.on, issues: [] };
    case "choice": {
      const value = field.options[draft.chosen];
      return value === undefined ? omitted() : { value, issues: [] };
    }
    case "text":
      return textValue(field, draft.text, omitted, invalid);
    case "number":
      return numberValue(field, draft.text.trim(), omitted, invalid);
    case "json":
      return draft.text.trim() === "" ? omitted() : parsed(draft.text, invalid);
    case "variants":
      return readDraft(field.variants[draft.chosen]!, draft.parts.it!, path, required);
    case "list": {
      const items = elements(draft).map((item, index) => readDraft(field.item, item, `${path}[${index}]`));
      const issues = items.flatMap((item) => item.issues);
      if (items.length < field.min) issues.push({ path, message: `At least ${field.min} are required` });
      return { value: items.map(({ value }) => value ?? null), issues };
    }
    case "group": {
      const value: { [name: string]: Json } = {};
      const issues: Issue[] = [];
      for (const { name, field: member, required: isRequired } of field.members) {
        const part = draft.parts[name] ?? createDraft(member, isRequired);
        const result = readDraft(member, part, `${path}.${name}`, isRequired);
        issues.push(...result.issues);
        if (result.value !== undefined) set(value, name, result.value);
      }
      return { value, issues };
    }
  }
}

type Invalid = (message: string) => { issues: Issue[] };

function textValue(
  field: Field & { kind: "text" },
  text: string,
  omitted: () => { issues: Issue[] },
  invalid: Invalid,
) {
  if (text === "") return omitted();
  const { minLength = 0, maxLength = Number.POSITIVE_INFINITY } = field;
  if (text.length < minLength) return invalid(`At least ${minLength} characters are required`);
  if (text.length > maxLength) return invalid(`At most ${maxLength} characters are allowed; this has ${text.length}`);
  if (field.format !== "date-time") return { value: text, issues: [] };
  const value = toIsoTime(text);
  return value === undefined ? invalid("This is not a valid time") : { value, issues: [] };
}

function numberValue(
  field: Field & { kind: "number" },
  text: string,
  omitted: () => { issues: Issue[] },
  invalid: Invalid,
) {
  if (text === "") return omitted();
  const value = Number(text);
  if (!Number.isFinite(value)) return invalid("This is not a number");
  if (field.integer && !Number.isInteger(value)) return invalid("This must be a whole number");
  const { min = -Infinity, max = Infinity, above = -Infinity, below = Infinity } = field;
  if (value < min) return invalid(`This must be at least ${min}`);
  if (value > max) return invalid(`This must be at most ${max}`);
  if (value <= above) return invalid(`This must be more than ${above}`);
  if (value >= below) return invalid(`This must be less than ${below}`);
  return { value, issues: [] };
}

function parsed(text: string, invalid: Invalid): { value?: Json; issues: Issue[] } {
  try {
    return { value: JSON.parse(text), issues: [] };
  } catch (error) {
    return invalid(`Invalid JSON: ${(error as Error).message}`);
  }
}

/** The draft of a value; undefined if the fields cannot represent it. */
export function draftFromValue(field: Field, value: Json): Draft | undefined {
  const draft: Draft = { as: "value", text: "", on: false, chosen: 0, parts: {} };
  if (field.kind === "sealed") return undefined;
  if (field.kind === "json") return { ...draft, text: JSON.stringify(value, null, 2) };
  if (value === null && field.nullable) return { ...filledDraft(field), as: "null" };
  switch (field.kind) {
    case "fixed":
      return isEqual(value, field.value) ? draft : undefined;
    case "switch":
      return typeof value === "boolean" ? { ...draft, on: value } : undefined;
    case "choice": {
      const chosen = field.options.findIndex((option) => isEqual(option, value));
      return chosen < 0 ? undefined : { ...draft, chosen };
    }
    case "text":
      // An empty text would be omitted.
      if (typeof value !== "string" || value === "") return undefined;
      return field.format === "date-time" ? timeDraft(value, draft) : { ...draft, text: value };
    case "number":
      return typeof value === "number" ? { ...draft, text: String(value) } : undefined;
    case "variants": {
      for (const [chosen, variant] of field.variants.entries()) {
        const it = draftFromValue(variant, value);
        if (it) return { ...draft, chosen, parts: { it } };
      }
      return undefined;
    }
    case "list": {
      if (!Array.isArray(value)) return undefined;
      const items = value.map((item) => draftFromValue(field.item, item));
      return items.every((item) => item !== undefined) ? withElements(draft, items) : undefined;
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
    const part = Object.hasOwn(value, name) ? draftFromValue(field, value[name]!) : omittedDraft(field, required);
    if (!part) return undefined;
    set(parts, name, part);
  }
  return { ...draft, parts };
}

/** An omitted field stays omitted, also if it has a default. */
function omittedDraft(field: Field, required: boolean): Draft {
  const draft = filledDraft(field);
  const typed = field.kind === "text" || field.kind === "number" || field.kind === "json";
  return required || typed ? draft : { ...draft, as: "omitted" };
}

function createMembers(members: Member[]): Record<string, Draft> {
  const parts: Record<string, Draft> = {};
  for (const { name, field, required } of members) set(parts, name, createDraft(field, required));
  return parts;
}

/** Not an assignment, because a member may be named __proto__. */
function set<Value>(record: Record<string, Value>, name: string, value: Value): void {
  Object.defineProperty(record, name, { value, enumerable: true, writable: true, configurable: true });
}

/** The input for a local time has whole seconds and no zone. A time that it would send in another form is not accepted. */
function timeDraft(value: string, draft: Draft): Draft | undefined {
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) return undefined;
  const text = new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  return toIsoTime(text) === value ? { ...draft, text } : undefined;
}

function toIsoTime(text: string): string | undefined {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

function isEqual(a: Json, b: Json): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
