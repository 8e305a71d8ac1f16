// What most jobs do without: when, how often, under which key, and whom to tell.
import { useContext } from "react";
import type { nouns } from "../../api/nouns.ts";
import { Who } from "../../api/who.ts";
import { Field } from "../../parts/form/form.tsx";
import type { Issue } from "../../parts/form/form-draft.ts";

const names = ["key", "tenant", "delay", "priority", "attempts", "idempotencyKey", "webhook"] as const;
type Name = (typeof names)[number];
type GivenOptions = Record<Name, string>;

export const optionNames: ReadonlySet<string> = new Set(names);
export const noOptions = Object.fromEntries(names.map((name) => [name, ""])) as GivenOptions;

const titles: Record<Name, string> = {
  key: "Key",
  tenant: "Tenant",
  delay: "Delay",
  priority: "Priority",
  attempts: "Attempts",
  idempotencyKey: "Idempotency key",
  webhook: "Webhook",
};

export function Options({
  pipeline,
  options,
  issues,
  onOptions,
}: {
  pipeline: nouns.Pipeline;
  options: GivenOptions;
  issues: readonly Issue[];
  onOptions: (options: GivenOptions) => void;
}) {
  const { me } = useContext(Who);
  const { keyLimit, onConflict, maxAttempts, priority } = pipeline;
  const help: Record<Name, string> = {
    key: `${keyLimit} at once of one key; ${conflicts[onConflict]}. It is not made from the input here, as your code may do it.`,
    tenant: "Whose job it is.",
    delay: "Such as 30s, 5m or 1h30m.",
    priority: `From −1000 to 1000, the higher the sooner. Left out, it is ${priority}.`,
    attempts: `Left out, they are ${maxAttempts}.`,
    idempotencyKey: "Enqueued twice with the same, it is one job.",
    webhook: "The URL that is told when the job has ended, or the name of an endpoint.",
  };
  // What is wrong must be seen.
  const isWrong = issues.some(({ path }) => optionNames.has(path));
  return (
    <details className="panel more" open={isWrong || undefined}>
      <summary className="panel-head">
        <h2>More options</h2>
        <span className="soft small">{said(options)}</span>
      </summary>
      <div className="panel-body options">
        {names
          .filter((name) => name !== "tenant" || me.tenant === null)
          .map((name) => (
            <Field
              key={name}
              name={name}
              label={titles[name]}
              help={help[name]}
              wrong={issues.find(({ path }) => path === name)?.message}
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

const conflicts: Record<nouns.Pipeline["onConflict"], string> = {
  join: "a second one is the first",
  wait: "a second one waits",
  replace: "a second one takes the place of the first",
  reject: "a second one is refused",
};

function said(options: GivenOptions): string {
  const given = names.filter((name) => options[name].trim() !== "").map((name) => titles[name].toLowerCase());
  return given.length > 0 ? `Given: ${given.join(", ")}` : "Key, delay, priority, attempts, webhook";
}

/** As the server takes them; numbers are looked at here, because it would only say that the body is not valid. */
export function sayOptions(options: GivenOptions): { body: object; issues: Issue[] } {
  const body: Record<string, unknown> = {};
  const issues: Issue[] = [];
  const whole = (name: Name, text: string, least: number) => {
    const value = Number(text);
    if (Number.isInteger(value) && value >= least && value <= 1000) body[name] = value;
    else issues.push({ path: name, message: `This must be a whole number from ${least} to 1000` });
  };
  for (const name of names) {
    const text = options[name].trim();
    if (text === "") continue;
    if (name === "priority") whole(name, text, -1000);
    else if (name === "attempts") whole(name, text, 1);
    else if (name === "webhook" && !/^https?:/i.test(text)) body.webhook = { endpoint: text };
    else if (name !== "webhook" && text.length > 500) issues.push({ path: name, message: "At most 500 characters" });
    else body[name] = text;
  }
  return { body, issues };
}
