// The form that adds a repository and starts its first extraction.
import { useSubmit } from "@stillwake/ui/api/query.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, fieldError } from "@stillwake/ui/parts/form.tsx";
import { ErrorCallout, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import { type Integration, PROVIDERS, type Project } from "../types.ts";
import { AccessField, accessFieldOf } from "./access-field.tsx";
import { RepositoryFields } from "./repository-fields.tsx";

const EMPTY = {
  provider: "github" as Project["provider"],
  repository: "",
  branch: "",
  packagePath: "",
  installationId: "",
  integrationId: "",
};

export function AddForm({ integrations }: { integrations: readonly Integration[] }) {
  const [values, setValues] = useState(EMPTY);
  const [isPrivate, setPrivate] = useState(false);
  const [, navigate] = useLocation();
  const { submit, busy, error } = useSubmit();
  const set = (name: keyof typeof EMPTY) => (value: string) => setValues((before) => ({ ...before, [name]: value }));
  const accessField = accessFieldOf(values.provider);
  const add = async (event: FormEvent) => {
    event.preventDefault();
    const body = Object.fromEntries(Object.entries(values).filter(([, value]) => value.trim() !== ""));
    const created = await submit<{ id: string }>({ path: "api/projects", body });
    if (created) navigate(`/projects/${created.id}`);
  };
  return (
    <Panel title="Add a repository">
      <form className="form columns" onSubmit={(event) => void add(event)} noValidate>
        {error && !(error.field && error.field in EMPTY) && <ErrorCallout error={error} />}
        <Field name="provider" label="Provider" error={fieldError(error, "provider")}>
          {(props) => (
            <select
              {...props}
              value={values.provider}
              // An installation or integration of one provider is not valid for another.
              onChange={(event) => {
                const provider = event.target.value as Project["provider"];
                setValues((before) => ({ ...before, provider, installationId: "", integrationId: "" }));
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
        <RepositoryFields values={values} onValue={set} wholeRepository="Empty" error={error} />
        <details
          className="collapsible"
          open={isPrivate || fieldError(error, accessField) !== undefined}
          onToggle={(event) => setPrivate(event.currentTarget.open)}
        >
          <summary>Private repository</summary>
          <AccessField
            provider={values.provider}
            integrations={integrations}
            value={values[accessField]}
            onValue={set(accessField)}
            error={fieldError(error, accessField)}
          />
        </details>
        <Button type="submit" kind="main" disabled={busy}>
          Add and extract
        </Button>
      </form>
      <p className="soft small">
        The names and versions of its packages are looked up at OSV.dev, unless the workers have dep-scan or local
        advisories, or the operator turned it off.
      </p>
    </Panel>
  );
}
