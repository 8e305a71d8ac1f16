// What there is to see: numbers, pipelines, machines and workers.
import type { nouns } from "../../server/index.ts";
import { inPath } from "../api-client.ts";
import type { Runner } from "../command.ts";
import { ago, between, span } from "../output/moments.ts";
import { type Column, printFacts, printTable } from "../output/table.ts";

export const statsCommand: Runner = async ({ flags, screen, door }) => {
  const api = await door();
  const stats = await api.call("GET", "/v1/stats", { query: { span: flags.span } });
  if (flags.json) {
    screen.json(stats);
    return 0;
  }
  const { live, waiting, ended, more, oldest, spanMs, pipelines } = stats;
  const reasons = Object.entries(waiting as Record<string, number>).map(([reason, count]) => `${count} ${reason}`);
  printFacts(screen, [
    ["queued", `${live.queued}${more ? " or more" : ""}${reasons.length > 0 ? ` (${reasons.join(", ")})` : ""}`],
    ["oldest", ago(oldest)],
    ["running", live.running],
    ["paused", live.paused],
    [`in ${span(spanMs)}`, `${ended.completed} completed, ${ended.failed} failed, ${ended.cancelled} cancelled`],
  ]);
  if (pipelines.length === 0) return 0;
  screen.print("");
  const seconds = (value: number | null) => (value === null ? "" : span(value * 1000));
  printTable<Ended>(
    screen,
    pipelines,
    [
      { title: "PIPELINE", of: ({ name }) => name, elastic: true },
      { title: "COMPLETED", of: ({ completed }) => completed, right: true },
      {
        title: "FAILED",
        of: ({ failed }) => failed,
        right: true,
        colour: ({ failed }) => (failed ? "red" : undefined),
      },
      { title: "CANCELLED", of: ({ cancelled }) => cancelled, right: true },
      { title: "MEAN", of: ({ meanSeconds }) => seconds(meanSeconds), right: true },
      { title: "LONGEST", of: ({ longestSeconds }) => seconds(longestSeconds), right: true },
    ],
    "",
  );
  return 0;
};

interface Ended {
  name: string;
  completed: number;
  failed: number;
  cancelled: number;
  meanSeconds: number | null;
  longestSeconds: number | null;
}

export const pipelinesCommand: Runner = async ({ flags, words, screen, door }) => {
  const api = await door();
  if (words[0] !== undefined) {
    const one = await api.call("GET", `/v1/pipelines/${inPath(words[0])}`);
    if (flags.json) screen.json(one);
    else {
      const { inputSchema, updatedAt, ...facts } = one;
      const shown = Object.entries(facts).map(
        ([name, value]) => [name, Array.isArray(value) ? value.join(", ") : value] as const,
      );
      printFacts(screen, [...shown, ["updated", ago(updatedAt)]]);
      if (inputSchema !== null) {
        screen.print("");
        screen.json(inputSchema);
      }
    }
    return 0;
  }
  const answer = await api.call("GET", "/v1/pipelines");
  if (flags.json) screen.json(answer);
  else {
    printTable<Pipeline>(
      screen,
      answer.pipelines,
      [
        { title: "PIPELINE", of: ({ name }) => name, elastic: true },
        { title: "POOL", of: ({ pool }) => pool },
        { title: "ATTEMPTS", of: ({ maxAttempts }) => maxAttempts, right: true },
        { title: "AT ONCE", of: ({ concurrency }) => concurrency, right: true },
        { title: "LIMITS", of: ({ limits }) => limits.join(", "), elastic: true },
        { title: "BREAKERS", of: ({ breakers }) => breakers.join(", "), elastic: true },
        { title: "UPDATED", of: ({ updatedAt }) => ago(updatedAt), right: true },
      ],
      "No pipelines yet: they are known once a worker has them or a job was enqueued.",
    );
  }
  return 0;
};

interface Pipeline {
  name: string;
  pool: string;
  maxAttempts: number;
  concurrency: number | null;
  limits: string[];
  breakers: string[];
  updatedAt: string;
}

export const machinesCommand: Runner = async ({ flags, screen, door }) => {
  const answer = await (await door()).call("GET", "/v1/machines", {
    query: { ended: flags.ended ? "true" : undefined },
  });
  const all = answer.machines as nouns.Machine[];
  const machines = all.filter(
    ({ pool, end }) => (end !== null) === Boolean(flags.ended) && (flags.pool ?? pool) === pool,
  );
  if (flags.json) screen.json({ machines });
  else if (flags.ended) printTable(screen, machines, endedColumns, "No machine has ended lately.");
  else printTable(screen, machines, machineColumns, "Nobody is awake.");
  return 0;
};

const awake = new Set<nouns.Machine["state"]>(["up", "idle"]);

const machineColumns: Column<nouns.Machine>[] = [
  { title: "MACHINE", of: ({ worker }) => worker, elastic: true },
  { title: "POOL", of: ({ pool }) => pool },
  {
    title: "STATE",
    of: ({ state }) => state,
    colour: ({ state }) => (state === "up" ? "green" : state === "idle" ? undefined : "yellow"),
  },
  {
    title: "RUNNING",
    of: ({ running, machine }) => (machine ? `${running}/${machine.slots}` : running),
    right: true,
  },
  { title: "BUSY SINCE", of: ({ since }) => ago(since), right: true, spare: true },
  { title: "LEASE ENDS", of: ({ leaseUntil }) => ago(leaseUntil), right: true, spare: true },
  {
    title: "STARTED",
    of: ({ machine }) => machine && ago(machine.startedAt ?? machine.askedAt),
    right: true,
  },
  { title: "SIZE", of: ({ machine }) => machine && sizeWords(machine), elastic: true, spare: true },
  {
    title: "HEARS OF WORK",
    of: ({ listening, state }) => (awake.has(state) ? (listening ? "at once" : "when it looks") : ""),
    spare: true,
  },
  { title: "ASKED FOR BECAUSE", of: ({ machine }) => machine?.why, elastic: true, spare: true },
];

const endedColumns: Column<nouns.Machine>[] = [
  { title: "MACHINE", of: ({ worker }) => worker, elastic: true },
  { title: "POOL", of: ({ pool }) => pool },
  { title: "ENDED", of: ({ end }) => ago(end?.at), right: true },
  { title: "LASTED", of: ({ machine, end }) => between(machine!.startedAt ?? machine!.askedAt, end!.at), right: true },
  { title: "JOBS", of: ({ machine }) => machine!.jobs, right: true },
  {
    title: "HOW",
    of: ({ end }) => end!.how,
    colour: ({ end }) => (end!.well ? undefined : "red"),
    elastic: true,
  },
  { title: "SIZE", of: ({ machine }) => sizeWords(machine!), elastic: true, spare: true },
];

function sizeWords({ provider, size, region }: NonNullable<nouns.Machine["machine"]>): string {
  return [provider, size, region].filter(Boolean).join(" ");
}
