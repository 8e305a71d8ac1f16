// The ended jobs of each pipeline in the selected time range.

import { escapeText, formatCount, formatDuration } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { useState } from "react";
import { Link } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import type { api } from "../../api/resources.ts";

type Row = api.Stats["pipelines"][number];

const INITIAL_ROWS = 12;

export function ByPipeline({
  pipelines,
  stats,
  timeRange,
}: {
  pipelines: readonly api.Pipeline[];
  stats: api.Stats;
  timeRange: string;
}) {
  const { operate } = usePermissions();
  const [all, setAll] = useState(false);
  const rows = toRows(pipelines, stats.pipelines);
  const names = new Set(pipelines.map(({ name }) => name));
  const enqueue: Column<Row> = {
    head: "Enqueue",
    width: "104px",
    hideHead: true,
    cell: ({ name }) =>
      names.has(name) && (
        <div className="actions">
          <Link
            href={`/enqueue/${encodeURIComponent(name)}`}
            className="button"
            aria-label={`Enqueue ${escapeText(name)}`}
          >
            Enqueue
          </Link>
        </div>
      ),
  };
  return (
    <Panel title="By pipeline" actions={<span className="soft small">{timeRange}</span>} bare>
      <div className="pipelines-recent">
        <Table
          label={`Pipelines in ${timeRange}`}
          columns={operate ? [...columns, enqueue] : columns}
          rows={all ? rows : rows.slice(0, INITIAL_ROWS)}
          keyOf={({ name }) => name}
        />
      </div>
      {!all && rows.length > INITIAL_ROWS && (
        <div className="foot">
          <Button onClick={() => setAll(true)}>Show all {formatCount(rows.length)} pipelines</Button>
        </div>
      )}
    </Panel>
  );
}

const number = (head: string, width: string, cell: Column<Row>["cell"]): Column<Row> => ({
  head,
  width,
  number: true,
  cell,
});

const columns: readonly Column<Row>[] = [
  {
    head: "Pipeline",
    cell: ({ name }) => (
      <Link href={`/jobs?pipeline=${encodeURIComponent(name)}`} className="untrusted">
        {escapeText(name)}
      </Link>
    ),
  },
  number("Completed", "12%", ({ completed }) => <Count value={completed} />),
  number("Failed", "10%", ({ failed }) =>
    failed > 0 ? <span className="bad">{formatCount(failed)}</span> : <Count value={0} />,
  ),
  number("Cancelled", "12%", ({ cancelled }) => <Count value={cancelled} />),
  number("Mean", "12%", ({ meanSeconds }) => <Took seconds={meanSeconds} />),
  number("Longest", "12%", ({ longestSeconds }) => <Took seconds={longestSeconds} />),
];

function Count({ value }: { value: number }) {
  return value === 0 ? <span className="soft">0</span> : formatCount(value);
}

function Took({ seconds }: { seconds: number | null }) {
  return seconds === null ? <span className="soft">–</span> : formatDuration(seconds * 1000);
}

/** Registered pipelines, and those that are no longer registered but have ended jobs. By name, so that rows do not move. */
function toRows(registered: readonly { name: string }[], ended: readonly Row[]): Row[] {
  const none = { completed: 0, failed: 0, cancelled: 0, totalSeconds: 0, meanSeconds: null, longestSeconds: null };
  const rows = new Map<string, Row>(registered.map(({ name }) => [name, { name, ...none }]));
  for (const row of ended) rows.set(row.name, row);
  return [...rows.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}
