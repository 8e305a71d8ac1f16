// Forms: a field with its label, its help and its error, and a form in a dialog.
import { type FormEvent, type ReactNode, useEffect, useId, useRef } from "react";
import type { RequestError } from "../api/request.ts";
import { escapeText } from "../format.ts";
import { Button, Dialog } from "./button.tsx";
import { ErrorCallout } from "./panel.tsx";

/** The attributes that connect an input with its label, help and error. */
export interface FieldProps {
  id: string;
  name: string;
  className: "input";
  "aria-invalid": boolean;
  "aria-describedby": string | undefined;
}

export function Field({
  name,
  label,
  help,
  error,
  children,
}: {
  name: string;
  label: ReactNode;
  help?: ReactNode;
  error?: string | undefined;
  children: (props: FieldProps) => ReactNode;
}) {
  const id = useId();
  const describedBy = [error && `${id}-error`, help && `${id}-help`].filter(Boolean).join(" ");
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        name,
        className: "input",
        "aria-invalid": error !== undefined,
        "aria-describedby": describedBy || undefined,
      })}
      {error !== undefined && (
        <span id={`${id}-error`} className="error untrusted" role="alert">
          {escapeText(error)}
        </span>
      )}
      {help && (
        <span id={`${id}-help`} className="help">
          {help}
        </span>
      )}
    </div>
  );
}

/** A controlled text input for a Field. */
export function TextInput({
  value,
  onValue,
  ...props
}: FieldProps & { value: string; onValue: (text: string) => void; required?: boolean; placeholder?: string }) {
  return (
    <input
      {...props}
      type="text"
      autoComplete="off"
      autoCapitalize="off"
      spellCheck={false}
      value={value}
      onChange={(event) => onValue(event.target.value)}
    />
  );
}

export function CheckboxGroup({
  name,
  label,
  help,
  error,
  options,
  checked,
}: {
  name: string;
  label: string;
  help?: ReactNode;
  error?: string | undefined;
  options: readonly string[];
  checked: readonly string[];
}) {
  return (
    <fieldset className="field checkbox-group">
      <legend className="label">{label}</legend>
      <div className="checkbox-list">
        {options.map((option) => (
          <label key={option} className="checkbox untrusted">
            <input type="checkbox" name={name} value={option} defaultChecked={checked.includes(option)} />
            {escapeText(option)}
          </label>
        ))}
      </div>
      {error !== undefined && (
        <span className="error untrusted" role="alert">
          {escapeText(error)}
        </span>
      )}
      {help && <span className="help">{help}</span>}
    </fieldset>
  );
}

/** The part of an error that is about one field, which may have several names. */
export function fieldError(error: RequestError | undefined, ...names: string[]): string | undefined {
  if (!error) return undefined;
  const isField = (path: string) =>
    names.some((name) => path === name || path.startsWith(`${name}.`) || path.startsWith(`${name}[`));
  const issues = error.issues.filter(({ path }) => isField(path));
  if (issues.length > 0) {
    return issues.map(({ path, message }) => (names.includes(path) ? message : `${path}: ${message}`)).join("; ");
  }
  if (error.field === undefined || !isField(error.field)) return undefined;
  // The field's name is above its error.
  const prefix = `${error.field}: `;
  const message = error.message.startsWith(prefix) ? `This ${error.message.slice(prefix.length)}` : error.message;
  return error.remedy ? `${message}. ${error.remedy}` : message;
}

/** Errors of `fields` are shown at the fields; any other error is shown at the end of the form. */
export function FormDialog({
  title,
  submitLabel,
  form: { busy, error },
  fields,
  onSubmit,
  onClose,
  children,
}: {
  title: string;
  submitLabel: string;
  form: { busy: boolean; error: RequestError | undefined };
  fields: readonly string[];
  onSubmit: (data: FormData) => unknown;
  onClose: () => void;
  children: ReactNode;
}) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (error) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [error]);
  function submit(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    void onSubmit(new FormData(event.currentTarget));
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form ref={form} className="form" onSubmit={submit} noValidate>
        {children}
        {error && fieldError(error, ...fields) === undefined && <ErrorCallout error={error} />}
        <div className="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" kind="main" disabled={busy}>
            {submitLabel}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
