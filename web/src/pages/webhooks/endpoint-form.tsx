// An endpoint made or changed. Headers come in and never out again: they are kept unless new ones are written.
import { useState } from "react";
import { useSubmit } from "../../api/ask.ts";
import { Refused } from "../../api/call.ts";
import { type nouns, usePipelines } from "../../api/nouns.ts";
import { Choices, Field, FormDialog, wrongAt } from "../../parts/form/form.tsx";
import { inert } from "../../parts/words.ts";
import type { Secret } from "../webhooks.tsx";

export const pathOf = (name: string, rest = "") => `/v1/endpoints/${encodeURIComponent(name)}${rest}`;

const fields = ["endpoint", "name", "url", "body", "headers", "on", "pipelines"];
const ends = ["completed", "failed", "cancelled"] as const;

export function EndpointForm({
  endpoint,
  onSecret,
  onClose,
}: {
  endpoint: nouns.Endpoint | undefined;
  onSecret: (secret: Secret) => void;
  onClose: () => void;
}) {
  const { submit, setWrong, ...form } = useSubmit();
  const { wrong } = form;
  const known = usePipelines().data?.pipelines.map(({ name }) => name) ?? [];
  const pipelines = [...new Set([...(endpoint?.pipelines ?? []), ...known])];
  const begun = endpoint?.body ?? "thin";
  const [kind, setKind] = useState(typeof begun === "string" ? begun : "own");

  async function save(data: FormData): Promise<void> {
    const said = (field: string) => String(data.get(field) ?? "").trim();
    const name = endpoint?.name ?? said("name");
    if (name === "") return setWrong(mistake("name", "An endpoint needs a name"));
    let body: unknown = kind;
    try {
      if (kind === "own") body = JSON.parse(said("body"));
    } catch (error) {
      return setWrong(mistake("body", `This is not JSON: ${(error as Error).message}`));
    }
    const headers = headersOf(said("headers"));
    if (headers === undefined) return setWrong(mistake("headers", "Write one header a line, as name: value"));
    const settings = {
      url: said("url") || null,
      body,
      on: data.getAll("on"),
      pipelines: data.getAll("pipelines"),
      ...(Object.keys(headers).length > 0 && { headers }),
    };
    const done = `Endpoint ${name} is set`;
    const answer = await submit<{ secret: string | null }>({ method: "PUT", path: pathOf(name), body: settings, done });
    if (!answer) return;
    onClose();
    if (answer.secret !== null) onSecret({ endpoint: name, secret: answer.secret });
  }

  return (
    <FormDialog
      title={endpoint ? `Change the endpoint ${inert(endpoint.name)}` : "Add an endpoint"}
      yes={endpoint ? "Change it" : "Add it"}
      form={form}
      fields={fields}
      onSubmit={save}
      onClose={onClose}
    >
      {!endpoint && (
        <Field name="name" label="Name" wrong={wrongAt(wrong, "name", "endpoint")}>
          {(props) => <input {...props} placeholder="billing" maxLength={100} autoComplete="off" />}
        </Field>
      )}
      <Field
        name="url"
        label="URL"
        help="Empty: each job that names the endpoint says where to."
        wrong={wrongAt(wrong, "url")}
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
      <Choices
        name="on"
        label="Is told when a job has"
        choices={ends}
        chosen={endpoint?.on ?? ends}
        wrong={wrongAt(wrong, "on")}
      />
      {pipelines.length > 0 && (
        <Choices
          name="pipelines"
          label="Of all jobs of"
          help="Whatever is ticked here, jobs that name the endpoint themselves are told of too."
          choices={pipelines}
          chosen={endpoint?.pipelines ?? []}
          wrong={wrongAt(wrong, "pipelines")}
        />
      )}
      <Field name="kind" label="Body">
        {(props) => (
          <select {...props} value={kind} onChange={(event) => setKind(event.target.value)}>
            <option value="thin">thin: ids and states</option>
            <option value="full">full: input, output and failure too</option>
            <option value="own">your own, as a template</option>
          </select>
        )}
      </Field>
      {kind === "own" && (
        <Field
          name="body"
          label="Template, as JSON"
          help="Texts such as $id, $state, $output.url and $error are replaced."
          wrong={wrongAt(wrong, "body")}
        >
          {(props) => (
            <textarea
              {...props}
              rows={4}
              spellCheck={false}
              defaultValue={
                typeof begun === "string" ? '{ "id": "$id", "state": "$state" }' : JSON.stringify(begun, null, 2)
              }
            />
          )}
        </Field>
      )}
      <Field
        name="headers"
        label="Headers, one a line"
        help={
          endpoint && endpoint.headers.length > 0 ? (
            <span className="foreign">
              It has {inert(endpoint.headers.join(", "))}. Empty: they stay. What you write takes the place of all.
            </span>
          ) : (
            "Sent with every webhook. They are not shown again."
          )
        }
        wrong={wrongAt(wrong, "headers")}
      >
        {(props) => <textarea {...props} rows={2} spellCheck={false} autoComplete="off" placeholder="x-api-key: …" />}
      </Field>
    </FormDialog>
  );
}

/** Undefined when a line is none. */
function headersOf(text: string): Record<string, string> | undefined {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const found = lines.map((line) => /^\s*([^\s:]+)\s*:\s*(.*?)\s*$/.exec(line));
  if (found.some((one) => one === null)) return undefined;
  return Object.fromEntries(found.map((one) => [one![1]!, one![2]!]));
}

/** One that the server need not be asked about. */
function mistake(field: string, detail: string): Refused {
  return new Refused({ code: "INVALID_INPUT", status: 400, detail, field });
}
