// One field for whatever people paste: the server knows the ways to write a repository. What it refuses is said at the field.
import { useAct } from "@stillwake/kit/ui/ask.ts";
import { Field, fault, Text } from "@stillwake/kit/ui/parts/field.tsx";
import { Panel, Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { go } from "@stillwake/kit/ui/place.tsx";
import { type FormEvent, useState } from "react";

export function RankForm() {
  const [url, setUrl] = useState("");
  const { act, busy, wrong } = useAct();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const made = await act<{ id: string }>("POST", "leaderboard", { url: url.trim() });
    if (made) go(`boards/${made.id}`);
  };
  return (
    <Panel title="New leaderboard">
      <form className="form rank" onSubmit={(event) => void submit(event)} noValidate>
        {wrong && wrong.field !== "url" && <Wrong error={wrong} />}
        <Field
          label="Repository"
          help="Its address on GitHub, or its full name, such as acme/site."
          wrong={fault(wrong, "url")}
        >
          {(props) => (
            <Text {...props} value={url} onText={setUrl} required placeholder="https://github.com/acme/site" />
          )}
        </Field>
        <button type="submit" className="button" data-kind="main" disabled={busy}>
          Rank
        </button>
      </form>
    </Panel>
  );
}
