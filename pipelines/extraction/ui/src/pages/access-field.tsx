// How a private repository is read: with an installation of the GitHub App, or with an integration of GitLab or Bitbucket.
import { escapeLine } from "@stillwake/ui/format.ts";
import { Field, TextInput } from "@stillwake/ui/parts/form.tsx";
import { type Integration, PROVIDERS, type Project } from "../types.ts";

type Provider = Project["provider"];

/** The API's name of the field for this provider. */
export function accessFieldOf(provider: Provider): "installationId" | "integrationId" {
  return provider === "github" ? "installationId" : "integrationId";
}

/** An empty value: the repository is public. */
export function AccessField({
  provider,
  integrations,
  value,
  onValue,
  error,
}: {
  provider: Provider;
  /** Of all providers. */
  integrations: readonly Integration[];
  value: string;
  onValue: (value: string) => void;
  error: string | undefined;
}) {
  const name = accessFieldOf(provider);
  if (name === "installationId") {
    return (
      <Field
        name={name}
        label="Installation"
        help="For a private repository: the number at the end of the URL of the GitHub App's installation."
        error={error}
      >
        {(props) => <TextInput {...props} value={value} onValue={onValue} />}
      </Field>
    );
  }
  const matching = integrations.filter((integration) => integration.provider === provider);
  const help =
    matching.length > 0
      ? "For a private repository: the integration whose credential can read it."
      : `No integration of ${PROVIDERS[provider]} yet. Store a credential in Organization Settings below.`;
  return (
    <Field name={name} label="Integration" help={help} error={error}>
      {(props) => (
        <select {...props} value={value} onChange={(event) => onValue(event.target.value)}>
          <option value="">None</option>
          {value !== "" && matching.every(({ id }) => id !== value) && <option value={value}>Current</option>}
          {matching.map((integration) => (
            <option key={integration.id} value={integration.id}>
              {escapeLine(integration.name)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
