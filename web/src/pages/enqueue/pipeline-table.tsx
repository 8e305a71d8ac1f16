// The registered pipelines with their limits. One job per key is the default and not listed.

import { escapeText, formatCount, plural } from "@stillwake/ui/format.ts";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";
import { StartButton } from "./start.tsx";

export function PipelineTable({ pipelines }: { pipelines: readonly api.Pipeline[] }) {
  return (
    <div className="pipeline-table">
      <Table label="Pipelines" columns={columns} rows={pipelines} keyOf={({ name }) => name} />
    </div>
  );
}

const columns: readonly Column<api.Pipeline>[] = [
  {
    head: "Pipeline",
    cell: ({ name }) => (
      <Link href={`/enqueue/${encodeURIComponent(name)}`} className="untrusted">
        {escapeText(name)}
      </Link>
    ),
  },
  { head: "Pool", width: "16%", cell: ({ pool }) => <span className="untrusted">{escapeText(pool)}</span> },
  { head: "Attempts", width: "90px", number: true, cell: ({ maxAttempts }) => formatCount(maxAttempts) },
  { head: "Limited by", width: "34%", cell: (pipeline) => <LimitedBy {...pipeline} /> },
  {
    head: "Start",
    width: "120px",
    hideHead: true,
    cell: (pipeline) => (
      <div className="actions">
        <StartButton pipeline={pipeline} />
      </div>
    ),
  },
];

function LimitedBy({ concurrency, keyLimit, limits, breakers }: api.Pipeline) {
  const parts = [
    concurrency !== null && `${formatCount(concurrency)} at once`,
    keyLimit !== 1 && `${plural(keyLimit, "job")} per key`,
    limits.length > 0 && `${limits.length === 1 ? "limit" : "limits"} ${limits.map(escapeText).join(", ")}`,
    breakers.length > 0 && `${breakers.length === 1 ? "breaker" : "breakers"} ${breakers.map(escapeText).join(", ")}`,
  ].filter(Boolean);
  if (parts.length === 0) return <span className="soft">–</span>;
  return <span className="untrusted">{parts.join(" · ")}</span>;
}
