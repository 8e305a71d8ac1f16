// Forms: a field with its label, its help and what the server has against it; and a form that opens over the page.
import { type FormEvent, type ReactNode, useEffect, useId, useRef } from "react";
import type { Refused } from "../../api/call.ts";
import "../../look/form.css";
import { Button, Dialog } from "../button.tsx";
import { Wrong } from "../panel.tsx";
import { inert } from "../words.ts";

/** What an input needs to be known by its label, its help and its mistake. */
interface FieldProps {
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
  wrong,
  children,
}: {
  name: string;
  label: ReactNode;
  help?: ReactNode;
  wrong?: string | undefined;
  children: (props: FieldProps) => ReactNode;
}) {
  const id = useId();
  const words = [wrong && `${id}-wrong`, help && `${id}-help`].filter(Boolean).join(" ");
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({
        id,
        name,
        className: "input",
        "aria-invalid": wrong !== undefined,
        "aria-describedby": words || undefined,
      })}
      {wrong !== undefined && (
        <span id={`${id}-wrong`} className="wrong foreign" role="alert">
          {inert(wrong)}
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

/** Several boxes to tick under one name. */
export function Choices({
  name,
  label,
  help,
  wrong,
  choices,
  chosen,
}: {
  name: string;
  label: string;
  help?: ReactNode;
  wrong?: string | undefined;
  choices: readonly string[];
  chosen: readonly string[];
}) {
  return (
    <fieldset className="field choices">
      <legend className="label">{label}</legend>
      <div className="choices-list">
        {choices.map((choice) => (
          <label key={choice} className="choice foreign">
            <input type="checkbox" name={name} value={choice} defaultChecked={chosen.includes(choice)} />
            {inert(choice)}
          </label>
        ))}
      </div>
      {wrong !== undefined && (
        <span className="wrong foreign" role="alert">
          {inert(wrong)}
        </span>
      )}
      {help && <span className="help">{help}</span>}
    </fieldset>
  );
}

/** What the server has against a field, by any of the names it may be known under. */
export function wrongAt(wrong: Refused | undefined, ...names: string[]): string | undefined {
  if (!wrong) return undefined;
  const isOf = (path: string) =>
    names.some((name) => path === name || path.startsWith(`${name}.`) || path.startsWith(`${name}[`));
  const said = wrong.issues.filter(({ path }) => isOf(path));
  if (said.length > 0) {
    return said.map(({ path, message }) => (names.includes(path) ? message : `${path}: ${message}`)).join("; ");
  }
  if (wrong.field === undefined || !isOf(wrong.field)) return undefined;
  return wrong.remedy ? `${wrong.message}. ${wrong.remedy}` : wrong.message;
}

/** `fields` are the names under which the form shows a refusal itself; any that is of none of them is shown at its end. */
export function FormDialog({
  title,
  yes,
  form: { busy, wrong },
  fields,
  onSubmit,
  onClose,
  children,
}: {
  title: string;
  yes: string;
  form: { busy: boolean; wrong: Refused | undefined };
  fields: readonly string[];
  onSubmit: (data: FormData) => unknown;
  onClose: () => void;
  children: ReactNode;
}) {
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (wrong) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [wrong]);
  function submit(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    void onSubmit(new FormData(event.currentTarget));
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form ref={form} className="form" onSubmit={submit} noValidate>
        {children}
        {wrong && wrongAt(wrong, ...fields) === undefined && <Wrong error={wrong} />}
        <div className="dialog-acts">
          <Button onClick={onClose}>Not now</Button>
          <Button type="submit" kind="main" disabled={busy}>
            {yes}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
