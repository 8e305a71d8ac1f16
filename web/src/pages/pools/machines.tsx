// The machines of a pool, its workers without a machine, and the machines that have ended.

import { escapeText, formatCount, plural } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { Duration, RelativeTime } from "@stillwake/ui/parts/time.tsx";
import { useState } from "react";
import type { api } from "../../api/resources.ts";
import { machineStateLabels } from "../../parts/machine-text.ts";

type MachineColumn = Column<api.Machine>;

const name: MachineColumn = {
  head: "Worker",
  cell: ({ worker }) => <span className="untrusted">{escapeText(worker)}</span>,
};
const pool: MachineColumn = {
  head: "Pool",
  cell: (machine) => <span className="untrusted">{escapeText(machine.pool)}</span>,
};
const lease: MachineColumn = {
  head: "Lease until",
  width: "136px",
  cell: ({ leaseUntil }) => <RelativeTime at={leaseUntil} />,
};

const workerColumns: MachineColumn[] = [
  name,
  { head: "Running", width: "92px", number: true, cell: ({ running }) => formatCount(running) },
  { head: "Running since", width: "136px", cell: ({ since }) => <RelativeTime at={since} /> },
  lease,
  { head: "Listening", width: "152px", cell: ({ listening }) => (listening ? "yes" : "no") },
];

const machineColumns: MachineColumn[] = [
  { ...name, head: "Machine" },
  {
    head: "State",
    width: "116px",
    cell: ({ state }) => (
      <span className="machine-state" data-state={state}>
        {machineStateLabels[state]}
      </span>
    ),
  },
  {
    head: "Running",
    width: "92px",
    number: true,
    cell: ({ running, machine }) =>
      machine ? `${formatCount(running)} of ${formatCount(machine.slots)}` : formatCount(running),
  },
  {
    head: "Jobs so far",
    width: "104px",
    number: true,
    cell: ({ machine }) => (machine ? formatCount(machine.jobs) : <span className="soft">–</span>),
  },
  {
    head: "Started",
    width: "116px",
    cell: ({ machine }) => <RelativeTime at={machine && (machine.startedAt ?? machine.requestedAt)} />,
  },
  lease,
];

const endedColumns: MachineColumn[] = [
  { ...name, head: "Machine" },
  { head: "Ended", width: "116px", cell: ({ end }) => <RelativeTime at={end?.at ?? null} /> },
  {
    head: "Duration",
    width: "104px",
    cell: ({ machine, end }) => (
      <Duration from={machine && (machine.startedAt ?? machine.requestedAt)} to={end?.at ?? null} />
    ),
  },
  { head: "Jobs", width: "72px", number: true, cell: ({ machine }) => formatCount(machine?.jobs ?? 0) },
  {
    head: "How it ended",
    cell: ({ end }) => (
      <span className="machine-end untrusted" data-normal={end?.normal}>
        {escapeText(end?.how ?? "")}
      </span>
    ),
  },
];

const keyOf = ({ worker, pool: name, machine }: api.Machine) => machine?.life ?? `${name} ${worker}`;

export function MachineTable({ machines, withPool }: { machines: api.Machine[]; withPool?: boolean }) {
  const hasMachines = machines.some(({ machine }) => machine !== null);
  const columns = hasMachines ? machineColumns : workerColumns;
  const shown = withPool ? [columns[0]!, pool, ...columns.slice(1)] : columns;
  return (
    <Table
      label={hasMachines ? "Machines" : "Workers"}
      columns={shown}
      rows={machines}
      keyOf={keyOf}
      details={startReason}
    />
  );
}

/** Why a machine is being started. */
function startReason({ state, machine }: api.Machine) {
  if (!machine?.why || state !== "starting") return null;
  return <span className="soft untrusted">Started because {escapeText(machine.why)}</span>;
}

/** `important`: open by default, because the last machines ended without a job. */
export function EndedMachines({ ended, important }: { ended: readonly api.Machine[]; important: boolean }) {
  const [toggled, setOpen] = useState<boolean>();
  const open = toggled ?? important;
  if (ended.length === 0) return null;
  return (
    <div className="ended-machines">
      <Button aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Hide" : "Show"} {plural(ended.length, "ended machine")}
      </Button>
      {open && <Table label="Ended machines" columns={endedColumns} rows={ended} keyOf={keyOf} />}
    </div>
  );
}
