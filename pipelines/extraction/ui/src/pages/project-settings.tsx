// The settings of a repository for its next extraction, and the button that deletes it.
import { useApiQuery, useSubmit } from "@stillwake/ui/api/query.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { fieldError } from "@stillwake/ui/parts/form.tsx";
import { ErrorCallout } from "@stillwake/ui/parts/panel.tsx";
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import type { Integration, Project } from "../types.ts";
import { AccessField, accessFieldOf } from "./access-field.tsx";
import { Credentials } from "./credentials.tsx";
import { RepositoryFields, type RepositoryValues } from "./repository-fields.tsx";
import type { TabProps } from "./tabs.tsx";

export function ProjectSettings({ project }: TabProps) {
  const accessField = accessFieldOf(project.provider);
  const { repository, branch, packagePath } = project;
  const [values, setValues] = useState({ repository, branch: branch ?? "", packagePath });
  const [access, setAccess] = useState(project[accessField] ?? "");
  const [saved, setSaved] = useState(false);
  const [, navigate] = useLocation();
  const { submit, busy, error } = useSubmit();
  const hasIntegrations = project.provider !== "github";
  const integrations = useApiQuery<{ integrations: Integration[] }>("api/integrations", {
    once: true,
    enabled: hasIntegrations,
  });
  const set = (name: keyof RepositoryValues) => (value: string) =>
    setValues((before) => ({ ...before, [name]: value }));
  const path = `api/projects/${project.id}`;
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setSaved(false);
    const body = {
      repository: values.repository,
      branch: values.branch.trim() || null,
      packagePath: values.packagePath.trim() || ".",
      [accessField]: access.trim() || null,
    };
    const changed = await submit<Project>({ method: "PATCH", path, body });
    if (!changed) return;
    set("repository")(changed.repository);
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
        <RepositoryFields values={values} onValue={set} wholeRepository='"."' error={error} />
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
      <section className="subsection" aria-labelledby="sent">
        <h2 id="sent">What is sent to others</h2>
        <p>
          Workers without dep-scan and without their own advisories ask <strong>OSV.dev</strong> for known
          vulnerabilities. They send the names and versions of packages, and nothing else of the repository: no code, no
          repository name. Packages from another source are left out, but a private package may look like a public one:
          operators exclude names with <code>EXTRACTION_OSV_PRIVATE</code>, and turn it off with{" "}
          <code>EXTRACTION_OSV_URL=none</code>.
        </p>
      </section>
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
