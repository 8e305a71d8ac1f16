// A field of a form with its label, what helps to fill it, and in the place of that what the server has against what was given.
import { type ReactNode, useId } from "react";
import type { Refused } from "../ask.ts";
import { inLine } from "./words.ts";

interface ControlProps {
  id: string;
  "aria-invalid": boolean;
  "aria-describedby"?: string;
}

interface Fault {
  sentence: string;
  remedy: string | undefined;
}

export function Field({
  label,
  help,
  wrong,
  children,
}: {
  label: string;
  help?: string;
  wrong?: Fault | undefined;
  children: (props: ControlProps) => ReactNode;
}) {
  const id = useId();
  const described = wrong ? `${id}-wrong` : help ? `${id}-help` : undefined;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-invalid": wrong !== undefined, ...(described && { "aria-describedby": described }) })}
      {wrong && (
        <span id={`${id}-wrong`} className="wrong lines" role="alert">
          <span className="foreign">{inLine(wrong.sentence)}</span>
          {wrong.remedy && <span className="foreign">{inLine(wrong.remedy)}</span>}
        </span>
      )}
      {help && !wrong && (
        <span id={`${id}-help`} className="help">
          {help}
        </span>
      )}
    </div>
  );
}

export function Text({
  value,
  onText,
  ...props
}: ControlProps & { value: string; onText: (text: string) => void; required?: boolean; placeholder?: string }) {
  return (
    <input
      {...props}
      className="input"
      type="text"
      autoComplete="off"
      autoCapitalize="off"
      spellCheck={false}
      value={value}
      onChange={(event) => onText(event.target.value)}
    />
  );
}

/** What is wrong with this field, without its name, which stands above it. */
export function fault(wrong: Refused | undefined, field: string): Fault | undefined {
  if (wrong?.field !== field) return undefined;
  const named = `${field}: `;
  const sentence = wrong.message.startsWith(named) ? `This ${wrong.message.slice(named.length)}` : wrong.message;
  return { sentence, remedy: wrong.remedy };
}
