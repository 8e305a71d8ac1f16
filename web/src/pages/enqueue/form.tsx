// The form that enqueues a job: its input as fields from the schema or as JSON, and its options. The server validates;
// its errors are shown at the fields.
import { useRefresh } from "@stillwake/ui/api/query.ts";
import { RequestError, request } from "@stillwake/ui/api/request.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { useNotices } from "@stillwake/ui/parts/notices.tsx";
import { ErrorCallout, Panel } from "@stillwake/ui/parts/panel.tsx";
import { Toggles } from "@stillwake/ui/parts/toggles.tsx";
import { type FormEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import type { api } from "../../api/resources.ts";
import { createDraft, draftFromValue, type Issue, readDraft } from "../../parts/form/form-draft.ts";
import { type Json, schemaToField } from "../../parts/form/form-model.ts";
import { hasField, SchemaForm } from "../../parts/form/schema-form.tsx";
import { type JobCopy, readJobCopy } from "./enqueue-again.ts";
import { EnqueueOptions, emptyOptions, optionNames, readOptions } from "./options.tsx";

const modes = [
  { value: "fields", label: "Fields" },
  { value: "json", label: "JSON" },
] as const;

export function EnqueueForm({ pipeline }: { pipeline: api.Pipeline }) {
  const { name, inputSchema, sealed } = pipeline;
  const field = useMemo(
    () => schemaToField((inputSchema ?? undefined) as Json | undefined, sealed),
    [inputSchema, sealed],
  );
  const isJsonOnly = field.kind === "json";
  const [copy] = useState(() => readJobCopy(name));
  const [copiedDraft] = useState(() => copy && draftFromValue(field, copy.input as Json));
  const [draft, setDraft] = useState(() => copiedDraft ?? createDraft(field, true));
  const [text, setText] = useState(() => JSON.stringify(copy?.input ?? {}, null, 2));
  // A copied input that the fields cannot represent starts as JSON.
  const startsAsJson = isJsonOnly || (copy !== undefined && copiedDraft === undefined);
  const [edited, setEdited] = useState(startsAsJson && copy !== undefined);
  const [asJson, setAsJson] = useState(startsAsJson);
  const [options, setOptions] = useState(() => copiedOptions(copy, pipeline));
  const [issues, setIssues] = useState<Issue[]>([]);
  const [error, setError] = useState<RequestError>();
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const notices = useNotices();
  const refresh = useRefresh();
  const [, navigate] = useLocation();

  useEffect(() => {
    if (issues.length > 0) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [issues]);

  function toJson(): void {
    setText(JSON.stringify(readDraft(field, draft).value ?? {}, null, 2));
    setEdited(false);
    setIssues([]);
    setAsJson(true);
  }

  /** Input that the fields cannot represent stays JSON, so that nothing is lost. */
  function toFields(): void {
    if (edited) {
      const { value, issues: jsonIssues } = parseJson(text);
      const converted = value === undefined ? undefined : draftFromValue(field, value);
      if (!converted) {
        const message = "The fields cannot represent this input";
        setIssues(jsonIssues.length > 0 ? jsonIssues : [{ path: "input", message }]);
        return;
      }
      setDraft(converted);
    }
    setIssues([]);
    setAsJson(false);
  }

  async function enqueue(event: FormEvent): Promise<void> {
    event.preventDefault();
    setError(undefined);
    const input = asJson ? parseJson(text) : readDraft(field, draft);
    const jobOptions = readOptions(options);
    const all = [...input.issues, ...jobOptions.issues];
    setIssues(all);
    if (all.length > 0) return;
    setBusy(true);
    try {
      const body = { pipeline: name, input: input.value, ...jobOptions.body };
      const { id, existing } = await request<{ id: string; existing: boolean }>("POST", "/v1/jobs", { body });
      if (existing) notices.show("This job existed already");
      refresh();
      navigate(`/jobs/${id}`);
    } catch (failure) {
      setError(failure as RequestError);
      setIssues(toIssues(failure));
      setBusy(false);
    }
  }

  const isShownAtField = ({ path }: Issue) =>
    optionNames.has(path) || (asJson ? path.startsWith("input") : hasField(field, path));
  const isShown = issues.length > 0 && issues.every(isShownAtField);
  return (
    <form ref={form} className="form" onSubmit={enqueue} noValidate>
      <Panel
        title="Input"
        actions={
          !isJsonOnly && (
            <Toggles
              label="Input mode"
              options={modes}
              value={asJson ? "json" : "fields"}
              onChange={(mode) => (mode === "json" ? toJson() : toFields())}
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
      <EnqueueOptions pipeline={pipeline} options={options} issues={issues} onOptions={setOptions} />
      {error && !isShown && <ErrorCallout error={error} />}
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
  const errors = issues.filter(({ path }) => path.startsWith("input"));
  return (
    <div className="field">
      <label htmlFor={id}>JSON</label>
      <textarea
        id={id}
        className="input"
        rows={Math.min(24, Math.max(8, text.split("\n").length + 1))}
        spellCheck={false}
        value={text}
        aria-invalid={errors.length > 0}
        aria-describedby={errors.length > 0 ? `${id}-error` : `${id}-help`}
        onChange={({ target }) => onText(target.value)}
      />
      {errors.length > 0 && (
        <ul id={`${id}-error`} className="error untrusted">
          {errors.map(({ path, message }) => (
            <li key={`${path} ${message}`}>{escapeText(path === "input" ? message : `${path}: ${message}`)}</li>
          ))}
        </ul>
      )}
      <span id={`${id}-help`} className="help untrusted">
        {hasSchema
          ? "The server validates it against the pipeline's schema and fills in defaults."
          : "The pipeline has no schema: the input is not validated."}
        {sealed.length > 0 &&
          ` Sealed: ${sealed.map(escapeText).join(", ")}. Use the name of a secret: {"$secret": "name"}.`}
      </span>
    </div>
  );
}

function copiedOptions(copy: JobCopy | undefined, { priority }: api.Pipeline): typeof emptyOptions {
  if (!copy) return emptyOptions;
  return {
    ...emptyOptions,
    key: copy.key ?? "",
    tenant: copy.tenant ?? "",
    priority: copy.priority === priority ? "" : String(copy.priority),
  };
}

function parseJson(text: string): { value?: Json; issues: Issue[] } {
  try {
    return { value: JSON.parse(text), issues: [] };
  } catch (error) {
    return { issues: [{ path: "input", message: `Invalid JSON: ${(error as Error).message}` }] };
  }
}

function toIssues(error: unknown): Issue[] {
  if (!(error instanceof RequestError)) return [];
  if (error.issues.length > 0) return error.issues;
  if (error.field === undefined) return [];
  // The server writes list items as "a.0", the form as "a[0]".
  const path = error.field.replaceAll(/\.(\d+)(?=\.|$)/g, "[$1]");
  return [{ path, message: error.remedy ? `${error.message}. ${error.remedy}` : error.message }];
}
