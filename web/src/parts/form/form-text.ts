// The texts of a schema form: the help of a field, and the names of variants.
import { escapeText } from "@stillwake/ui/format.ts";
import type { Field, Json } from "./form-model.ts";

export function helpText(field: Field, required: boolean): string {
  const parts = [field.description?.trim().replace(/\.$/, "")];
  if (field.kind === "number") parts.push(describeRange(field));
  if (field.kind === "text") {
    const { minLength = 0, maxLength, pattern, format } = field;
    if (maxLength !== undefined) parts.push(`${minLength > 1 ? `${minLength} to` : "At most"} ${maxLength} characters`);
    // The patterns of formats are not readable.
    if (pattern !== undefined && format === undefined) parts.push(`Must match ${pattern}`);
  }
  if (!required && field.default !== undefined && field.kind !== "choice") {
    parts.push(`Default: ${JSON.stringify(field.default)}`);
  }
  const sentences = parts.filter(Boolean);
  return sentences.length === 0 ? "" : `${sentences.join(". ")}.`;
}

function describeRange({ integer, min, max, above, below }: Field & { kind: "number" }): string {
  const number = integer ? "Whole number" : "Number";
  const from = min !== undefined ? `from ${min}` : above !== undefined ? `above ${above}` : "";
  const to = max !== undefined ? `to ${max}` : below !== undefined ? `below ${below}` : "";
  if (from && to) return `${number} ${from} ${to}`;
  if (min !== undefined) return `${number}, ${min} or more`;
  if (max !== undefined) return `${number}, ${max} or less`;
  return from || to ? `${number} ${from}${to}` : integer ? number : "";
}

/** Its title, or the value of the member that identifies it. */
export function variantName(field: Field, index: number): string {
  if (field.title) return escapeText(field.title);
  if (field.kind === "fixed") return valueText(field.value);
  if (field.kind !== "group") return kindNames[field.kind];
  const identifier = field.members.find((member) => member.field.kind === "fixed")?.field;
  return identifier?.kind === "fixed" ? valueText(identifier.value) : `variant ${index + 1}`;
}

const kindNames: Record<Field["kind"], string> = {
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

export function valueText(value: Json): string {
  return escapeText(typeof value === "string" ? value : JSON.stringify(value));
}
