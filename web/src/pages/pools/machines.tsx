// The machines of a pool and the workers that are on none: what they hold, since when, and how those before them ended.
import { useState } from "react";
import type { nouns } from "../../api/nouns.ts";
import { Button } from "../../parts/button.tsx";
import { stateWords } from "../../parts/machine-words.ts";
import { Moment, Span } from "../../parts/moment.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, several } from "../../parts/words.ts";

type Shown = Column<nouns.Machine>;

const name: Shown = { head: "Worker", cell: ({ worker }) => <span className="foreign">{inert(worker)}</span> };
const pool: Shown = { head: "Pool", cell: (machine) => <span className="foreign">{inert(machine.pool)}</span> };
const lease: Shown = { head: "Lease until", width: "136px", cell: ({ leaseUntil }) => <Moment at={leaseUntil} /> };

const workerColumns: Shown[] = [
  name,
  { head: "Running", width: "92px", number: true, cell: ({ running }) => count(running) },
  { head: "At it since", width: "136px", cell: ({ since }) => <Moment at={since} /> },
  lease,
  { head: "Listens for work", width: "152px", cell: ({ listening }) => (listening ? "yes" : "no") },
];

const machineColumns: Shown[] = [
  { ...name, head: "Machine" },
  {
    head: "State",
    width: "116px",
    cell: ({ state }) => (
      <span className="machine-state" data-state={state}>
        {stateWords[state]}
      </span>
    ),
  },
  {
    head: "Running",
    width: "92px",
    number: true,
    cell: ({ running, machine }) => (machine ? `${count(running)} of ${count(machine.slots)}` : count(running)),
  },
  {
    head: "Jobs so far",
    width: "104px",
    number: true,
    cell: ({ machine }) => (machine ? count(machine.jobs) : <span className="soft">–</span>),
  },
  {
    head: "Started",
    width: "116px",
    cell: ({ machine }) => <Moment at={machine && (machine.startedAt ?? machine.askedAt)} />,
  },
  lease,
];

const endedColumns: Shown[] = [
  { ...name, head: "Machine" },
  { head: "Ended", width: "116px", cell: ({ end }) => <Moment at={end?.at ?? null} /> },
  {
    head: "Lasted",
    width: "104px",
    cell: ({ machine, end }) => <Span from={machine && (machine.startedAt ?? machine.askedAt)} to={end?.at ?? null} />,
  },
  { head: "Jobs", width: "72px", number: true, cell: ({ machine }) => count(machine?.jobs ?? 0) },
  {
    head: "How it ended",
    cell: ({ end }) => (
      <span className="machine-end foreign" data-well={end?.well}>
        {inert(end?.how ?? "")}
      </span>
    ),
  },
];

const keyOf = ({ worker, pool: of, machine }: nouns.Machine) => machine?.life ?? `${of} ${worker}`;

export function MachineTable({ machines, withPool }: { machines: nouns.Machine[]; withPool?: boolean }) {
  const known = machines.some(({ machine }) => machine !== null);
  const columns = known ? machineColumns : workerColumns;
  const shown = withPool ? [columns[0]!, pool, ...columns.slice(1)] : columns;
  return <Table label={known ? "Machines" : "Workers"} columns={shown} rows={machines} keyOf={keyOf} below={why} />;
}

/** One that has work explains itself. */
function why({ state, machine }: nouns.Machine) {
  if (!machine?.why || state !== "starting") return null;
  return <span className="soft foreign">Asked for because {inert(machine.why)}</span>;
}

/** Nothing where none has. They are in view when somebody wants to know, or has to. */
export function EndedMachines({ ended, telling }: { ended: readonly nouns.Machine[]; telling: boolean }) {
  const [chosen, setOpen] = useState<boolean>();
  const open = chosen ?? telling;
  if (ended.length === 0) return null;
  return (
    <div className="ended-machines">
      <Button aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Hide" : "Show"} {several(ended.length, "machine that has ended", "machines that have ended")}
      </Button>
      {open && <Table label="Machines that have ended" columns={endedColumns} rows={ended} keyOf={keyOf} />}
    </div>
  );
}
