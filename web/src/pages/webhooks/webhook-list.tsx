// The webhooks, newest first. Filters and cursor are in the URL.

import { escapeText, shortId } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Pager } from "@stillwake/ui/parts/pager.tsx";
import { Empty, Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { useId } from "react";
import { Link } from "wouter";
import { type api, useWebhooks } from "../../api/resources.ts";
import { NextDelivery, WebhookBadge } from "./state.tsx";

const states = ["pending", "delivered", "failed"];

const columnsOf = (disabled: readonly string[]): Column<api.Webhook>[] => [
  {
    head: "Webhook",
    width: "19%",
    cell: ({ id, event }) => (
      <Link href={`/webhooks/${encodeURIComponent(id)}`} className="untrusted">
        {escapeText(event)}
      </Link>
    ),
  },
  { head: "State", width: "112px", cell: ({ state }) => <WebhookBadge state={state} /> },
  {
    head: "To",
    cell: ({ endpoint, url }) => (
      <div className="lines">
        <span className="untrusted">{escapeText(endpoint)}</span>
        <span className="soft untrusted">{escapeText(url)}</span>
      </div>
    ),
  },
  {
    head: "Job",
    width: "104px",
    cell: ({ jobId }) => (
      <Link href={`/jobs/${jobId}`} className="mono">
        {shortId(jobId)}
      </Link>
    ),
  },
  { head: "Last delivery", width: "16%", cell: (webhook) => <LastDelivery webhook={webhook} /> },
  {
    head: "Next delivery",
    width: "128px",
    cell: ({ state, endpoint, nextAt }) => (
      <NextDelivery at={nextAt} held={state === "pending" && disabled.includes(endpoint)} />
    ),
  },
  { head: "Created", width: "104px", cell: ({ createdAt }) => <RelativeTime at={createdAt} /> },
];

function LastDelivery({ webhook: { attempts, deliveries } }: { webhook: api.Webhook }) {
  const last = deliveries.at(-1);
  if (attempts === 0) return <span className="soft">not sent yet</span>;
  return (
    <div className="lines">
      <span className="untrusted">{last ? (last.status ?? escapeText(last.error ?? "no response")) : "sending"}</span>
      <span className="soft number">{attempts} of 10</span>
    </div>
  );
}

export function WebhookPanel({
  ready,
  endpoints,
  filters,
  onFilter,
}: {
  /** The panel above has loaded. Rendered earlier, this one would be pushed down. */
  ready: boolean;
  endpoints: readonly api.Endpoint[];
  filters: URLSearchParams;
  onFilter: (next: URLSearchParams) => void;
}) {
  const endpoint = filters.get("endpoint") ?? "";
  const state = filters.get("state") ?? "";
  const job = filters.get("job") ?? "";
  const cursor = filters.get("cursor") ?? "";
  const isFiltered = endpoint !== "" || state !== "" || job !== "";
  const columns = columnsOf(endpoints.filter(({ disabledAt }) => disabledAt !== null).map(({ name }) => name));
  const webhooks = useWebhooks({ endpoint, state, job, cursor, limit: 50 });
  function setFilter(name: string, value: string): void {
    const next = new URLSearchParams(filters);
    next.delete("cursor");
    if (value === "") next.delete(name);
    else next.set(name, value);
    onFilter(next);
  }
  if (!ready) return null;
  return (
    <Panel title="Webhooks" bare>
      <div className="filters">
        <SelectFilter
          label="Endpoint"
          value={endpoint}
          options={endpoints.map(({ name }) => name)}
          onChange={(name) => setFilter("endpoint", name)}
        />
        <SelectFilter label="State" value={state} options={states} onChange={(name) => setFilter("state", name)} />
        {job !== "" && <Button onClick={() => setFilter("job", "")}>Remove filter: job {shortId(job)}</Button>}
      </div>
      <Loaded query={webhooks}>
        {(page) => (
          <>
            {page.webhooks.length === 0 ? (
              <Empty title={isFiltered || cursor !== "" ? "No webhook matches the filters" : "No webhooks yet"}>
                {isFiltered || cursor !== "" ? (
                  <Button onClick={() => onFilter(new URLSearchParams())}>Show all</Button>
                ) : (
                  <>
                    <p>
                      When a job ends, its endpoint receives a signed webhook, which is retried until it is delivered.
                    </p>
                    <pre>{'await sw.enqueue(extraction, input, { webhook: "https://app.example.com/done" });'}</pre>
                  </>
                )}
              </Empty>
            ) : (
              <Table label="Webhooks" columns={columns} rows={page.webhooks} keyOf={({ id }) => id} />
            )}
            <Pager next={page.cursor} />
          </>
        )}
      </Loaded>
    </Panel>
  );
}

function SelectFilter({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: string;
  options: readonly string[];
  onChange: (value: string) => void;
}) {
  const id = useId();
  const all = value === "" || options.includes(value) ? options : [value, ...options];
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} className="input" value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">all</option>
        {all.map((option) => (
          <option key={option} value={option}>
            {escapeText(option)}
          </option>
        ))}
      </select>
    </div>
  );
}
