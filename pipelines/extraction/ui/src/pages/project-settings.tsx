// The settings of a repository for its next extraction, and the button that deletes it.
import { useApiQuery, useSubmit } from "@stillwake/ui/api/query.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Field, fieldError, TextInput } from "@stillwake/ui/parts/form.tsx";
import { ErrorCallout } from "@stillwake/ui/parts/panel.tsx";
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import type { Integration, Project } from "../types.ts";
import { AccessField, accessFieldOf } from "./access-field.tsx";
import { Credentials } from "./credentials.tsx";
import type { TabProps } from "./tabs.tsx";

export function ProjectSettings({ project }: TabProps) {
  const accessField = accessFieldOf(project.provider);
  const [repository, setRepository] = useState(project.repository);
  const [branch, setBranch] = useState(project.branch ?? "");
  const [packagePath, setPackagePath] = useState(project.packagePath);
  const [access, setAccess] = useState(project[accessField] ?? "");
  const [saved, setSaved] = useState(false);
  const [, navigate] = useLocation();
  const { submit, busy, error } = useSubmit();
  const hasIntegrations = project.provider !== "github";
  const integrations = useApiQuery<{ integrations: Integration[] }>("api/integrations", {
    once: true,
    enabled: hasIntegrations,
  });
  const path = `api/projects/${project.id}`;
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setSaved(false);
    const body = {
      repository,
      branch: branch.trim() || null,
      packagePath: packagePath.trim() || ".",
      [accessField]: access.trim() || null,
    };
    const changed = await submit<Project>({ method: "PATCH", path, body });
    if (!changed) return;
    setRepository(changed.repository);
    setSaved(true);
  };
  const remove = async () => {
    if (await submit({ method: "DELETE", path })) navigate("/");
  };
  const fields = ["repository", "branch", "packagePath", accessField];
  return (
    <>
      <form className="form columns" onSubmit={(event) => void save(event)} noValidate>
        {error && !fields.includes(error.field ?? "") && <ErrorCallout error={error} />}
        <Field
          name="repository"
          label="Full name"
          help="For example acme/site."
          error={fieldError(error, "repository")}
        >
          {(props) => <TextInput {...props} value={repository} onValue={setRepository} required />}
        </Field>
        <Field name="branch" label="Branch" help="Empty: the default branch." error={fieldError(error, "branch")}>
          {(props) => <TextInput {...props} value={branch} onValue={setBranch} />}
        </Field>
        <Field
          name="packagePath"
          label="Package path"
          help='The folder with the manifest. ".": the whole repository.'
          error={fieldError(error, "packagePath")}
        >
          {(props) => <TextInput {...props} value={packagePath} onValue={setPackagePath} />}
        </Field>
        <AccessField
          provider={project.provider}
          integrations={integrations.data?.integrations ?? []}
          value={access}
          onValue={setAccess}
          error={fieldError(error, accessField)}
        />
        <Button type="submit" disabled={busy}>
          Save
        </Button>
        <p className="soft small" role="status">
          {saved ? "Saved. It is used from the next extraction on." : ""}
        </p>
      </form>
      {hasIntegrations && (
        <section className="subsection" aria-labelledby="organization">
          <h2 id="organization">Organization Settings</h2>
          <Credentials integrations={integrations} project={project} />
        </section>
      )}
      <div className="foot">
        <ConfirmButton
          label="Delete this repository"
          title="Delete this repository?"
          text="All its results are deleted as well. This cannot be undone."
          confirm="Delete"
          disabled={busy}
          onConfirm={remove}
        />
      </div>
    </>
  );
}
