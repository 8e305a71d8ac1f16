// The options of a job: key, delay, priority, attempts and so on. Collapsed, because most jobs need none.

import { plural } from "@stillwake/ui/format.ts";
import { Field } from "@stillwake/ui/parts/form.tsx";
import { useContext } from "react";
import { CurrentUser } from "../../api/permissions.ts";
import type { api } from "../../api/resources.ts";
import type { Issue } from "../../parts/form/form-draft.ts";

const names = ["key", "tenant", "delay", "priority", "attempts", "idempotencyKey", "webhook"] as const;
type OptionName = (typeof names)[number];
type OptionTexts = Record<OptionName, string>;

export const optionNames: ReadonlySet<string> = new Set(names);
export const emptyOptions = Object.fromEntries(names.map((name) => [name, ""])) as OptionTexts;

const labels: Record<OptionName, string> = {
  key: "Key",
  tenant: "Tenant",
  delay: "Delay",
  priority: "Priority",
  attempts: "Attempts",
  idempotencyKey: "Idempotency key",
  webhook: "Webhook",
};

export function EnqueueOptions({
  pipeline,
  options,
  issues,
  onOptions,
}: {
  pipeline: api.Pipeline;
  options: OptionTexts;
  issues: readonly Issue[];
  onOptions: (options: OptionTexts) => void;
}) {
  const { me } = useContext(CurrentUser);
  const { keyLimit, onConflict, maxAttempts, priority } = pipeline;
  const help: Record<OptionName, string> = {
    key: `${plural(keyLimit, "job")} at once per key; ${conflicts[onConflict]}. A key function in your code does not apply here.`,
    tenant: "The tenant that owns the job.",
    delay: "For example 30s, 5m or 1h30m.",
    priority: `From −1000 to 1000; higher starts sooner. Default: ${priority}.`,
    attempts: `Default: ${maxAttempts}.`,
    idempotencyKey: "A second job with the same key is not created.",
    webhook: "A URL that is notified when the job ends, or the name of an endpoint.",
  };
  const hasError = issues.some(({ path }) => optionNames.has(path));
  return (
    <details className="panel more" open={hasError || undefined}>
      <summary className="panel-head">
        <h2>More options</h2>
        <span className="soft small">{summarize(options)}</span>
      </summary>
      <div className="panel-body options">
        {names
          .filter((name) => name !== "tenant" || me.tenant === null)
          .map((name) => (
            <Field
              key={name}
              name={name}
              label={labels[name]}
              help={help[name]}
              error={issues.find(({ path }) => path === name)?.message}
            >
              {(props) => (
                <input
                  {...props}
                  autoComplete="off"
                  spellCheck={false}
                  inputMode={name === "attempts" ? "numeric" : undefined}
                  value={options[name]}
                  onChange={({ target }) => onOptions({ ...options, [name]: target.value })}
                />
              )}
            </Field>
          ))}
      </div>
    </details>
  );
}

const conflicts: Record<api.Pipeline["onConflict"], string> = {
  join: "another job returns the existing one",
  wait: "another job waits",
  replace: "another job replaces the existing one",
  reject: "another job is rejected",
};

function summarize(options: OptionTexts): string {
  const set = names.filter((name) => options[name].trim() !== "").map((name) => labels[name].toLowerCase());
  return set.length > 0 ? `Set: ${set.join(", ")}` : "Key, delay, priority, attempts, webhook";
}

/** The options for the API. Numbers are checked here, because the server's error would not name the field. */
export function readOptions(options: OptionTexts): { body: object; issues: Issue[] } {
  const body: Record<string, unknown> = {};
  const issues: Issue[] = [];
  const readInteger = (name: OptionName, text: string, min: number) => {
    const value = Number(text);
    if (Number.isInteger(value) && value >= min && value <= 1000) body[name] = value;
    else issues.push({ path: name, message: `This must be a whole number from ${min} to 1000` });
  };
  for (const name of names) {
    const text = options[name].trim();
    if (text === "") continue;
    if (name === "priority") readInteger(name, text, -1000);
    else if (name === "attempts") readInteger(name, text, 1);
    else if (name === "webhook" && !/^https?:/i.test(text)) body.webhook = { endpoint: text };
    else if (name !== "webhook" && text.length > 500) issues.push({ path: name, message: "At most 500 characters" });
    else body[name] = text;
  }
  return { body, issues };
}
