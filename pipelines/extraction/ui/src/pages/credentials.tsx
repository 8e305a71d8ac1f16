// Stores, replaces and removes the credentials of integrations. A credential is never shown, and the input is cleared
// as soon as it is stored.
import { useSubmit } from "@stillwake/ui/api/query.ts";
import type { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeLine } from "@stillwake/ui/format.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Field, fieldError, TextInput } from "@stillwake/ui/parts/form.tsx";
import { ErrorCallout, Loaded } from "@stillwake/ui/parts/panel.tsx";
import type { UseQueryResult } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { type Integration, PROVIDERS, type Project } from "../types.ts";

export type IntegrationsQuery = UseQueryResult<{ integrations: Integration[] }, RequestError>;

/** `project`: only integrations of its provider, with its own selected. */
export function Credentials({ integrations, project }: { integrations: IntegrationsQuery; project?: Project }) {
  const providers = project ? PROVIDERS[project.provider] : "GitLab and Bitbucket";
  return (
    <Loaded query={integrations}>
      {({ integrations: all }) => {
        const matching = all.filter(({ provider }) => !project || provider === project.provider);
        return (
          <details className="collapsible">
            <summary>
              Credentials of {providers} ({matching.length === 0 ? "none stored" : matching.length})
            </summary>
            <CredentialForms integrations={matching} project={project} />
          </details>
        );
      }}
    </Loaded>
  );
}

function CredentialForms({
  integrations,
  project,
}: {
  integrations: readonly Integration[];
  project: Project | undefined;
}) {
  const [selected, setSelected] = useState(project?.integrationId ?? "");
  const [status, setStatus] = useState("");
  const integration = integrations.find(({ id }) => id === selected);
  const select = (id: string) => {
    setSelected(id);
    setStatus("");
  };
  const provider = project?.provider === "bitbucket" ? "bitbucket" : project && "gitlab";
  return (
    <>
      {integrations.length > 0 && (
        <div className="form">
          <Field name="integration" label="Which integration">
            {(props) => (
              <select {...props} value={integration?.id ?? ""} onChange={(event) => select(event.target.value)}>
                <option value="">New integration</option>
                {integrations.map(({ id, name, provider }) => (
                  <option key={id} value={id}>
                    {escapeLine(name)} ({PROVIDERS[provider]})
                  </option>
                ))}
              </select>
            )}
          </Field>
        </div>
      )}
      {integration ? (
        // The key: an input for one integration is not for another.
        <ReplaceForm key={integration.id} integration={integration} onDone={setStatus} />
      ) : (
        <StoreForm provider={provider} onDone={setStatus} />
      )}
      <p className="note soft small" role="status">
        {status}
      </p>
    </>
  );
}

/** `provider`: the only one to choose from. */
function StoreForm({
  provider: fixedProvider,
  onDone,
}: {
  provider: Integration["provider"] | undefined;
  onDone: (status: string) => void;
}) {
  const [provider, setProvider] = useState(fixedProvider ?? "gitlab");
  const [name, setName] = useState("");
  const [credential, setCredential] = useState("");
  const { submit, busy, error } = useSubmit();
  const store = async (event: FormEvent) => {
    event.preventDefault();
    if (!(await submit({ path: "api/integrations", body: { provider, name, credential } }))) return;
    setName("");
    setCredential("");
    onDone("Stored. It can be selected as the integration of a repository.");
  };
  return (
    <form className="form" onSubmit={(event) => void store(event)} noValidate>
      {error && !["provider", "name", "credential"].includes(error.field ?? "") && <ErrorCallout error={error} />}
      {!fixedProvider && (
        <Field name="provider" label="Provider" error={fieldError(error, "provider")}>
          {(props) => (
            <select
              {...props}
              value={provider}
              onChange={(event) => setProvider(event.target.value as Integration["provider"])}
            >
              <option value="gitlab">{PROVIDERS.gitlab}</option>
              <option value="bitbucket">{PROVIDERS.bitbucket}</option>
            </select>
          )}
        </Field>
      )}
      <Field name="name" label="Name of the integration" error={fieldError(error, "name")}>
        {(props) => <TextInput {...props} value={name} onValue={setName} required />}
      </Field>
      <CredentialField value={credential} onValue={setCredential} error={fieldError(error, "credential")} />
      <div className="actions">
        <Button type="submit" disabled={busy}>
          Store
        </Button>
      </div>
    </form>
  );
}

function ReplaceForm({
  integration: { id, name },
  onDone,
}: {
  integration: Integration;
  onDone: (status: string) => void;
}) {
  const [credential, setCredential] = useState("");
  const { submit, busy, error } = useSubmit();
  const replace = async (event: FormEvent) => {
    event.preventDefault();
    if (!(await submit({ method: "PUT", path: `api/integrations/${id}`, body: { credential } }))) return;
    setCredential("");
    onDone("Replaced. It is used from the next extraction on.");
  };
  const remove = async () => {
    const removed = await submit({ method: "DELETE", path: `api/integrations/${id}` });
    if (removed) onDone(`${escapeLine(name)} was removed.`);
  };
  return (
    <form className="form" onSubmit={(event) => void replace(event)} noValidate>
      {error && error.field !== "credential" && <ErrorCallout error={error} />}
      <CredentialField value={credential} onValue={setCredential} error={fieldError(error, "credential")} />
      <div className="actions">
        <Button type="submit" disabled={busy}>
          Replace
        </Button>
        <ConfirmButton
          label="Remove this integration"
          title={`Remove ${escapeLine(name)}?`}
          text="Its credential is deleted. This cannot be undone."
          confirm="Remove"
          disabled={busy}
          onConfirm={remove}
        />
      </div>
    </form>
  );
}

function CredentialField({
  value,
  onValue,
  error,
}: {
  value: string;
  onValue: (text: string) => void;
  error: string | undefined;
}) {
  return (
    <Field
      name="credential"
      label="New credential"
      help="A token that can read repositories. It is never shown again."
      error={error}
    >
      {(props) => (
        <input
          {...props}
          type="password"
          // The browser must not fill in the token of this page.
          autoComplete="new-password"
          required
          value={value}
          onChange={(event) => onValue(event.target.value)}
        />
      )}
    </Field>
  );
}
