// What a form made of a schema says in words: what is to be known before typing, and what variants are called.

import { inert } from "../words.ts";
import type { Field, Json } from "./form-model.ts";

/** What is to be known before typing, in a line. */
export function helpOf(field: Field, required: boolean): string {
  const parts = [field.description?.trim().replace(/\.$/, "")];
  if (field.kind === "number") parts.push(boundsOf(field));
  if (field.kind === "text") {
    const { minLength = 0, maxLength, pattern, format } = field;
    if (maxLength !== undefined) parts.push(`${minLength > 1 ? `${minLength} to` : "At most"} ${maxLength} characters`);
    // Formats come with patterns nobody can read.
    if (pattern !== undefined && format === undefined) parts.push(`Must match ${pattern}`);
  }
  if (!required && field.default !== undefined && field.kind !== "choice") {
    parts.push(`Left out, it is ${JSON.stringify(field.default)}`);
  }
  const said = parts.filter(Boolean);
  return said.length === 0 ? "" : `${said.join(". ")}.`;
}

function boundsOf({ integer, min, max, above, below }: Field & { kind: "number" }): string {
  const number = integer ? "Whole number" : "Number";
  const from = min !== undefined ? `from ${min}` : above !== undefined ? `above ${above}` : "";
  const to = max !== undefined ? `to ${max}` : below !== undefined ? `below ${below}` : "";
  if (from && to) return `${number} ${from} ${to}`;
  if (min !== undefined) return `${number}, ${min} or more`;
  if (max !== undefined) return `${number}, ${max} or less`;
  return from || to ? `${number} ${from}${to}` : integer ? number : "";
}

/** By its title, or by the member that tells it from the rest. */
export function variantName(field: Field, place: number): string {
  if (field.title) return inert(field.title);
  if (field.kind === "fixed") return word(field.value);
  if (field.kind !== "group") return kinds[field.kind];
  const telling = field.members.find((one) => one.field.kind === "fixed")?.field;
  return telling?.kind === "fixed" ? word(telling.value) : `form ${place + 1}`;
}

const kinds: Record<Field["kind"], string> = {
  text: "text",
  number: "a number",
  switch: "yes or no",
  choice: "a choice",
  fixed: "a fixed value",
  group: "an object",
  list: "a list",
  variants: "one of several",
  sealed: "sealed",
  json: "JSON",
};

export function word(value: Json): string {
  return inert(typeof value === "string" ? value : JSON.stringify(value));
}
