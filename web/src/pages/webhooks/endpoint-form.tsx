// The form that creates or changes an endpoint. The values of headers are never returned: they stay unless new ones are entered.

import { useSubmit } from "@stillwake/ui/api/query.ts";
import { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { CheckboxGroup, Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";
import { useState } from "react";
import { type api, usePipelines } from "../../api/resources.ts";
import type { EndpointSecret } from "../webhooks.tsx";

export const endpointPath = (name: string, rest = "") => `/v1/endpoints/${encodeURIComponent(name)}${rest}`;

const fields = ["endpoint", "name", "url", "origins", "tenant", "body", "headers", "on", "pipelines"];
const endStates = ["completed", "failed", "cancelled"] as const;

export function EndpointForm({
  endpoint,
  onSecret,
  onClose,
}: {
  endpoint: api.Endpoint | undefined;
  onSecret: (secret: EndpointSecret) => void;
  onClose: () => void;
}) {
  const { submit, setError, ...form } = useSubmit();
  const { error } = form;
  const registered = usePipelines().data?.pipelines.map(({ name }) => name) ?? [];
  const pipelines = [...new Set([...(endpoint?.pipelines ?? []), ...registered])];
  const initialBody = endpoint?.body ?? "thin";
  const [kind, setKind] = useState(typeof initialBody === "string" ? initialBody : "own");

  async function save(data: FormData): Promise<void> {
    const value = (field: string) => String(data.get(field) ?? "").trim();
    const name = endpoint?.name ?? value("name");
    if (name === "") return setError(invalidField("name", "An endpoint needs a name"));
    let body: unknown = kind;
    try {
      if (kind === "own") body = JSON.parse(value("body"));
    } catch (failure) {
      return setError(invalidField("body", `Invalid JSON: ${(failure as Error).message}`));
    }
    const headers = parseHeaders(value("headers"));
    if (headers === undefined) return setError(invalidField("headers", "Enter one header per line, as name: value"));
    const settings = {
      url: value("url") || null,
      origins: value("origins")
        .split(/[\s,]+/)
        .filter(Boolean),
      tenant: value("tenant") || null,
      body,
      on: data.getAll("on"),
      pipelines: data.getAll("pipelines"),
      ...(Object.keys(headers).length > 0 && { headers }),
    };
    const done = `Endpoint ${name} is saved`;
    const result = await submit<{ secret: string | null }>({
      method: "PUT",
      path: endpointPath(name),
      body: settings,
      done,
    });
    if (!result) return;
    onClose();
    if (result.secret !== null) onSecret({ endpoint: name, secret: result.secret });
  }

  return (
    <FormDialog
      title={endpoint ? `Change endpoint ${escapeText(endpoint.name)}` : "Add an endpoint"}
      submitLabel={endpoint ? "Save" : "Add"}
      form={form}
      fields={fields}
      onSubmit={save}
      onClose={onClose}
    >
      {!endpoint && (
        <Field name="name" label="Name" error={fieldError(error, "name", "endpoint")}>
          {(props) => <input {...props} placeholder="billing" maxLength={100} autoComplete="off" />}
        </Field>
      )}
      <Field
        name="url"
        label="URL"
        help="Empty: each job that uses the endpoint sets the URL."
        error={fieldError(error, "url")}
      >
        {(props) => (
          <input
            {...props}
            type="url"
            placeholder="https://app.example.com/hooks"
            defaultValue={endpoint?.url ?? ""}
            maxLength={2000}
          />
        )}
      </Field>
      <Field
        name="origins"
        label="Origins"
        help="Other origins that the URL of a job may have, separated by spaces. Headers are sent to named origins only."
        error={fieldError(error, "origins")}
      >
        {(props) => (
          <input
            {...props}
            placeholder="https://hooks.example.com"
            defaultValue={endpoint?.origins.join(" ") ?? ""}
            autoComplete="off"
          />
        )}
      </Field>
      <Field
        name="tenant"
        label="Tenant"
        help="Empty: for the whole installation. Otherwise only for jobs of this tenant."
        error={fieldError(error, "tenant")}
      >
        {(props) => <input {...props} defaultValue={endpoint?.tenant ?? ""} maxLength={500} autoComplete="off" />}
      </Field>
      <CheckboxGroup
        name="on"
        label="Notify when a job is"
        options={endStates}
        checked={endpoint?.on ?? endStates}
        error={fieldError(error, "on")}
      />
      {pipelines.length > 0 && (
        <CheckboxGroup
          name="pipelines"
          label="For all jobs of"
          help="Jobs that name the endpoint are always included."
          options={pipelines}
          checked={endpoint?.pipelines ?? []}
          error={fieldError(error, "pipelines")}
        />
      )}
      <Field name="kind" label="Body">
        {(props) => (
          <select {...props} value={kind} onChange={(event) => setKind(event.target.value)}>
            <option value="thin">thin: ids and states</option>
            <option value="full">full: input, output and failure too</option>
            <option value="own">a template</option>
          </select>
        )}
      </Field>
      {kind === "own" && (
        <Field
          name="body"
          label="Template (JSON)"
          help="$id, $state, $output.url, $error and the like are replaced."
          error={fieldError(error, "body")}
        >
          {(props) => (
            <textarea
              {...props}
              rows={4}
              spellCheck={false}
              defaultValue={
                typeof initialBody === "string"
                  ? '{ "id": "$id", "state": "$state" }'
                  : JSON.stringify(initialBody, null, 2)
              }
            />
          )}
        </Field>
      )}
      <Field
        name="headers"
        label="Headers, one per line"
        help={
          endpoint && endpoint.headers.length > 0 ? (
            <span className="untrusted">
              Current: {escapeText(endpoint.headers.join(", "))}. Empty: no change. New headers replace all of them.
            </span>
          ) : (
            "Sent with every webhook. Their values are not shown again."
          )
        }
        error={fieldError(error, "headers")}
      >
        {(props) => <textarea {...props} rows={2} spellCheck={false} autoComplete="off" placeholder="x-api-key: …" />}
      </Field>
    </FormDialog>
  );
}

/** Undefined if a line is not a header. */
function parseHeaders(text: string): Record<string, string> | undefined {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const found = lines.map((line) => /^\s*([^\s:]+)\s*:\s*(.*?)\s*$/.exec(line));
  if (found.some((match) => match === null)) return undefined;
  return Object.fromEntries(found.map((match) => [match![1]!, match![2]!]));
}

function invalidField(field: string, detail: string): RequestError {
  return new RequestError({ code: "INVALID_INPUT", status: 400, detail, field });
}
