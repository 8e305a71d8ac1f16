// Which repository is extracted, what of it and with whose rights, for the next extraction; and the way to be rid of it.
import { useAct, useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Field, fault, Text } from "@stillwake/kit/ui/parts/field.tsx";
import { Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { go } from "@stillwake/kit/ui/place.tsx";
import { type FormEvent, useState } from "react";
import type { Integrations, OneProject } from "../nouns.ts";
import { ForGood } from "../parts/for-good.tsx";
import { AccessField, accessOf } from "./access-field.tsx";
import { Credentials } from "./credentials.tsx";
import type { TabProps } from "./tabs.tsx";

export function ProjectSettings({ project, onChanged }: TabProps) {
  const access = accessOf(project.provider);
  const [repository, setRepository] = useState(project.repository);
  const [branch, setBranch] = useState(project.branch ?? "");
  const [packagePath, setPackagePath] = useState(project.packagePath);
  const [opener, setOpener] = useState(project[access] ?? "");
  const [saved, setSaved] = useState(false);
  const { act, busy, wrong } = useAct();
  // GitHub has installations instead.
  const integrations = useAnswer<Integrations>(project.provider === "github" ? null : "integrations");
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setSaved(false);
    const body = {
      repository,
      branch: branch.trim() || null,
      packagePath: packagePath.trim() || ".",
      [access]: opener.trim() || null,
    };
    const changed = await act<OneProject>("PATCH", `projects/${project.id}`, body);
    if (!changed) return;
    setRepository(changed.repository);
    setSaved(true);
    onChanged();
  };
  const remove = async () => {
    if (await act("DELETE", `projects/${project.id}`)) go("");
  };
  const elsewhere = wrong && !["repository", "branch", "packagePath", access].includes(wrong.field ?? "");
  return (
    <>
      <form className="form add" onSubmit={(event) => void save(event)} noValidate>
        {elsewhere && <Wrong error={wrong} />}
        <Field label="Full name" help="Such as acme/site." wrong={fault(wrong, "repository")}>
          {(props) => <Text {...props} value={repository} onText={setRepository} required />}
        </Field>
        <Field label="Branch" help="Left empty: the default one." wrong={fault(wrong, "branch")}>
          {(props) => <Text {...props} value={branch} onText={setBranch} />}
        </Field>
        <Field
          label="Package path"
          help='The folder with the manifest. "." is all of it.'
          wrong={fault(wrong, "packagePath")}
        >
          {(props) => <Text {...props} value={packagePath} onText={setPackagePath} />}
        </Field>
        <AccessField
          provider={project.provider}
          integrations={integrations.data?.integrations ?? []}
          value={opener}
          onValue={setOpener}
          wrong={fault(wrong, access)}
        />
        <button type="submit" className="button" disabled={busy}>
          Save
        </button>
        <p className="soft small" role="status">
          {saved ? "Saved. It counts from the next extraction on." : ""}
        </p>
      </form>
      {project.provider !== "github" && (
        <section className="part" aria-labelledby="organization">
          <h2 id="organization">Organization Settings</h2>
          <Credentials integrations={integrations} project={project} />
        </section>
      )}
      <div className="foot">
        <ForGood
          label="Delete this repository"
          sure="Delete for good"
          says="Everything that was found goes with it."
          busy={busy}
          onSure={() => void remove()}
        />
      </div>
    </>
  );
}
