// The workers that serve a pool, one on each machine: what they hold, and whether they would hear of more.
import type { nouns } from "../../api/nouns.ts";
import { Moment } from "../../parts/moment.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert } from "../../parts/words.ts";

const columns: Column<nouns.Machine>[] = [
  { head: "Worker", cell: ({ worker }) => <span className="foreign">{inert(worker)}</span> },
  { head: "Running", width: "92px", number: true, cell: ({ running }) => count(running) },
  { head: "At it since", width: "136px", cell: ({ since }) => <Moment at={since} /> },
  { head: "Lease until", width: "136px", cell: ({ leaseUntil }) => <Moment at={leaseUntil} /> },
  { head: "Listens for work", width: "152px", cell: ({ listening }) => (listening ? "yes" : "no") },
];

const pool: Column<nouns.Machine> = {
  head: "Pool",
  cell: (machine) => <span className="foreign">{inert(machine.pool)}</span>,
};

export function MachineTable({ machines, withPool }: { machines: nouns.Machine[]; withPool?: boolean }) {
  const shown = withPool ? [columns[0]!, pool, ...columns.slice(1)] : columns;
  return <Table label="Workers" columns={shown} rows={machines} keyOf={({ worker, pool }) => `${pool} ${worker}`} />;
}
