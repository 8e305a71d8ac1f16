// stillwake pools and stillwake machines.
import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { parseInteger, pathSegment } from "../arguments.ts";
import { apiFlags, type Command } from "../command.ts";
import { type Column, printTable } from "../output/table.ts";
import { formatAgo, formatElapsed } from "../output/time.ts";
import { changeResource, printResources, requireName } from "../resource.ts";

export const poolsCommand: Command = {
  name: "pools",
  group: "Inspect",
  summary: "list the pools with their jobs and machines, or cap the concurrency of one",
  usage: ["", "cap <name> <n>|none"],
  args: [0, 3],
  subcommands: ["cap"],
  flags: { ...apiFlags },
  examples: [
    ["pools", ""],
    ["pools cap scan 4", "at most four concurrent jobs, over all workers"],
    ["pools cap scan none", "limited only by the slots of the workers"],
  ],
  async run(context) {
    const [action, name, cap] = context.args;
    if (action === undefined) return printResources(context, "pools", poolColumns, "No pools yet.");
    requireName("pools", action, name);
    if (cap === undefined)
      throw new InvalidInput("pools cap needs a number", { remedy: "Write stillwake pools cap <name> <n>|none" });
    const concurrency = cap === "none" ? null : parseInteger(cap, "cap");
    const message = `Pool ${name}: ${concurrency === null ? "no cap" : `at most ${concurrency} concurrent jobs`}.`;
    return changeResource(context, "POST", `/v1/pools/${pathSegment(name)}/cap`, message, { body: { concurrency } });
  },
};

const poolColumns: readonly Column<apiTypes.Pool>[] = [
  { title: "POOL", value: ({ name }) => name, elastic: true },
  { title: "CLAIMABLE", value: ({ claimable }) => claimable, right: true },
  { title: "RUNNING", value: ({ running }) => running, right: true },
  { title: "CAP", value: ({ concurrency }) => concurrency, right: true },
  {
    title: "MACHINES",
    value: ({ machines, wanted }) => machines && `${machines.now} of ${machines.max}, wants ${wanted}`,
    colour: ({ machines, wanted }) => (machines && machines.now < (wanted ?? 0) ? "yellow" : undefined),
  },
  { title: "OLDEST", value: ({ oldest }) => formatAgo(oldest), right: true },
  { title: "NEXT DUE", value: ({ nextDue }) => formatAgo(nextDue), right: true, optional: true },
  {
    title: "PROBLEM",
    value: ({ name, providerError, wastedStarts }) =>
      providerError?.message ?? (wastedStarts > 0 ? formatWastedStarts(name, wastedStarts) : ""),
    colour: () => "red",
    elastic: true,
  },
  {
    title: "PAUSED",
    value: ({ paused }) =>
      paused && [formatAgo(paused.at), paused.by && `by ${paused.by}`, paused.reason].filter(Boolean).join(", "),
    colour: () => "yellow",
    elastic: true,
  },
];

/** After three wasted starts the orchestrator starts no machine for a while. */
function formatWastedStarts(pool: string, wastedStarts: number): string {
  const machines = wastedStarts === 1 ? "machine" : `${wastedStarts} machines`;
  const text = `the last ${machines} ended without running a job`;
  return wastedStarts < 3
    ? text
    : `${text}: see stillwake machines --ended; stillwake resume --pool ${pool} tries again`;
}

export const machinesCommand: Command = {
  name: "machines",
  group: "Inspect",
  summary: "list the machines, and the workers without a machine",
  usage: [""],
  args: [0, 0],
  flags: {
    ended: "recently ended machines instead, with the reason",
    pool: "<name> of this pool",
    ...apiFlags,
  },
  examples: [
    ["machines", ""],
    ["machines --ended --pool scan", "why did they end?"],
  ],
  async run({ flags, screen, api }) {
    const result = await (await api()).call("GET", "/v1/machines", {
      query: { ended: flags.ended ? "true" : undefined },
    });
    const machines = (result.machines as apiTypes.Machine[]).filter(
      ({ pool, end }) => (end !== null) === Boolean(flags.ended) && (flags.pool ?? pool) === pool,
    );
    if (flags.json) screen.json({ machines });
    else if (flags.ended) printTable(screen, machines, endedColumns, "No machine ended recently.");
    else printTable(screen, machines, machineColumns, "No machine or worker is running.");
    return 0;
  },
};

const RUNNING_STATES = new Set<apiTypes.Machine["state"]>(["up", "idle"]);

const machineColumns: Column<apiTypes.Machine>[] = [
  { title: "MACHINE", value: ({ worker }) => worker, elastic: true },
  { title: "POOL", value: ({ pool }) => pool },
  {
    title: "STATE",
    value: ({ state }) => state,
    colour: ({ state }) => (state === "up" ? "green" : state === "idle" ? undefined : "yellow"),
  },
  {
    title: "RUNNING",
    value: ({ running, machine }) => (machine ? `${running}/${machine.slots}` : running),
    right: true,
  },
  { title: "BUSY SINCE", value: ({ since }) => formatAgo(since), right: true, optional: true },
  { title: "LEASE ENDS", value: ({ leaseUntil }) => formatAgo(leaseUntil), right: true, optional: true },
  {
    title: "STARTED",
    value: ({ machine }) => machine && formatAgo(machine.startedAt ?? machine.requestedAt),
    right: true,
  },
  { title: "SIZE", value: ({ machine }) => machine && formatSize(machine), elastic: true, optional: true },
  {
    title: "NOTICES WORK",
    value: ({ listening, state }) => (RUNNING_STATES.has(state) ? (listening ? "at once" : "by polling") : ""),
    optional: true,
  },
  { title: "STARTED BECAUSE", value: ({ machine }) => machine?.why, elastic: true, optional: true },
];

const endedColumns: Column<apiTypes.Machine>[] = [
  { title: "MACHINE", value: ({ worker }) => worker, elastic: true },
  { title: "POOL", value: ({ pool }) => pool },
  { title: "ENDED", value: ({ end }) => formatAgo(end?.at), right: true },
  {
    title: "LASTED",
    value: ({ machine, end }) => formatElapsed(machine!.startedAt ?? machine!.requestedAt, end!.at),
    right: true,
  },
  { title: "JOBS", value: ({ machine }) => machine!.jobs, right: true },
  {
    title: "REASON",
    value: ({ end }) => end!.how,
    colour: ({ end }) => (end!.normal ? undefined : "red"),
    elastic: true,
  },
  { title: "SIZE", value: ({ machine }) => formatSize(machine!), elastic: true, optional: true },
];

function formatSize({ provider, size, region }: NonNullable<apiTypes.Machine["machine"]>): string {
  return [provider, size, region].filter(Boolean).join(" ");
}
