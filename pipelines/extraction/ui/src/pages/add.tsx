// A repository is added, and its first extraction starts at once. What the server refuses is said at the field it refuses.
import { useAct } from "@stillwake/kit/ui/ask.ts";
import { Field, fault, Text } from "@stillwake/kit/ui/parts/field.tsx";
import { Panel, Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { go } from "@stillwake/kit/ui/place.tsx";
import { type FormEvent, useState } from "react";
import { type OneIntegration, type OneProject, PROVIDERS } from "../nouns.ts";
import { AccessField, accessOf } from "./access-field.tsx";

const EMPTY = {
  provider: "github" as OneProject["provider"],
  repository: "",
  branch: "",
  packagePath: "",
  installationId: "",
  integrationId: "",
};

export function AddForm({ integrations }: { integrations: readonly OneIntegration[] }) {
  const [given, setGiven] = useState(EMPTY);
  const [isPrivate, setPrivate] = useState(false);
  const { act, busy, wrong } = useAct();
  const set = (name: keyof typeof EMPTY) => (value: string) => setGiven((before) => ({ ...before, [name]: value }));
  const access = accessOf(given.provider);
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
              // What opens one provider's door opens no other's.
              onChange={(event) => {
                const provider = event.target.value as OneProject["provider"];
                setGiven((before) => ({ ...before, provider, installationId: "", integrationId: "" }));
              }}
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
        <details
          className="fold"
          open={isPrivate || fault(wrong, access) !== undefined}
          onToggle={(event) => setPrivate(event.currentTarget.open)}
        >
          <summary>Private repository</summary>
          <AccessField
            provider={given.provider}
            integrations={integrations}
            value={given[access]}
            onValue={set(access)}
            wrong={fault(wrong, access)}
          />
        </details>
        <button type="submit" className="button" data-kind="main" disabled={busy}>
          Add and extract
        </button>
      </form>
    </Panel>
  );
}
