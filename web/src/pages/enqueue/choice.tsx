// The pipelines that can be run, with what holds their jobs back: one job per key goes without saying.
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, several } from "../../parts/words.ts";
import { StartButton } from "./start.tsx";

export function PipelineTable({ pipelines }: { pipelines: readonly nouns.Pipeline[] }) {
  return (
    <div className="pipelines-known">
      <Table label="Pipelines" columns={columns} rows={pipelines} keyOf={({ name }) => name} />
    </div>
  );
}

const columns: readonly Column<nouns.Pipeline>[] = [
  {
    head: "Pipeline",
    cell: ({ name }) => (
      <Link href={`/enqueue/${encodeURIComponent(name)}`} className="foreign">
        {inert(name)}
      </Link>
    ),
  },
  { head: "Pool", width: "16%", cell: ({ pool }) => <span className="foreign">{inert(pool)}</span> },
  { head: "Attempts", width: "90px", number: true, cell: ({ maxAttempts }) => count(maxAttempts) },
  { head: "Held back by", width: "34%", cell: (pipeline) => <HeldBack {...pipeline} /> },
  {
    head: "Start",
    width: "120px",
    quiet: true,
    cell: (pipeline) => (
      <div className="acts">
        <StartButton pipeline={pipeline} />
      </div>
    ),
  },
];

function HeldBack({ concurrency, keyLimit, limits, breakers }: nouns.Pipeline) {
  const said = [
    concurrency !== null && `${count(concurrency)} at once`,
    keyLimit !== 1 && `${several(keyLimit, "job")} per key`,
    limits.length > 0 && `${limits.length === 1 ? "limit" : "limits"} ${limits.map(inert).join(", ")}`,
    breakers.length > 0 && `${breakers.length === 1 ? "breaker" : "breakers"} ${breakers.map(inert).join(", ")}`,
  ].filter(Boolean);
  if (said.length === 0) return <span className="soft">–</span>;
  return <span className="foreign">{said.join(" · ")}</span>;
}
