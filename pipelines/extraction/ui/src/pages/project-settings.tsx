// What of a repository is extracted, for the next extraction; and the way to be rid of it.
import { useAct } from "@stillwake/kit/ui/ask.ts";
import { Field, fault, Text } from "@stillwake/kit/ui/parts/field.tsx";
import { Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { go } from "@stillwake/kit/ui/place.tsx";
import { type FormEvent, useState } from "react";
import type { TabProps } from "./tabs.tsx";

export function ProjectSettings({ project, onChanged }: TabProps) {
  const [branch, setBranch] = useState(project.branch ?? "");
  const [packagePath, setPackagePath] = useState(project.packagePath);
  const [saved, setSaved] = useState(false);
  const [sure, setSure] = useState(false);
  const { act, busy, wrong } = useAct();
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setSaved(false);
    const body = { branch: branch.trim() || null, packagePath: packagePath.trim() || "." };
    if (!(await act("PATCH", `projects/${project.id}`, body))) return;
    setSaved(true);
    onChanged();
  };
  const remove = async () => {
    if (await act("DELETE", `projects/${project.id}`)) go("");
  };
  const elsewhere = wrong && wrong.field !== "branch" && wrong.field !== "packagePath";
  return (
    <>
      <form className="form add" onSubmit={(event) => void save(event)} noValidate>
        {elsewhere && <Wrong error={wrong} />}
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
        <button type="submit" className="button" disabled={busy}>
          Save
        </button>
        <p className="soft small" role="status">
          {saved ? "Saved. It counts from the next extraction on." : ""}
        </p>
      </form>
      <div className="foot">
        {sure ? (
          <>
            <span>Everything that was found goes with it.</span>
            <button type="button" className="button" data-kind="danger" disabled={busy} onClick={() => void remove()}>
              Delete for good
            </button>
            <button type="button" className="button" onClick={() => setSure(false)}>
              Keep it
            </button>
          </>
        ) : (
          <button type="button" className="button" data-kind="danger" onClick={() => setSure(true)}>
            Delete this repository
          </button>
        )}
      </div>
    </>
  );
}
