// A repository is added, and its first extraction starts at once. What the server refuses is said at the field it refuses.
import { type FormEvent, useId, useState } from "react";
import { type Refused, useAct } from "../ask.ts";
import { PROVIDERS } from "../nouns.ts";
import { Panel, Wrong } from "../parts/panel.tsx";
import { inLine } from "../parts/words.ts";
import { go } from "../place.tsx";

const EMPTY = { provider: "github", repository: "", branch: "", packagePath: "" };

export function AddForm() {
  const [given, setGiven] = useState(EMPTY);
  const { act, busy, wrong } = useAct();
  const set = (name: keyof typeof EMPTY) => (value: string) => setGiven((before) => ({ ...before, [name]: value }));
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const said = Object.entries(given).filter(([, value]) => value.trim() !== "");
    const made = await act<{ id: string }>("POST", "projects", Object.fromEntries(said));
    if (made) go(`projects/${made.id}`);
  };
  const elsewhere = wrong && !(wrong.field && wrong.field in EMPTY);
  return (
    <Panel title="Add a repository">
      <form className="form add" onSubmit={(event) => void submit(event)} noValidate>
        {elsewhere && <Wrong error={wrong} />}
        <Field label="Provider" wrong={fault(wrong, "provider")}>
          {(props) => (
            <select
              {...props}
              className="input"
              value={given.provider}
              onChange={(event) => set("provider")(event.target.value)}
            >
              {Object.entries(PROVIDERS).map(([value, name]) => (
                <option key={value} value={value}>
                  {name}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Full name" help="Such as acme/site." wrong={fault(wrong, "repository")}>
          {(props) => <Text {...props} value={given.repository} onText={set("repository")} required />}
        </Field>
        <Field label="Branch" help="Left empty: the default one." wrong={fault(wrong, "branch")}>
          {(props) => <Text {...props} value={given.branch} onText={set("branch")} />}
        </Field>
        <Field
          label="Package path"
          help="The folder with the manifest. Left empty: all of it."
          wrong={fault(wrong, "packagePath")}
        >
          {(props) => <Text {...props} value={given.packagePath} onText={set("packagePath")} />}
        </Field>
        <button type="submit" className="button" data-kind="main" disabled={busy}>
          Add and extract
        </button>
      </form>
    </Panel>
  );
}

interface ControlProps {
  id: string;
  "aria-invalid": boolean;
  "aria-describedby"?: string;
}

export function Field({
  label,
  help,
  wrong,
  children,
}: {
  label: string;
  help?: string;
  wrong?: string | undefined;
  children: (props: ControlProps) => React.ReactNode;
}) {
  const id = useId();
  const described = wrong ? `${id}-wrong` : help ? `${id}-help` : undefined;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-invalid": wrong !== undefined, ...(described && { "aria-describedby": described }) })}
      {wrong && (
        <span id={`${id}-wrong`} className="wrong foreign" role="alert">
          {inLine(wrong)}
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
}: ControlProps & { value: string; onText: (text: string) => void; required?: boolean }) {
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
export function fault(wrong: Refused | undefined, field: string): string | undefined {
  if (wrong?.field !== field) return undefined;
  return `This ${wrong.message.replace(/^\w+: /, "")}`;
}
