// One field of a schema form: label, control, help and errors. `path` is the name of the field in the server's errors.

import { escapeText } from "@stillwake/ui/format.ts";
import { createContext, type ReactNode, useContext, useId } from "react";
import type { Draft, Issue } from "./form-draft.ts";
import type { Field } from "./form-model.ts";
import { helpText, valueText } from "./form-text.ts";

/** The issues of the whole form. */
export const FormIssues = createContext<readonly Issue[]>([]);

export interface SchemaFieldProps<Kind extends Field["kind"] = Field["kind"]> {
  name: string;
  path: string;
  field: Field & { kind: Kind };
  required: boolean;
  draft: Draft;
  onDraft: (draft: Draft) => void;
}

interface ControlProps {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
  "aria-required": boolean;
}

export function LabelledField({
  children,
  ...props
}: SchemaFieldProps & { children: (control: ControlProps) => ReactNode }) {
  const { field, path, required } = props;
  const help = helpText(field, required);
  const { errors, ...control } = useControl(path, required, help !== "");
  const isReadOnly = field.kind === "sealed" || field.kind === "fixed" || props.draft.as === "null";
  return (
    <div className="field">
      <div className="field-head">
        {isReadOnly ? (
          <span className="label">
            <Title {...props} />
          </span>
        ) : (
          <label htmlFor={control.id} className="label">
            <Title {...props} />
          </label>
        )}
        <NullCheckbox {...props} />
      </div>
      {children(control)}
      <HelpAndErrors id={control.id} help={help} errors={errors} />
    </div>
  );
}

export function Control({
  field,
  draft,
  required,
  onDraft,
  name,
  path: _,
  ...control
}: SchemaFieldProps & ControlProps) {
  const type = (text: string) => onDraft({ ...draft, as: "value", text });
  switch (field.kind) {
    case "sealed":
      return (
        <p className="callout small" data-tone="amber">
          <span>
            This value must be sealed, and the server has no key for it. Enqueue from your code, which has the key, or
            refer to a secret of the worker in JSON: <code>{'{"$secret": "name"}'}</code>.
          </span>
        </p>
      );
    case "fixed":
      return <code className="untrusted">{escapeText(JSON.stringify(field.value))}</code>;
    case "switch":
      return (
        <select
          {...control}
          className="input"
          value={draft.as === "omitted" ? "" : String(draft.on)}
          onChange={({ target }) =>
            onDraft({ ...draft, as: target.value === "" ? "omitted" : "value", on: target.value === "true" })
          }
        >
          <option value="">not set</option>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      );
    case "choice":
      return (
        <select
          {...control}
          className="input"
          value={draft.as === "omitted" ? -1 : draft.chosen}
          onChange={({ target }) => onDraft({ ...draft, as: "value", chosen: Number(target.value) })}
        >
          <option value={-1}>{required ? "select…" : "not set"}</option>
          {field.options.map((option, index) => (
            <option key={index} value={index}>
              {valueText(option)}
            </option>
          ))}
        </select>
      );
    case "number":
      return (
        <input
          {...control}
          className="input number-input"
          inputMode={field.integer ? "numeric" : "decimal"}
          autoComplete="off"
          value={draft.text}
          onChange={({ target }) => type(target.value)}
        />
      );
    case "json":
      return <TextArea control={control} text={draft.text} rows={4} placeholder="JSON" onText={type} />;
    case "text":
      if ((field.maxLength ?? 0) > 200) return <TextArea control={control} text={draft.text} rows={3} onText={type} />;
      return (
        <input
          {...control}
          className="input"
          type={SECRET.test(name) ? "password" : (inputTypes[field.format ?? ""] ?? "text")}
          {...(field.format === "date-time" && { step: 1 })}
          autoComplete={SECRET.test(name) ? "new-password" : "off"}
          spellCheck={false}
          placeholder={field.format === "uuid" ? "00000000-0000-0000-0000-000000000000" : undefined}
          value={draft.text}
          onChange={({ target }) => type(target.value)}
        />
      );
    default:
      return null;
  }
}

/** Fields with these names are masked while they are typed. */
const SECRET = /secret|token|passw(or)?d|api.?key|credential|private/i;

const inputTypes: Record<string, string> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

function TextArea({
  control,
  text,
  rows,
  placeholder,
  onText,
}: {
  control: ControlProps;
  text: string;
  rows: number;
  placeholder?: string;
  onText: (text: string) => void;
}) {
  return (
    <textarea
      {...control}
      className="input"
      rows={rows}
      spellCheck={false}
      placeholder={placeholder}
      value={text}
      onChange={({ target }) => onText(target.value)}
    />
  );
}

/** A checkbox for a boolean; for a field with a fixed value, whether it is sent. */
export function Switch(props: SchemaFieldProps<"switch" | "fixed">) {
  const { field, draft, path, required, onDraft } = props;
  const isFixed = field.kind === "fixed";
  const help = field.description ?? "";
  const { errors, "aria-required": _, ...control } = useControl(path, required, help !== "");
  return (
    <div className="field">
      <div className="field-head">
        <label className="check label">
          <input
            {...control}
            type="checkbox"
            checked={draft.as === "value" && (isFixed || draft.on)}
            onChange={({ target: { checked } }) =>
              onDraft({ ...draft, as: isFixed && !checked ? "omitted" : "value", on: checked })
            }
          />
          <span className="untrusted">{escapeText(field.title ?? props.name)}</span>
          {isFixed && <code className="untrusted">{escapeText(JSON.stringify(field.value))}</code>}
        </label>
        <NullCheckbox {...props} />
      </div>
      <HelpAndErrors id={control.id} help={help} errors={errors} />
    </div>
  );
}

export function Title({ name, path, field, required }: Pick<SchemaFieldProps, "name" | "path" | "field" | "required">) {
  // A list item has only its number.
  if (path.endsWith("]")) return <span className="number">{name}</span>;
  return (
    <>
      <span className="untrusted">{escapeText(field.title ?? name)}</span>{" "}
      <span className="field-note">
        {field.title && field.title !== name && <code className="untrusted">{escapeText(name)}</code>}{" "}
        {required ? "required" : "optional"}
      </span>
    </>
  );
}

/** A checkbox that sets a nullable field to null. */
export function NullCheckbox({ field, draft, onDraft, path }: SchemaFieldProps) {
  if (!field.nullable) return null;
  return (
    <label className="check small">
      <input
        type="checkbox"
        checked={draft.as === "null"}
        aria-label={`null for ${path}`}
        onChange={({ target }) => onDraft(target.checked ? { ...draft, as: "null" } : { ...draft, as: "value" })}
      />
      null
    </label>
  );
}

function HelpAndErrors({ id, help, errors }: { id: string; help: string | undefined; errors: Issue[] }) {
  return (
    <>
      {help && (
        <span id={`${id}-help`} className="help untrusted">
          {escapeText(help)}
        </span>
      )}
      <FieldErrors id={id} errors={errors} />
    </>
  );
}

export function FieldErrors({ id, errors }: { id: string; errors: Issue[] }) {
  if (errors.length === 0) return null;
  return (
    <span id={`${id}-error`} className="error untrusted">
      {errors.map(({ message }) => escapeText(message)).join(". ")}
    </span>
  );
}

export function useControl(path: string, required: boolean, hasHelp: boolean): ControlProps & { errors: Issue[] } {
  const id = useId();
  const errors = useContext(FormIssues).filter((issue) => issue.path === path);
  const described = [hasHelp && `${id}-help`, errors.length > 0 && `${id}-error`].filter(Boolean).join(" ");
  return {
    id,
    errors,
    "aria-describedby": described || undefined,
    "aria-invalid": errors.length > 0,
    "aria-required": required,
  };
}
