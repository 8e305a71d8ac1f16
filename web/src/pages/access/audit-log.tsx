// The audit log: who did what, from where, and the values before and after.

import { escapeText, formatDateTime, shortId } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Pager } from "@stillwake/ui/parts/pager.tsx";
import { Empty, Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { type FormEvent, useId, useState } from "react";
import { Link } from "wouter";
import { type api, useAuditEntries, useTokens } from "../../api/resources.ts";
import { Payload } from "../../parts/payload.tsx";
import "../../css/audit-log.css";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function AuditPanel({
  ready,
  filters,
  onFilter,
}: {
  /** The panel above has loaded. Rendered earlier, this one would be pushed down. */
  ready: boolean;
  filters: URLSearchParams;
  onFilter: (next: URLSearchParams) => void;
}) {
  const target = filters.get("target") ?? "";
  const cursor = filters.get("cursor") ?? "";
  const entries = useAuditEntries({ limit: 50, ...(target && { target }), ...(cursor && { cursor }) });
  const [open, setOpen] = useState<string>();
  const columns: Column<api.AuditEntry>[] = [
    { head: "Who", width: "18%", cell: (entry) => <Actor entry={entry} /> },
    { head: "Action", width: "20%", cell: (entry) => <Action entry={entry} /> },
    { head: "Target", cell: (entry) => <Target entry={entry} /> },
    {
      head: "From",
      width: "15%",
      cell: ({ address }) => <span className="soft untrusted">{address === null ? "–" : escapeText(address)}</span>,
    },
    { head: "When", width: "104px", cell: ({ at }) => <RelativeTime at={at} /> },
    {
      head: "Details",
      width: "104px",
      hideHead: true,
      cell: ({ id, before, after }) =>
        (before !== null || after !== null) && (
          <div className="actions">
            <Button aria-expanded={open === id} onClick={() => setOpen(open === id ? undefined : id)}>
              Details
            </Button>
          </div>
        ),
    },
  ];
  if (!ready) return null;
  return (
    <Panel title="Audit log" bare>
      <TargetFilter key={target} target={target} onFilter={onFilter} />
      <Loaded query={entries}>
        {(page) => (
          <>
            {page.entries.length === 0 ? (
              <Empty title={target === "" ? "No entries yet" : "No entries for this target"}>
                <p>
                  Every action through the server is recorded before it is executed, and kept for 400 days. Inputs and
                  secrets are not recorded.
                </p>
              </Empty>
            ) : (
              <Table
                label="Audit log"
                columns={columns}
                rows={page.entries}
                keyOf={({ id }) => id}
                details={(entry) => open === entry.id && <Change entry={entry} />}
              />
            )}
            <Pager next={page.cursor} />
          </>
        )}
      </Loaded>
    </Panel>
  );
}

function TargetFilter({ target, onFilter }: { target: string; onFilter: (next: URLSearchParams) => void }) {
  const id = useId();
  function find(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget).get("target")).trim();
    onFilter(new URLSearchParams(text === "" ? {} : { target: text }));
  }
  return (
    <form className="filters" onSubmit={find}>
      <div className="field audit-target">
        <label htmlFor={id}>Target</label>
        <input
          id={id}
          className="input"
          name="target"
          type="search"
          defaultValue={target}
          placeholder="Id of a job, or name of a pool, limit, schedule…"
          maxLength={500}
        />
      </div>
      <Button type="submit">Find</Button>
      {target !== "" && <Button onClick={() => onFilter(new URLSearchParams())}>Show all</Button>}
    </form>
  );
}

function Actor({ entry: { actor, tenant } }: { entry: api.AuditEntry }) {
  return (
    <div className="lines">
      <span className="untrusted">{escapeText(actor)}</span>
      {tenant !== null && <span className="soft untrusted">of {escapeText(tenant)}</span>}
    </div>
  );
}

/** "pausePool" as "pause pool", and the code of a rejected action. */
function Action({ entry: { act, after } }: { entry: api.AuditEntry }) {
  const rejection = after !== null && typeof after === "object" && "refused" in after ? after.refused : undefined;
  return (
    <div className="lines">
      <span className="untrusted">{escapeText(act.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`))}</span>
      {typeof rejection === "string" && (
        <span className="tag" data-tone="amber">
          rejected: {escapeText(rejection)}
        </span>
      )}
      {after === null && <span className="tag">no outcome</span>}
    </div>
  );
}

function Target({ entry: { act, target } }: { entry: api.AuditEntry }) {
  const token = useTokens().data?.tokens.find(({ id }) => id === target);
  if (token) return <span className="untrusted">{escapeText(token.name)}</span>;
  if (target === null) return <span className="soft">–</span>;
  if (UUID.test(target) && /job/i.test(act)) {
    return (
      <Link href={`/jobs/${target}`} className="mono">
        job {shortId(target)}
      </Link>
    );
  }
  if (act === "resendWebhook") {
    return (
      <Link href={`/webhooks/${encodeURIComponent(target)}`} className="untrusted">
        {escapeText(target)}
      </Link>
    );
  }
  return <span className="untrusted">{escapeText(target)}</span>;
}

function Change({ entry: { at, before, after } }: { entry: api.AuditEntry }) {
  return (
    <div className="change">
      <p className="soft small">
        {formatDateTime(at)}
        {after === null && ". No outcome was recorded: the action is running, or the server died during it."}
      </p>
      <div className="change-columns">
        <ChangeValue title="Before" value={before} />
        <ChangeValue title="After" value={after} />
      </div>
    </div>
  );
}

function ChangeValue({ title, value }: { title: string; value: unknown }) {
  return (
    <div>
      <h3>{title}</h3>
      {value === null ? (
        <p className="soft small">not recorded</p>
      ) : (
        <Payload label={title.toLowerCase()} value={value} open />
      )}
    </div>
  );
}
