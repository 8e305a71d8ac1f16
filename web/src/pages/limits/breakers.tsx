// The breakers: state, reason, and the time of the next probe.

import { useAction, useSubmit } from "@stillwake/ui/api/query.ts";
import type { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText, formatCount, formatDateTime, formatDuration, plural } from "@stillwake/ui/format.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";
import { Empty, Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime, useNow } from "@stillwake/ui/parts/time.tsx";
import type { UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import { usePermissions } from "../../api/permissions.ts";
import type { api } from "../../api/resources.ts";
import { PipelineLinks } from "./pipeline-links.tsx";

const breakerPath = (name: string, action: string) => `/v1/breakers/${encodeURIComponent(name)}/${action}`;

export function BreakerPanel({
  breakers,
  pipelines,
}: {
  breakers: UseQueryResult<{ breakers: api.Breaker[] }, RequestError>;
  pipelines: readonly api.Pipeline[];
}) {
  const { manage } = usePermissions();
  const columns: Column<api.Breaker>[] = [
    { head: "Breaker", width: "18%", cell: ({ name }) => <span className="untrusted">{escapeText(name)}</span> },
    { head: "State", width: "22%", cell: (breaker) => <State breaker={breaker} /> },
    { head: "Reason", cell: (breaker) => <Reason breaker={breaker} /> },
    {
      head: "Used by",
      width: "18%",
      cell: ({ name }) => <PipelineLinks pipelines={pipelines.filter(({ breakers }) => breakers.includes(name))} />,
    },
    ...(manage ? [{ head: "Actions", width: "104px", hideHead: true as const, cell: actions }] : []),
  ];
  return (
    <Panel title="Breakers" bare>
      <Loaded query={breakers}>
        {({ breakers: rows }) =>
          rows.length === 0 ? (
            <Empty title="No breakers yet">
              <p>
                A breaker protects a service that many jobs use. After several failures in a row it opens: jobs are
                paused with the reason instead of failing one by one, until one job has probed the service.
              </p>
              <pre>{'const llm = breaker("llm", { failures: 5, pause: "30s" });'}</pre>
            </Empty>
          ) : (
            <Table label="Breakers" columns={columns} rows={rows} keyOf={({ name }) => name} />
          )
        }
      </Loaded>
    </Panel>
  );
}

/** With an icon of a closed or open switch. */
function State({ breaker: { state, resumeAt } }: { breaker: api.Breaker }) {
  const isOpen = state === "open";
  return (
    <div className="lines">
      <span className="breaker" data-state={state}>
        <svg viewBox="0 0 22 16" aria-hidden="true">
          <circle cx="4" cy="11" r="2.4" fill="currentColor" />
          <circle cx="18" cy="11" r="2.4" fill="currentColor" />
          <path
            d={isOpen ? "M4 11 14.5 2.6" : "M4 11h14"}
            stroke="currentColor"
            strokeWidth="2"
            strokeLinecap="round"
          />
        </svg>
        {state}
      </span>
      {isOpen && (resumeAt === null ? <span>until it is closed by hand</span> : <Countdown to={resumeAt} />)}
    </div>
  );
}

function Countdown({ to }: { to: string }) {
  const left = Math.ceil((Date.parse(to) - useNow()) / 1000) * 1000;
  return (
    <time dateTime={to} title={formatDateTime(to)} className="number">
      {left > 0 ? `next probe in ${formatDuration(left)}` : "the next job is the probe"}
    </time>
  );
}

function Reason({ breaker }: { breaker: api.Breaker }) {
  const { state, failures, threshold, openedAt, openedBy, probes, reason } = breaker;
  if (state === "closed") {
    return (
      <span className={failures === 0 ? "soft" : undefined}>
        {failures === 0
          ? `No failures; opens after ${formatCount(threshold)} in a row`
          : `${formatCount(failures)} of ${plural(threshold, "failure")} in a row`}
      </span>
    );
  }
  return (
    <div className="lines">
      {reason !== null && <span className="untrusted">{escapeText(reason)}</span>}
      <span className="soft">
        {openedBy === null ? (
          `Opened after ${plural(failures, "failure")} in a row `
        ) : (
          <span className="untrusted">Opened by {escapeText(openedBy)} </span>
        )}
        <RelativeTime at={openedAt} />
        {probes > 0 && `; ${plural(probes, "probe")} failed since`}
      </span>
    </div>
  );
}

function actions(breaker: api.Breaker) {
  return <BreakerActions breaker={breaker} />;
}

function BreakerActions({ breaker: { name, state } }: { breaker: api.Breaker }) {
  const { run, busy } = useAction();
  const [opening, setOpening] = useState(false);
  return (
    <div className="actions">
      {state === "open" ? (
        <ConfirmButton
          label="Close…"
          title={`Close breaker ${escapeText(name)}`}
          text="All jobs that it has paused resume at once. If the service still fails, the breaker opens again."
          confirm="Close"
          kind="main"
          quiet
          disabled={busy}
          onConfirm={() => run({ path: breakerPath(name, "close"), done: `Breaker ${name} is closed` })}
        />
      ) : (
        <Button onClick={() => setOpening(true)}>Open…</Button>
      )}
      {opening && <OpenForm name={name} onClose={() => setOpening(false)} />}
    </div>
  );
}

function OpenForm({ name, onClose }: { name: string; onClose: () => void }) {
  const { submit, ...form } = useSubmit();
  async function open(data: FormData): Promise<void> {
    const time = String(data.get("for")).trim();
    const reason = String(data.get("reason")).trim();
    const body = { ...(time && { for: time }), ...(reason && { reason }) };
    if (await submit({ path: breakerPath(name, "open"), body, done: `Breaker ${name} is open` })) onClose();
  }
  return (
    <FormDialog
      title={`Open breaker ${escapeText(name)}`}
      submitLabel="Open"
      form={form}
      fields={["for", "reason"]}
      onSubmit={open}
      onClose={onClose}
    >
      <p className="small">
        Jobs that use it are not started until it closes. They are shown as paused, with your reason.
      </p>
      <Field
        name="for"
        label="Duration"
        help="For example 30m or 2h. Empty: until it is closed by hand."
        error={fieldError(form.error, "for")}
      >
        {(props) => <input {...props} placeholder="1h" maxLength={50} />}
      </Field>
      <Field name="reason" label="Reason" error={fieldError(form.error, "reason")}>
        {(props) => <input {...props} maxLength={2000} />}
      </Field>
    </FormDialog>
  );
}
