// The form that ranks a repository. The server accepts several ways to write its name or URL.
import { useSubmit } from "@stillwake/ui/api/query.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, fieldError, TextInput } from "@stillwake/ui/parts/form.tsx";
import { ErrorCallout, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";

export function RankForm() {
  const [url, setUrl] = useState("");
  const [, navigate] = useLocation();
  const { submit, busy, error } = useSubmit();
  const rank = async (event: FormEvent) => {
    event.preventDefault();
    const created = await submit<{ id: string }>({ path: "api/leaderboard", body: { url: url.trim() } });
    if (created) navigate(`/boards/${created.id}`);
  };
  return (
    <Panel title="New leaderboard">
      <form className="form rank" onSubmit={(event) => void rank(event)} noValidate>
        {error && error.field !== "url" && <ErrorCallout error={error} />}
        <Field
          name="url"
          label="Repository"
          help="Its URL on GitHub, or its full name, for example acme/site."
          error={fieldError(error, "url")}
        >
          {(props) => (
            <TextInput {...props} value={url} onValue={setUrl} required placeholder="https://github.com/acme/site" />
          )}
        </Field>
        <Button type="submit" kind="main" disabled={busy}>
          Rank
        </Button>
      </form>
    </Panel>
  );
}
