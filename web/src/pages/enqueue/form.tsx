// What the job is given: in fields made of the schema, or in JSON. The server says whether it is right; what it has against it stands at the fields.
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { call, Refused } from "../../api/call.ts";
import type { nouns } from "../../api/nouns.ts";
import { type Again, againFor } from "../../parts/again.ts";
import { Button } from "../../parts/button.tsx";
import { begin, draftOf, type Issue, saidBy } from "../../parts/form/form-draft.ts";
import { fieldOf, type Json } from "../../parts/form/form-model.ts";
import { hasPlace, SchemaForm } from "../../parts/form/schema-form.tsx";
import { useNotices } from "../../parts/notices.tsx";
import { Panel, Wrong } from "../../parts/panel.tsx";
import { Toggles } from "../../parts/toggles.tsx";
import { inert } from "../../parts/words.ts";
import { noOptions, Options, optionNames, sayOptions } from "./options.tsx";

const ways = [
  { value: "fields", says: "Fields" },
  { value: "json", says: "JSON" },
] as const;

export function EnqueueForm({ pipeline }: { pipeline: nouns.Pipeline }) {
  const { name, inputSchema, sealed } = pipeline;
  const field = useMemo(() => fieldOf((inputSchema ?? undefined) as Json | undefined, sealed), [inputSchema, sealed]);
  const isFree = field.kind === "json";
  const [again] = useState(() => againFor(name));
  const [given] = useState(() => again && draftOf(field, again.input as Json));
  const [draft, setDraft] = useState(() => given ?? begin(field, true));
  const [text, setText] = useState(() => JSON.stringify(again?.input ?? {}, null, 2));
  // An earlier input that the fields cannot say is shown as it was.
  const isRaw = isFree || (again !== undefined && given === undefined);
  const [edited, setEdited] = useState(isRaw && again !== undefined);
  const [asJson, setAsJson] = useState(isRaw);
  const [options, setOptions] = useState(() => optionsOf(again, pipeline));
  const [issues, setIssues] = useState<Issue[]>([]);
  const [wrong, setWrong] = useState<Refused>();
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const notices = useNotices();
  const known = useQueryClient();
  const [, go] = useLocation();

  useEffect(() => {
    if (issues.length > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [issues]);

  function toJson(): void {
    setText(JSON.stringify(saidBy(field, draft).value ?? {}, null, 2));
    setEdited(false);
    setIssues([]);
    setAsJson(true);
  }

  /** What was typed is never thrown away: it stays JSON where the fields cannot say it. */
  function toFields(): void {
    if (edited) {
      const { value, issues: said } = readJson(text);
      const made = value === undefined ? undefined : draftOf(field, value);
      if (!made) {
        const message = "The fields cannot say what stands here, so it stays JSON";
        setIssues(said.length > 0 ? said : [{ path: "input", message }]);
        return;
      }
      setDraft(made);
    }
    setIssues([]);
    setAsJson(false);
  }

  async function enqueue(event: FormEvent): Promise<void> {
    event.preventDefault();
    setWrong(undefined);
    const said = asJson ? readJson(text) : saidBy(field, draft);
    const more = sayOptions(options);
    const all = [...said.issues, ...more.issues];
    setIssues(all);
    if (all.length > 0) return;
    setBusy(true);
    try {
      const body = { pipeline: name, input: said.value, ...more.body };
      const { id, existing } = await call<{ id: string; existing: boolean }>("POST", "/v1/jobs", { body });
      if (existing) notices.say("Such a job was there already: this is it");
      void known.invalidateQueries();
      go(`/jobs/${id}`);
    } catch (error) {
      setWrong(error as Refused);
      setIssues(issuesOf(error));
      setBusy(false);
    }
  }

  const isPlaced = ({ path }: Issue) =>
    optionNames.has(path) || (asJson ? path.startsWith("input") : hasPlace(field, path));
  const isShown = issues.length > 0 && issues.every(isPlaced);
  return (
    <form ref={form} className="form" onSubmit={enqueue} noValidate>
      <Panel
        title="Input"
        acts={
          !isFree && (
            <Toggles
              label="How to say it"
              options={ways}
              value={asJson ? "json" : "fields"}
              onValue={(way) => (way === "json" ? toJson() : toFields())}
            />
          )
        }
      >
        {asJson ? (
          <JsonInput
            text={text}
            issues={issues}
            hasSchema={inputSchema !== null}
            sealed={sealed}
            onText={(next) => {
              setText(next);
              setEdited(true);
            }}
          />
        ) : (
          <SchemaForm field={field} draft={draft} issues={issues} onDraft={setDraft} />
        )}
      </Panel>
      <Options pipeline={pipeline} options={options} issues={issues} onOptions={setOptions} />
      {wrong && !isShown && <Wrong error={wrong} />}
      <div>
        <Button type="submit" kind="main" disabled={busy}>
          Enqueue
        </Button>
      </div>
    </form>
  );
}

function JsonInput({
  text,
  issues,
  hasSchema,
  sealed,
  onText,
}: {
  text: string;
  issues: readonly Issue[];
  hasSchema: boolean;
  sealed: readonly string[];
  onText: (text: string) => void;
}) {
  const id = useId();
  const wrong = issues.filter(({ path }) => path.startsWith("input"));
  return (
    <div className="field">
      <label htmlFor={id}>JSON</label>
      <textarea
        id={id}
        className="input"
        rows={Math.min(24, Math.max(8, text.split("\n").length + 1))}
        spellCheck={false}
        value={text}
        aria-invalid={wrong.length > 0}
        aria-describedby={wrong.length > 0 ? `${id}-wrong` : `${id}-help`}
        onChange={({ target }) => onText(target.value)}
      />
      {wrong.length > 0 && (
        <ul id={`${id}-wrong`} className="wrong foreign">
          {wrong.map(({ path, message }) => (
            <li key={`${path} ${message}`}>{inert(path === "input" ? message : `${path}: ${message}`)}</li>
          ))}
        </ul>
      )}
      <span id={`${id}-help`} className="help foreign">
        {hasSchema
          ? "The server holds it against the pipeline's schema and fills in defaults."
          : "The pipeline has no schema: whatever stands here is given to it."}
        {sealed.length > 0 && ` Sealed: ${sealed.map(inert).join(", ")}. Name a secret there: {"$secret": "name"}.`}
      </span>
    </div>
  );
}

/** Those of the job that is enqueued again. */
function optionsOf(again: Again | undefined, { priority }: nouns.Pipeline): typeof noOptions {
  if (!again) return noOptions;
  return {
    ...noOptions,
    key: again.key ?? "",
    tenant: again.tenant ?? "",
    priority: again.priority === priority ? "" : String(again.priority),
  };
}

function readJson(text: string): { value?: Json; issues: Issue[] } {
  try {
    return { value: JSON.parse(text), issues: [] };
  } catch (error) {
    return { issues: [{ path: "input", message: `This is not JSON: ${(error as Error).message}` }] };
  }
}

function issuesOf(error: unknown): Issue[] {
  if (!(error instanceof Refused)) return [];
  if (error.issues.length > 0) return error.issues;
  if (error.field === undefined) return [];
  // Fields that stand for more than the form says, such as the whole body, have no place in it.
  const path = error.field.replaceAll(/\.(\d+)(?=\.|$)/g, "[$1]");
  return [{ path, message: error.remedy ? `${error.message}. ${error.remedy}` : error.message }];
}
