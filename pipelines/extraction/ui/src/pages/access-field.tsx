// With whose rights a private repository is read: at GitHub those of an installation of the App, at GitLab and Bitbucket those of an integration.
import { Field, type fault, Text } from "@stillwake/kit/ui/parts/field.tsx";
import { inLine } from "@stillwake/kit/ui/parts/words.ts";
import { type OneIntegration, type OneProject, PROVIDERS } from "../nouns.ts";

type Provider = OneProject["provider"];

/** As the API calls what this provider wants. */
export function accessOf(provider: Provider): "installationId" | "integrationId" {
  return provider === "github" ? "installationId" : "integrationId";
}

/** "" is none: the repository is read as anybody may. */
export function AccessField({
  provider,
  integrations,
  value,
  onValue,
  wrong,
}: {
  provider: Provider;
  /** Of all providers. */
  integrations: readonly OneIntegration[];
  value: string;
  onValue: (value: string) => void;
  wrong: ReturnType<typeof fault>;
}) {
  if (accessOf(provider) === "installationId") {
    return (
      <Field
        label="Installation"
        help="If it is private: the number that the address of the GitHub App's installation ends with."
        wrong={wrong}
      >
        {(props) => <Text {...props} value={value} onText={onValue} />}
      </Field>
    );
  }
  const fitting = integrations.filter((one) => one.provider === provider);
  const help =
    fitting.length > 0
      ? "If it is private: the one whose credential may read it."
      : `There is none of ${PROVIDERS[provider]} yet. Store a credential in Organization Settings below.`;
  return (
    <Field label="Integration" help={help} wrong={wrong}>
      {(props) => (
        <select {...props} className="input" value={value} onChange={(event) => onValue(event.target.value)}>
          <option value="">None</option>
          {value !== "" && fitting.every(({ id }) => id !== value) && <option value={value}>The present one</option>}
          {fitting.map(({ id, name }) => (
            <option key={id} value={id}>
              {inLine(name)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
