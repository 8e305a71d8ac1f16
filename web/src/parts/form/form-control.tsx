// One field of a form made of a schema: its label, its control, its help and what is wrong with it. Every field carries the path by which the server
// names it.
import { createContext, type ReactNode, useContext, useId } from "react";
import { inert } from "../words.ts";
import type { Draft, Issue } from "./form-draft.ts";
import type { Field } from "./form-model.ts";
import { helpOf, word } from "./form-words.ts";

/** What is known to be wrong, wherever in the form. */
export const Wrongs = createContext<readonly Issue[]>([]);

export interface Shown<Kind extends Field["kind"] = Field["kind"]> {
  name: string;
  path: string;
  field: Field & { kind: Kind };
  required: boolean;
  draft: Draft;
  onDraft: (draft: Draft) => void;
}

interface Said {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
  "aria-required": boolean;
}

export function Labelled({ children, ...shown }: Shown & { children: (said: Said) => ReactNode }) {
  const { field, path, required } = shown;
  const help = helpOf(field, required);
  const { wrong, ...said } = useSaid(path, required, help !== "");
  const held = field.kind === "sealed" || field.kind === "fixed" || shown.draft.as === "none";
  return (
    <div className="field">
      <div className="field-head">
        {held ? (
          <span className="label">
            <Title {...shown} />
          </span>
        ) : (
          <label htmlFor={said.id} className="label">
            <Title {...shown} />
          </label>
        )}
        <Nothing {...shown} />
      </div>
      {children(said)}
      {help && (
        <span id={`${said.id}-help`} className="help foreign">
          {inert(help)}
        </span>
      )}
      <Wrong id={said.id} wrong={wrong} />
    </div>
  );
}

export function Control({ field, draft, required, onDraft, name, path: _, ...said }: Shown & Said) {
  const type = (text: string) => onDraft({ ...draft, as: "given", text });
  switch (field.kind) {
    case "sealed":
      return (
        <p className="callout small" data-tone="amber">
          <span>
            This is stored sealed, and the server has no key to seal it with. Enqueue from your code, where the key is,
            or name a secret that the worker looks up: in JSON, <code>{'{"$secret": "name"}'}</code>.
          </span>
        </p>
      );
    case "fixed":
      return <code className="foreign">{inert(JSON.stringify(field.value))}</code>;
    case "switch":
      return (
        <select
          {...said}
          className="input"
          value={draft.as === "left" ? "" : String(draft.on)}
          onChange={({ target }) =>
            onDraft({ ...draft, as: target.value === "" ? "left" : "given", on: target.value === "true" })
          }
        >
          <option value="">leave out</option>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      );
    case "choice":
      return (
        <select
          {...said}
          className="input"
          value={draft.as === "left" ? -1 : draft.chosen}
          onChange={({ target }) => onDraft({ ...draft, as: "given", chosen: Number(target.value) })}
        >
          <option value={-1}>{required ? "choose…" : "leave out"}</option>
          {field.options.map((option, place) => (
            <option key={place} value={place}>
              {word(option)}
            </option>
          ))}
        </select>
      );
    case "number":
      return (
        <input
          {...said}
          className="input number-input"
          inputMode={field.integer ? "numeric" : "decimal"}
          autoComplete="off"
          value={draft.text}
          onChange={({ target }) => type(target.value)}
        />
      );
    case "json":
      return <TextArea said={said} text={draft.text} rows={4} hint="JSON" onText={type} />;
    case "text":
      if ((field.maxLength ?? 0) > 200) return <TextArea said={said} text={draft.text} rows={3} onText={type} />;
      return (
        <input
          {...said}
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

/** Not for whoever looks over a shoulder. */
const SECRET = /secret|token|passw(or)?d|api.?key|credential|private/i;

const inputTypes: Record<string, string> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

function TextArea(given: { said: Said; text: string; rows: number; hint?: string; onText: (text: string) => void }) {
  const { said, text, rows, hint, onText } = given;
  return (
    <textarea
      {...said}
      className="input"
      rows={rows}
      spellCheck={false}
      placeholder={hint}
      value={text}
      onChange={({ target }) => onText(target.value)}
    />
  );
}

/** Yes or no; or, for what can be but one value, whether it is sent. */
export function Switch(shown: Shown<"switch" | "fixed">) {
  const { field, draft, path, required, onDraft } = shown;
  const isFixed = field.kind === "fixed";
  const help = field.description ?? "";
  const { wrong, "aria-required": _, ...said } = useSaid(path, required, help !== "");
  return (
    <div className="field">
      <div className="field-head">
        <label className="check label">
          <input
            {...said}
            type="checkbox"
            checked={draft.as === "given" && (isFixed || draft.on)}
            onChange={({ target: { checked } }) =>
              onDraft({ ...draft, as: isFixed && !checked ? "left" : "given", on: checked })
            }
          />
          <span className="foreign">{inert(field.title ?? shown.name)}</span>
          {isFixed && <code className="foreign">{inert(JSON.stringify(field.value))}</code>}
        </label>
        <Nothing {...shown} />
      </div>
      {help && (
        <span id={`${said.id}-help`} className="help foreign">
          {inert(help)}
        </span>
      )}
      <Wrong id={said.id} wrong={wrong} />
    </div>
  );
}

export function Title({ name, path, field, required }: Pick<Shown, "name" | "path" | "field" | "required">) {
  // An element of a list has no name but its place.
  if (path.endsWith("]")) return <span className="number">{name}</span>;
  return (
    <>
      <span className="foreign">{inert(field.title ?? name)}</span>{" "}
      <span className="field-note">
        {field.title && field.title !== name && <code className="foreign">{inert(name)}</code>}{" "}
        {required ? "needed" : "optional"}
      </span>
    </>
  );
}

/** For what may be null: a way to say that it is. */
export function Nothing({ field, draft, onDraft, path }: Shown) {
  if (!field.nullable) return null;
  return (
    <label className="check small">
      <input
        type="checkbox"
        checked={draft.as === "none"}
        aria-label={`Nothing (null) for ${path}`}
        onChange={({ target }) => onDraft(target.checked ? { ...draft, as: "none" } : { ...draft, as: "given" })}
      />
      nothing (null)
    </label>
  );
}

export function Wrong({ id, wrong }: { id: string; wrong: Issue[] }) {
  if (wrong.length === 0) return null;
  return (
    <span id={`${id}-wrong`} className="wrong foreign">
      {wrong.map(({ message }) => inert(message)).join(". ")}
    </span>
  );
}

export function useSaid(path: string, required: boolean, hasHelp: boolean): Said & { wrong: Issue[] } {
  const id = useId();
  const wrong = useContext(Wrongs).filter((one) => one.path === path);
  const described = [hasHelp && `${id}-help`, wrong.length > 0 && `${id}-wrong`].filter(Boolean).join(" ");
  return {
    id,
    wrong,
    "aria-describedby": described || undefined,
    "aria-invalid": wrong.length > 0,
    "aria-required": required,
  };
}
