// The form of a pipeline's input schema. form-model.ts derives the fields from the schema, form-draft.ts has what was
// typed, schema-field.tsx renders one field.
import { type ReactNode, useId } from "react";
import "../../css/schema-form.css";
import { escapeText } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import {
  chooseVariant,
  createDraft,
  type Draft,
  elements,
  filledDraft,
  type Issue,
  withElements,
} from "./form-draft.ts";
import type { Field, Member } from "./form-model.ts";
import { variantName } from "./form-text.ts";
import {
  Control,
  FieldErrors,
  FormIssues,
  LabelledField,
  NullCheckbox,
  type SchemaFieldProps,
  Switch,
  Title,
  useControl,
} from "./schema-field.tsx";

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
    <FormIssues.Provider value={issues}>
      <div className="schema-form">
        {field.kind === "group" ? (
          <Members members={field.members} path="input" draft={draft} onDraft={onDraft} />
        ) : (
          <SchemaField name="input" path="input" field={field} required draft={draft} onDraft={onDraft} />
        )}
      </div>
    </FormIssues.Provider>
  );
}

/** Whether an issue at this path is shown at a field. */
export function hasField(field: Field, path: string, at = "input"): boolean {
  if (path === at) return field.kind !== "group" || at !== "input";
  if (field.kind === "group")
    return field.members.some((member) => hasField(member.field, path, `${at}.${member.name}`));
  if (field.kind === "variants") return field.variants.some((variant) => hasField(variant, path, at));
  if (field.kind !== "list" || !path.startsWith(`${at}[`)) return false;
  return hasField(field.item, path, path.slice(0, path.indexOf("]", at.length) + 1));
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
  if (members.length === 0) return <p className="soft small">No input is needed.</p>;
  return members.map(
    ({ name, field, required }) =>
      // A required fixed value is sent without being shown.
      (field.kind !== "fixed" || !required) && (
        <SchemaField
          key={name}
          name={name}
          path={`${path}.${name}`}
          field={field}
          required={required}
          draft={draft.parts[name] ?? createDraft(field, required)}
          onDraft={(part) => onDraft({ ...draft, parts: { ...draft.parts, [name]: part } })}
        />
      ),
  );
}

function SchemaField(props: SchemaFieldProps) {
  const { field, draft, required, onDraft } = props;
  const isOpen = draft.as === "value";
  if (field.kind === "group" || field.kind === "list" || field.kind === "variants") {
    return (
      <Block {...props}>
        {isOpen && field.kind === "group" && (
          <Members members={field.members} path={props.path} draft={draft} onDraft={onDraft} />
        )}
        {isOpen && field.kind === "list" && <List {...props} field={field} />}
        {isOpen && field.kind === "variants" && <Variants {...props} field={field} />}
      </Block>
    );
  }
  if (field.kind === "switch" && draft.as !== "null" && (required || field.default !== undefined || field.nullable)) {
    return <Switch {...props} field={field} />;
  }
  if (field.kind === "fixed" && !required && draft.as !== "null") return <Switch {...props} field={field} />;
  return (
    <LabelledField {...props}>
      {(control) =>
        draft.as === "null" ? <span className="soft small">null is sent.</span> : <Control {...props} {...control} />
      }
    </LabelledField>
  );
}

function Block({ children, ...props }: SchemaFieldProps & { children: ReactNode }) {
  const { field, draft, required, path, name, onDraft } = props;
  const { errors, id } = useControl(path, required, false);
  const title = field.title ?? name;
  return (
    <fieldset className="block">
      <legend>
        <Title {...props} />
      </legend>
      {field.description && <p className="help soft small untrusted">{escapeText(field.description)}</p>}
      <NullCheckbox {...props} />
      {children}
      <FieldErrors id={id} errors={errors} />
      {!required && draft.as === "omitted" && (
        <div>
          <Button onClick={() => onDraft(filledDraft(field))}>Add {escapeText(title)}</Button>
        </div>
      )}
      {!required && draft.as === "value" && (
        <div>
          <Button kind="plain" onClick={() => onDraft({ ...draft, as: "omitted" })}>
            Remove {escapeText(title)}
          </Button>
        </div>
      )}
    </fieldset>
  );
}

function List({ field, draft, path, onDraft }: SchemaFieldProps<"list">) {
  const items = elements(draft);
  const put = (next: Draft[]) => onDraft(withElements(draft, next));
  return (
    <>
      {items.length > 0 && (
        <ol className="list-items">
          {items.map((item, index) => (
            <li key={index}>
              <SchemaField
                name={`${index + 1}`}
                path={`${path}[${index}]`}
                field={field.item}
                required
                draft={item}
                onDraft={(next) => put(items.with(index, next))}
              />
              <Button
                kind="plain"
                disabled={items.length <= field.min}
                aria-label={`Remove item ${index + 1} of ${path}`}
                onClick={() => put(items.toSpliced(index, 1))}
              >
                Remove
              </Button>
            </li>
          ))}
        </ol>
      )}
      <div>
        <Button disabled={items.length >= field.max} onClick={() => put([...items, createDraft(field.item, true)])}>
          Add item
        </Button>
      </div>
    </>
  );
}

function Variants({ field, draft, path, onDraft }: SchemaFieldProps<"variants">) {
  const id = useId();
  const chosen = field.variants[draft.chosen]!;
  return (
    <>
      <div className="field">
        <label htmlFor={id} className="hidden">
          Variant of {escapeText(path)}
        </label>
        <select
          id={id}
          className="input"
          value={draft.chosen}
          onChange={({ target }) => onDraft(chooseVariant(draft, field.variants, Number(target.value)))}
        >
          {field.variants.map((variant, index) => (
            <option key={index} value={index}>
              {variantName(variant, index)}
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
        <SchemaField
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
