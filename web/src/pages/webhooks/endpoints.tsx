// The endpoints: their URL, their events and their health, with actions.

import { useAction, useSubmit } from "@stillwake/ui/api/query.ts";
import type { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText, formatCount, plural } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";
import { Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import type { UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import { usePermissions } from "../../api/permissions.ts";
import type { api } from "../../api/resources.ts";
import { ReasonForm } from "../../parts/form/reason-form.tsx";
import type { EndpointSecret } from "../webhooks.tsx";
import { EndpointForm, endpointPath } from "./endpoint-form.tsx";

type OpenForm = { kind: "new" } | { kind: "change" | "rotate" | "disable"; endpoint: api.Endpoint };

export function EndpointPanel({
  endpoints,
  onSecret,
}: {
  endpoints: UseQueryResult<{ endpoints: api.Endpoint[] }, RequestError>;
  onSecret: (secret: EndpointSecret) => void;
}) {
  const { manage, admin } = usePermissions();
  const [open, setOpen] = useState<OpenForm>();
  const close = () => setOpen(undefined);
  const columns: Column<api.Endpoint>[] = [
    { head: "Endpoint", width: "13%", cell: ({ name }) => <span className="untrusted">{escapeText(name)}</span> },
    { head: "URL", cell: (endpoint) => <Target endpoint={endpoint} /> },
    { head: "Events", width: "18%", cell: (endpoint) => <Events endpoint={endpoint} /> },
    { head: "Health", width: "18%", cell: (endpoint) => <Health endpoint={endpoint} /> },
    ...(manage
      ? [
          {
            head: "Actions",
            width: admin ? "228px" : "128px",
            hideHead: true as const,
            cell: (endpoint: api.Endpoint) => <EndpointActions endpoint={endpoint} onOpen={setOpen} />,
          },
        ]
      : []),
  ];
  return (
    <Panel
      title="Endpoints"
      actions={admin && <Button onClick={() => setOpen({ kind: "new" })}>Add an endpoint…</Button>}
      bare
    >
      <Loaded query={endpoints}>
        {({ endpoints: rows }) => <Table label="Endpoints" columns={columns} rows={rows} keyOf={({ name }) => name} />}
      </Loaded>
      {open?.kind === "new" && <EndpointForm endpoint={undefined} onSecret={onSecret} onClose={close} />}
      {open?.kind === "change" && <EndpointForm endpoint={open.endpoint} onSecret={onSecret} onClose={close} />}
      {open?.kind === "rotate" && <RotateForm name={open.endpoint.name} onSecret={onSecret} onClose={close} />}
      {open?.kind === "disable" && (
        <ReasonForm
          title={`Disable endpoint ${escapeText(open.endpoint.name)}`}
          submitLabel="Disable"
          text="Its webhooks are held and sent when the endpoint is enabled again."
          action={{
            path: endpointPath(open.endpoint.name, "/disable"),
            done: `Endpoint ${open.endpoint.name} is disabled`,
          }}
          onClose={close}
        />
      )}
    </Panel>
  );
}

function Target({ endpoint: { url, origins, headers, body, tenant } }: { endpoint: api.Endpoint }) {
  const kind = typeof body === "string" ? escapeText(body) : "custom";
  return (
    <div className="lines">
      {url === null ? <span>set by each job</span> : <span className="untrusted">{escapeText(url)}</span>}
      {origins.length > 0 && <span className="soft untrusted">on {escapeText(origins.join(", "))}</span>}
      {tenant !== null && <span className="soft untrusted">of tenant {escapeText(tenant)}</span>}
      <span className="soft">
        {kind} body
        {headers.length > 0 && <span className="untrusted">, with {escapeText(headers.join(", "))}</span>}
      </span>
    </div>
  );
}

function Events({ endpoint: { on, pipelines } }: { endpoint: api.Endpoint }) {
  return (
    <div className="lines">
      <span>{on.length === 3 ? "all final states" : on.join(", ")}</span>
      <span className="soft untrusted">
        {pipelines.length === 0 ? "of jobs that use it" : `of all jobs of ${escapeText(pipelines.join(", "))}`}
      </span>
    </div>
  );
}

function Health({ endpoint: { failures, disabledAt, disabledReason, secrets } }: { endpoint: api.Endpoint }) {
  return (
    <div className="lines">
      {disabledAt !== null ? (
        <>
          <span>
            <span className="tag" data-tone="bad">
              disabled
            </span>{" "}
            <RelativeTime at={disabledAt} />
          </span>
          {disabledReason !== null && <span className="untrusted">{escapeText(disabledReason)}</span>}
        </>
      ) : failures > 0 ? (
        <span className="tag" data-tone="amber">
          {plural(failures, "failure")} in a row
        </span>
      ) : (
        <span className="soft">no failures</span>
      )}
      {secrets > 1 && <span className="soft">{formatCount(secrets)} secrets: one is being replaced</span>}
    </div>
  );
}

function EndpointActions({ endpoint, onOpen }: { endpoint: api.Endpoint; onOpen: (open: OpenForm) => void }) {
  const { admin } = usePermissions();
  const { run, busy } = useAction();
  const { name, disabledAt } = endpoint;
  return (
    <div className="actions">
      {admin && <Button onClick={() => onOpen({ kind: "change", endpoint })}>Change…</Button>}
      {admin && <Button onClick={() => onOpen({ kind: "rotate", endpoint })}>Rotate…</Button>}
      {disabledAt === null ? (
        <Button onClick={() => onOpen({ kind: "disable", endpoint })}>Disable…</Button>
      ) : (
        <Button
          disabled={busy}
          onClick={() => run({ path: endpointPath(name, "/enable"), done: `Endpoint ${name} is enabled` })}
        >
          Enable
        </Button>
      )}
    </div>
  );
}

function RotateForm({
  name,
  onSecret,
  onClose,
}: {
  name: string;
  onSecret: (secret: EndpointSecret) => void;
  onClose: () => void;
}) {
  const { submit, ...form } = useSubmit();
  async function rotate(data: FormData): Promise<void> {
    const keep = String(data.get("keep")).trim();
    const result = await submit<{ secret: string }>({
      path: endpointPath(name, "/rotate"),
      body: keep ? { keep } : {},
    });
    if (!result) return;
    onClose();
    onSecret({ endpoint: name, secret: result.secret });
  }
  return (
    <FormDialog
      title={`Rotate the secret of ${escapeText(name)}`}
      submitLabel="Rotate"
      form={form}
      fields={["keep"]}
      onSubmit={rotate}
      onClose={onClose}
    >
      <p className="small">
        Creates a new secret and shows it once. The old secret also signs for a while, so that receivers can switch
        without a gap.
      </p>
      <Field
        name="keep"
        label="Keep the old secret for"
        help="For example 24h; 0s if the old secret was leaked."
        error={fieldError(form.error, "keep")}
      >
        {(props) => <input {...props} defaultValue="24h" maxLength={50} />}
      </Field>
    </FormDialog>
  );
}
