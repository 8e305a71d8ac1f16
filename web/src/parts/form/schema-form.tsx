// A form made of a pipeline's schema: form-model.ts says which fields there are, form-draft.ts what was typed into them, form-control.tsx draws one. What
// the server has against a field stands beside it.
import { type ReactNode, useId } from "react";
import "../../look/schema-form.css";
import { Button } from "../button.tsx";
import { inert } from "../words.ts";
import { Control, Labelled, Nothing, type Shown, Switch, Title, useSaid, Wrong, Wrongs } from "./form-control.tsx";
import { begin, blank, choose, type Draft, elements, type Issue, withElements } from "./form-draft.ts";
import type { Field, Member } from "./form-model.ts";
import { variantName } from "./form-words.ts";

export function SchemaForm({
  field,
  draft,
  issues,
  onDraft,
}: {
  field: Field;
  draft: Draft;
  issues: readonly Issue[];
  onDraft: (draft: Draft) => void;
}) {
  return (
    <Wrongs.Provider value={issues}>
      <div className="schema-form">
        {field.kind === "group" ? (
          <Members members={field.members} path="input" draft={draft} onDraft={onDraft} />
        ) : (
          <One name="input" path="input" field={field} required draft={draft} onDraft={onDraft} />
        )}
      </div>
    </Wrongs.Provider>
  );
}

/** Whether there is a field at which the issue is shown. */
export function hasPlace(field: Field, path: string, at = "input"): boolean {
  if (path === at) return field.kind !== "group" || at !== "input";
  if (field.kind === "group") return field.members.some((one) => hasPlace(one.field, path, `${at}.${one.name}`));
  if (field.kind === "variants") return field.variants.some((one) => hasPlace(one, path, at));
  if (field.kind !== "list" || !path.startsWith(`${at}[`)) return false;
  return hasPlace(field.item, path, path.slice(0, path.indexOf("]", at.length) + 1));
}

function Members({
  members,
  path,
  draft,
  onDraft,
}: {
  members: Member[];
  path: string;
  draft: Draft;
  onDraft: (draft: Draft) => void;
}) {
  if (members.length === 0) return <p className="soft small">Nothing is asked for here.</p>;
  return members.map(
    ({ name, field, required }) =>
      // What can be but one value is sent, and nobody has to see it.
      (field.kind !== "fixed" || !required) && (
        <One
          key={name}
          name={name}
          path={`${path}.${name}`}
          field={field}
          required={required}
          draft={draft.parts[name] ?? begin(field, required)}
          onDraft={(part) => onDraft({ ...draft, parts: { ...draft.parts, [name]: part } })}
        />
      ),
  );
}

function One(shown: Shown) {
  const { field, draft, required, onDraft } = shown;
  const isOpen = draft.as === "given";
  if (field.kind === "group" || field.kind === "list" || field.kind === "variants") {
    return (
      <Block {...shown}>
        {isOpen && field.kind === "group" && (
          <Members members={field.members} path={shown.path} draft={draft} onDraft={onDraft} />
        )}
        {isOpen && field.kind === "list" && <List {...shown} field={field} />}
        {isOpen && field.kind === "variants" && <Variants {...shown} field={field} />}
      </Block>
    );
  }
  if (field.kind === "switch" && draft.as !== "none" && (required || field.default !== undefined || field.nullable)) {
    return <Switch {...shown} field={field} />;
  }
  if (field.kind === "fixed" && !required && draft.as !== "none") return <Switch {...shown} field={field} />;
  return (
    <Labelled {...shown}>
      {(said) =>
        draft.as === "none" ? (
          <span className="soft small">Nothing (null) is sent.</span>
        ) : (
          <Control {...shown} {...said} />
        )
      }
    </Labelled>
  );
}

function Block({ children, ...shown }: Shown & { children: ReactNode }) {
  const { field, draft, required, path, name, onDraft } = shown;
  const { wrong, id } = useSaid(path, required, false);
  const title = field.title ?? name;
  return (
    <fieldset className="block">
      <legend>
        <Title {...shown} />
      </legend>
      {field.description && <p className="help soft small foreign">{inert(field.description)}</p>}
      <Nothing {...shown} />
      {children}
      <Wrong id={id} wrong={wrong} />
      {!required && draft.as === "left" && (
        <div>
          <Button onClick={() => onDraft(blank(field))}>Add {inert(title)}</Button>
        </div>
      )}
      {!required && draft.as === "given" && (
        <div>
          <Button kind="plain" onClick={() => onDraft({ ...draft, as: "left" })}>
            Leave {inert(title)} out
          </Button>
        </div>
      )}
    </fieldset>
  );
}

function List({ field, draft, path, onDraft }: Shown<"list">) {
  const items = elements(draft);
  const put = (next: Draft[]) => onDraft(withElements(draft, next));
  return (
    <>
      {items.length > 0 && (
        <ol className="list-items">
          {items.map((item, place) => (
            <li key={place}>
              <One
                name={`${place + 1}`}
                path={`${path}[${place}]`}
                field={field.item}
                required
                draft={item}
                onDraft={(next) => put(items.with(place, next))}
              />
              <Button
                kind="plain"
                disabled={items.length <= field.min}
                aria-label={`Remove ${place + 1} of ${path}`}
                onClick={() => put(items.toSpliced(place, 1))}
              >
                Remove
              </Button>
            </li>
          ))}
        </ol>
      )}
      <div>
        <Button disabled={items.length >= field.max} onClick={() => put([...items, begin(field.item, true)])}>
          Add one
        </Button>
      </div>
    </>
  );
}

function Variants({ field, draft, path, onDraft }: Shown<"variants">) {
  const id = useId();
  const chosen = field.variants[draft.chosen]!;
  return (
    <>
      <div className="field">
        <label htmlFor={id} className="hidden">
          Which form of {inert(path)}
        </label>
        <select
          id={id}
          className="input"
          value={draft.chosen}
          onChange={({ target }) => onDraft(choose(draft, field.variants, Number(target.value)))}
        >
          {field.variants.map((variant, place) => (
            <option key={place} value={place}>
              {variantName(variant, place)}
            </option>
          ))}
        </select>
      </div>
      {chosen.kind === "group" ? (
        <Members
          members={chosen.members}
          path={path}
          draft={draft.parts.it!}
          onDraft={(it) => onDraft({ ...draft, parts: { it } })}
        />
      ) : (
        <One
          name="value"
          path={path}
          field={chosen}
          required
          draft={draft.parts.it!}
          onDraft={(it) => onDraft({ ...draft, parts: { it } })}
        />
      )}
    </>
  );
}
