// Webhooks, newest first. Filters and place are in the address.
import { useId } from "react";
import { Link } from "wouter";
import { type nouns, useWebhooks } from "../../api/nouns.ts";
import { Button } from "../../parts/button.tsx";
import { Moment } from "../../parts/moment.tsx";
import { Pager } from "../../parts/pager.tsx";
import { Asked, Empty, Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { inert, shortId } from "../../parts/words.ts";
import { NextTry, WebhookMark } from "./mark.tsx";

const states = ["pending", "delivered", "failed"];

const columnsOf = (disabled: readonly string[]): Column<nouns.Webhook>[] => [
  {
    head: "Webhook",
    width: "19%",
    cell: ({ id, event }) => (
      <Link href={`/webhooks/${encodeURIComponent(id)}`} className="foreign">
        {inert(event)}
      </Link>
    ),
  },
  { head: "State", width: "112px", cell: ({ state }) => <WebhookMark state={state} /> },
  {
    head: "To",
    cell: ({ endpoint, url }) => (
      <div className="lines">
        <span className="foreign">{inert(endpoint)}</span>
        <span className="soft foreign">{inert(url)}</span>
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
  { head: "Last try", width: "16%", cell: (webhook) => <LastTry webhook={webhook} /> },
  {
    head: "Next try",
    width: "104px",
    cell: ({ state, endpoint, nextAt }) => (
      <NextTry at={nextAt} held={state === "pending" && disabled.includes(endpoint)} />
    ),
  },
  { head: "Since", width: "104px", cell: ({ createdAt }) => <Moment at={createdAt} /> },
];

function LastTry({ webhook: { attempts, deliveries } }: { webhook: nouns.Webhook }) {
  const last = deliveries.at(-1);
  if (attempts === 0) return <span className="soft">not tried yet</span>;
  return (
    <div className="lines">
      <span className="foreign">{last ? (last.status ?? inert(last.error ?? "no answer")) : "under way"}</span>
      <span className="soft number">try {attempts} of 10</span>
    </div>
  );
}

export function WebhookPanel({
  ready,
  endpoints,
  filters,
  onFilter,
}: {
  /** What stands above it has come: shown sooner, it would be pushed down. It asks meanwhile. */
  ready: boolean;
  endpoints: readonly nouns.Endpoint[];
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
  function choose(name: string, value: string): void {
    const next = new URLSearchParams(filters);
    next.delete("cursor");
    if (value === "") next.delete(name);
    else next.set(name, value);
    onFilter(next);
  }
  if (!ready) return null;
  return (
    <Panel title="What was told" bare>
      <div className="filters">
        <Choice
          label="Endpoint"
          value={endpoint}
          among={endpoints.map(({ name }) => name)}
          onChoose={(one) => choose("endpoint", one)}
        />
        <Choice label="State" value={state} among={states} onChoose={(one) => choose("state", one)} />
        {job !== "" && <Button onClick={() => choose("job", "")}>Of job {shortId(job)} ×</Button>}
      </div>
      <Asked of={webhooks}>
        {(answer) => (
          <>
            {answer.webhooks.length === 0 ? (
              <Empty title={isFiltered || cursor !== "" ? "No webhook fits" : "Nothing was told yet"}>
                {isFiltered || cursor !== "" ? (
                  <Button onClick={() => onFilter(new URLSearchParams())}>Show all</Button>
                ) : (
                  <>
                    <p>When a job ends, whoever it names is told: signed, and again until it arrives.</p>
                    <pre>{'await sw.enqueue(extraction, input, { webhook: "https://app.example.com/done" });'}</pre>
                  </>
                )}
              </Empty>
            ) : (
              <Table label="Webhooks" columns={columns} rows={answer.webhooks} keyOf={({ id }) => id} />
            )}
            <Pager cursor={cursor} next={answer.cursor} onGo={(place) => go(filters, place, onFilter)} />
          </>
        )}
      </Asked>
    </Panel>
  );
}

function go(filters: URLSearchParams, cursor: string, onFilter: (next: URLSearchParams) => void): void {
  const next = new URLSearchParams(filters);
  if (cursor === "") next.delete("cursor");
  else next.set("cursor", cursor);
  onFilter(next);
}

function Choice({
  label,
  value,
  among,
  onChoose,
}: {
  label: string;
  value: string;
  among: readonly string[];
  onChoose: (value: string) => void;
}) {
  const id = useId();
  const all = value === "" || among.includes(value) ? among : [value, ...among];
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} className="input" value={value} onChange={(event) => onChoose(event.target.value)}>
        <option value="">all</option>
        {all.map((one) => (
          <option key={one} value={one}>
            {inert(one)}
          </option>
        ))}
      </select>
    </div>
  );
}
