// The credentials of the organization's integrations: one is stored, replaced or removed. None is ever shown: what was typed is forgotten as soon as it is stored.
import { type Asked, useAct } from "@stillwake/kit/ui/ask.ts";
import { Field, fault, Text } from "@stillwake/kit/ui/parts/field.tsx";
import { Shown, Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { inLine } from "@stillwake/kit/ui/parts/words.ts";
import { type FormEvent, useState } from "react";
import { type Integrations, type OneIntegration, type OneProject, PROVIDERS } from "../nouns.ts";
import { ForGood } from "../parts/for-good.tsx";

/** `project`: only those of its provider, and its own one chosen. */
export function Credentials({ integrations, project }: { integrations: Asked<Integrations>; project?: OneProject }) {
  const whose = project ? PROVIDERS[project.provider] : "GitLab and Bitbucket";
  return (
    <Shown of={integrations}>
      {({ integrations: all }) => {
        const fitting = all.filter(({ provider }) => !project || provider === project.provider);
        return (
          <details className="fold">
            <summary>
              Credentials of {whose} ({fitting.length === 0 ? "none stored" : fitting.length})
            </summary>
            <Chosen all={fitting} project={project} onChanged={integrations.reload} />
          </details>
        );
      }}
    </Shown>
  );
}

function Chosen({
  all,
  project,
  onChanged,
}: {
  all: readonly OneIntegration[];
  project: OneProject | undefined;
  onChanged: () => void;
}) {
  const [chosen, setChosen] = useState(project?.integrationId ?? "");
  const [said, setSaid] = useState("");
  const integration = all.find(({ id }) => id === chosen);
  const choose = (id: string) => {
    setChosen(id);
    setSaid("");
  };
  const end = (sentence: string) => {
    setSaid(sentence);
    onChanged();
  };
  const only = project?.provider === "bitbucket" ? "bitbucket" : project && "gitlab";
  return (
    <>
      {all.length > 0 && (
        <div className="form">
          <Field label="Which integration">
            {(props) => (
              <select
                {...props}
                className="input"
                value={integration?.id ?? ""}
                onChange={(event) => choose(event.target.value)}
              >
                <option value="">A new one</option>
                {all.map(({ id, name, provider }) => (
                  <option key={id} value={id}>
                    {inLine(name)} ({PROVIDERS[provider]})
                  </option>
                ))}
              </select>
            )}
          </Field>
        </div>
      )}
      {integration ? (
        // What is typed for one is not for another.
        <ReplaceForm key={integration.id} integration={integration} onEnd={end} />
      ) : (
        <StoreForm only={only} onEnd={end} />
      )}
      <p className="note soft small" role="status">
        {said}
      </p>
    </>
  );
}

function StoreForm({
  only,
  onEnd,
}: {
  only: OneIntegration["provider"] | undefined;
  onEnd: (sentence: string) => void;
}) {
  const [provider, setProvider] = useState(only ?? "gitlab");
  const [name, setName] = useState("");
  const [credential, setCredential] = useState("");
  const { act, busy, wrong } = useAct();
  const store = async (event: FormEvent) => {
    event.preventDefault();
    if (!(await act("POST", "integrations", { provider, name, credential }))) return;
    setName("");
    setCredential("");
    onEnd("Stored. It can be chosen as the integration of a repository.");
  };
  const elsewhere = wrong && !["provider", "name", "credential"].includes(wrong.field ?? "");
  return (
    <form className="form" onSubmit={(event) => void store(event)} noValidate>
      {elsewhere && <Wrong error={wrong} />}
      {!only && (
        <Field label="Provider" wrong={fault(wrong, "provider")}>
          {(props) => (
            <select
              {...props}
              className="input"
              value={provider}
              onChange={(event) => setProvider(event.target.value as OneIntegration["provider"])}
            >
              <option value="gitlab">{PROVIDERS.gitlab}</option>
              <option value="bitbucket">{PROVIDERS.bitbucket}</option>
            </select>
          )}
        </Field>
      )}
      <Field label="Name of the integration" help="For people to know it by." wrong={fault(wrong, "name")}>
        {(props) => <Text {...props} value={name} onText={setName} required />}
      </Field>
      <Credential value={credential} onText={setCredential} wrong={fault(wrong, "credential")} />
      <div className="acts">
        <button type="submit" className="button" disabled={busy}>
          Store
        </button>
      </div>
    </form>
  );
}

function ReplaceForm({
  integration: { id, name },
  onEnd,
}: {
  integration: OneIntegration;
  onEnd: (sentence: string) => void;
}) {
  const [credential, setCredential] = useState("");
  const { act, busy, wrong } = useAct();
  const replace = async (event: FormEvent) => {
    event.preventDefault();
    if (!(await act("PUT", `integrations/${id}`, { credential }))) return;
    setCredential("");
    onEnd("Replaced. It counts from the next extraction on.");
  };
  const remove = async () => {
    if (await act("DELETE", `integrations/${id}`)) onEnd(`${inLine(name)} was removed.`);
  };
  return (
    <form className="form" onSubmit={(event) => void replace(event)} noValidate>
      {wrong && wrong.field !== "credential" && <Wrong error={wrong} />}
      <Credential value={credential} onText={setCredential} wrong={fault(wrong, "credential")} />
      <div className="acts">
        <button type="submit" className="button" disabled={busy}>
          Replace
        </button>
        <ForGood label="Remove this integration" sure="Remove for good" busy={busy} onSure={() => void remove()} />
      </div>
    </form>
  );
}

function Credential({
  value,
  onText,
  wrong,
}: {
  value: string;
  onText: (text: string) => void;
  wrong: ReturnType<typeof fault>;
}) {
  return (
    <Field label="New credential" help="A token that may read repositories. It is never shown again." wrong={wrong}>
      {(props) => (
        <input
          {...props}
          className="input"
          type="password"
          // Not the token of this page, which the browser may know.
          autoComplete="new-password"
          required
          value={value}
          onChange={(event) => onText(event.target.value)}
        />
      )}
    </Field>
  );
}
