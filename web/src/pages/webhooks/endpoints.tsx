// Endpoints: where to, for whom, and how it goes with them.
import type { UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import { useAct, useSubmit } from "../../api/ask.ts";
import type { Refused } from "../../api/call.ts";
import type { nouns } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Button } from "../../parts/button.tsx";
import { Field, FormDialog, wrongAt } from "../../parts/form/form.tsx";
import { Moment } from "../../parts/moment.tsx";
import { Asked, Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, several } from "../../parts/words.ts";
import type { Secret } from "../webhooks.tsx";
import { EndpointForm, pathOf } from "./endpoint-form.tsx";

type Open = { of: "new" } | { of: "change" | "rotate" | "disable"; endpoint: nouns.Endpoint };

export function EndpointPanel({
  endpoints,
  onSecret,
}: {
  endpoints: UseQueryResult<{ endpoints: nouns.Endpoint[] }, Refused>;
  onSecret: (secret: Secret) => void;
}) {
  const may = useMay();
  const [open, setOpen] = useState<Open>();
  const close = () => setOpen(undefined);
  const columns: Column<nouns.Endpoint>[] = [
    { head: "Endpoint", width: "13%", cell: ({ name }) => <span className="foreign">{inert(name)}</span> },
    { head: "Goes to", cell: (endpoint) => <Where endpoint={endpoint} /> },
    { head: "Is told of", width: "18%", cell: (endpoint) => <ToldOf endpoint={endpoint} /> },
    { head: "How it goes", width: "18%", cell: (endpoint) => <Health endpoint={endpoint} /> },
    ...(may.manage
      ? [
          {
            head: "Acts",
            width: may.admin ? "228px" : "128px",
            quiet: true as const,
            cell: (endpoint: nouns.Endpoint) => <Acts endpoint={endpoint} onOpen={setOpen} />,
          },
        ]
      : []),
  ];
  return (
    <Panel
      title="Endpoints"
      acts={may.admin && <Button onClick={() => setOpen({ of: "new" })}>Add an endpoint…</Button>}
      bare
    >
      <Asked of={endpoints}>
        {(answer) => <Table label="Endpoints" columns={columns} rows={answer.endpoints} keyOf={({ name }) => name} />}
      </Asked>
      {open?.of === "new" && <EndpointForm endpoint={undefined} onSecret={onSecret} onClose={close} />}
      {open?.of === "change" && <EndpointForm endpoint={open.endpoint} onSecret={onSecret} onClose={close} />}
      {open?.of === "rotate" && <RotateForm name={open.endpoint.name} onSecret={onSecret} onClose={close} />}
      {open?.of === "disable" && <DisableForm name={open.endpoint.name} onClose={close} />}
    </Panel>
  );
}

function Where({ endpoint: { url, headers, body } }: { endpoint: nouns.Endpoint }) {
  const kind = typeof body === "string" ? inert(body) : "own";
  return (
    <div className="lines">
      {url === null ? <span>where each job says</span> : <span className="foreign">{inert(url)}</span>}
      <span className="soft">
        {kind} body
        {headers.length > 0 && <span className="foreign">, with {inert(headers.join(", "))}</span>}
      </span>
    </div>
  );
}

function ToldOf({ endpoint: { on, pipelines } }: { endpoint: nouns.Endpoint }) {
  return (
    <div className="lines">
      <span>{on.length === 3 ? "every end" : on.join(", ")}</span>
      <span className="soft foreign">
        {pipelines.length === 0 ? "of jobs that name it" : `of all jobs of ${inert(pipelines.join(", "))}`}
      </span>
    </div>
  );
}

function Health({ endpoint: { failures, disabledAt, disabledReason, secrets } }: { endpoint: nouns.Endpoint }) {
  return (
    <div className="lines">
      {disabledAt !== null ? (
        <>
          <span>
            <span className="tag" data-tone="bad">
              disabled
            </span>{" "}
            <Moment at={disabledAt} />
          </span>
          {disabledReason !== null && <span className="foreign">{inert(disabledReason)}</span>}
        </>
      ) : failures > 0 ? (
        <span className="tag" data-tone="amber">
          {several(failures, "try", "tries")} failed in a row
        </span>
      ) : (
        <span className="soft">no failure</span>
      )}
      {secrets > 1 && <span className="soft">{count(secrets)} secrets sign: one is being replaced</span>}
    </div>
  );
}

function Acts({ endpoint, onOpen }: { endpoint: nouns.Endpoint; onOpen: (open: Open) => void }) {
  const may = useMay();
  const { act, busy } = useAct();
  const { name, disabledAt } = endpoint;
  return (
    <div className="acts">
      {may.admin && <Button onClick={() => onOpen({ of: "change", endpoint })}>Change…</Button>}
      {may.admin && <Button onClick={() => onOpen({ of: "rotate", endpoint })}>Rotate…</Button>}
      {disabledAt === null ? (
        <Button onClick={() => onOpen({ of: "disable", endpoint })}>Disable…</Button>
      ) : (
        <Button
          disabled={busy}
          onClick={() => act({ path: pathOf(name, "/enable"), done: `What was held back for ${name} is sent` })}
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
  onSecret: (secret: Secret) => void;
  onClose: () => void;
}) {
  const { submit, ...form } = useSubmit();
  async function rotate(data: FormData): Promise<void> {
    const keep = String(data.get("keep")).trim();
    const answer = await submit<{ secret: string }>({ path: pathOf(name, "/rotate"), body: keep ? { keep } : {} });
    if (!answer) return;
    onClose();
    onSecret({ endpoint: name, secret: answer.secret });
  }
  return (
    <FormDialog
      title={`A new secret for ${inert(name)}`}
      yes="Rotate"
      form={form}
      fields={["keep"]}
      onSubmit={rotate}
      onClose={onClose}
    >
      <p className="small">
        A new secret is made and shown once. The one before signs beside it for a while, so that receivers can change
        over without a gap.
      </p>
      <Field
        name="keep"
        label="The one before signs for another"
        help="Such as 24h. 0s where somebody has it who should not."
        wrong={wrongAt(form.wrong, "keep")}
      >
        {(props) => <input {...props} defaultValue="24h" maxLength={50} />}
      </Field>
    </FormDialog>
  );
}

function DisableForm({ name, onClose }: { name: string; onClose: () => void }) {
  const { submit, ...form } = useSubmit();
  async function disable(data: FormData): Promise<void> {
    const reason = String(data.get("reason")).trim();
    const body = reason ? { reason } : {};
    if (await submit({ path: pathOf(name, "/disable"), body, done: `Endpoint ${name} is disabled` })) onClose();
  }
  return (
    <FormDialog
      title={`Disable the endpoint ${inert(name)}`}
      yes="Disable it"
      form={form}
      fields={["reason"]}
      onSubmit={disable}
      onClose={onClose}
    >
      <p className="small">Its webhooks are held back, and sent when it is enabled again.</p>
      <Field name="reason" label="Why" wrong={wrongAt(form.wrong, "reason")}>
        {(props) => <input {...props} maxLength={2000} />}
      </Field>
    </FormDialog>
  );
}
