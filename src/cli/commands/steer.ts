// Pools, limits, breakers and schedules: seen as tables, steered by a word and a name.
import { InvalidInput } from "../../errors.ts";
import { type Ask, inPath } from "../api-client.ts";
import type { Call, Runner } from "../command.ts";
import { numberOf } from "../json-word.ts";
import { inLine } from "../output/escape.ts";
import { ago, span } from "../output/moments.ts";
import { type Column, printTable } from "../output/table.ts";

export const poolsCommand: Runner = async (call) => {
  const [act, name, most] = call.words;
  if (act === undefined) return list(call, "pools", poolColumns, "There are no pools yet.");
  needName("pools", act, name);
  if (most === undefined)
    throw new InvalidInput("pools cap needs a number", { remedy: "Write stillwake pools cap <name> <n>|none" });
  const concurrency = most === "none" ? null : numberOf(most, "cap");
  const done = `Pool ${name}: ${concurrency === null ? "as many jobs at once as there are slots" : `at most ${concurrency} jobs at once`}.`;
  return steer(call, "POST", `/v1/pools/${inPath(name)}/cap`, done, { body: { concurrency } });
};

export const limitsCommand: Runner = async (call) => {
  const [act, name, extra] = call.words;
  if (act === undefined) return list(call, "limits", limitColumns, "There are no limits.");
  needName("limits", act, name, extra);
  const done = `Limit ${name} has forgotten what it learned.`;
  return steer(call, "POST", `/v1/limits/${inPath(name)}/reset`, done);
};

export const breakersCommand: Runner = async (call) => {
  const [act, name, extra] = call.words;
  const { for: time, reason } = call.flags;
  if (act !== "open" && (time ?? reason) !== undefined)
    throw new InvalidInput("--for and --reason belong to breakers open", { remedy: "Leave them out" });
  if (act === undefined) return list(call, "breakers", breakerColumns, "There are no breakers.");
  needName("breakers", act, name, extra);
  const until = time === undefined ? "until somebody closes it" : `for ${time}`;
  const done = act === "open" ? `Breaker ${name} is open ${until}.` : `Breaker ${name} is closed.`;
  const ask = act === "open" ? { body: { for: time, reason } } : {};
  return steer(call, "POST", `/v1/breakers/${inPath(name)}/${act}`, done, ask);
};

export const schedulesCommand: Runner = async (call) => {
  const [act, name, extra] = call.words;
  const { flags, screen } = call;
  if (act === undefined) return list(call, "schedules", scheduleColumns, "There are no schedules.");
  needName("schedules", act, name, extra);
  const path = `/v1/schedules/${inPath(name)}`;
  if (act === "remove") return steer(call, "DELETE", path, `Schedule ${name} is removed; its jobs stay.`);
  if (act !== "upcoming") {
    return steer(call, "POST", `${path}/${act}`, `Schedule ${name} is ${act === "pause" ? "paused" : "going on"}.`);
  }
  const answer = await (await call.door()).call("GET", `${path}/upcoming`, {
    query: { count: numberOf(flags.count, "count") },
  });
  if (flags.json) screen.json(answer);
  else {
    const columns: Column<{ slot: string; at: string }>[] = [
      { title: "SLOT", of: ({ slot }) => slot },
      { title: "AT", of: ({ at }) => at },
      { title: "", of: ({ at }) => ago(at) },
    ];
    printTable(screen, answer.slots, columns, "It has no slot that comes.");
  }
  return 0;
};

// biome-ignore lint/suspicious/noExplicitAny: rows of the API.
type Columns = readonly Column<any>[];

async function list({ flags, screen, door }: Call, noun: string, columns: Columns, none: string): Promise<number> {
  const answer = await (await door()).call("GET", `/v1/${noun}`);
  if (flags.json) screen.json(answer);
  else printTable(screen, answer[noun], columns, none);
  return 0;
}

async function steer(
  call: Call,
  method: "POST" | "DELETE",
  path: string,
  done: string,
  ask: Ask = {},
): Promise<number> {
  const answer = await (await call.door()).call(method, path, ask);
  if (call.flags.json) call.screen.json(answer);
  else call.screen.print(inLine(done));
  return 0;
}

function needName(noun: string, act: string, name: string | undefined, extra?: string): asserts name is string {
  if (name === undefined)
    throw new InvalidInput(`${noun} ${act} needs a name`, { remedy: `Write stillwake ${noun} ${act} <name>` });
  if (extra !== undefined)
    throw new InvalidInput(`Unexpected "${extra}" after ${noun} ${act} ${name}`, {
      remedy: `See stillwake ${noun} --help`,
    });
}

/** From three on nothing is started for a while. */
function wastedStartsText(pool: string, wastedStarts: number): string {
  if (wastedStarts < 3)
    return `the last ${wastedStarts === 1 ? "machine was" : `${wastedStarts} machines were`} of no use`;
  return `the last ${wastedStarts} machines were of no use: see stillwake machines --ended; stillwake resume --pool ${pool} tries again`;
}

const poolColumns: Columns = [
  { title: "POOL", of: ({ name }) => name, elastic: true },
  { title: "CLAIMABLE", of: ({ claimable }) => claimable, right: true },
  { title: "RUNNING", of: ({ running }) => running, right: true },
  { title: "AT ONCE", of: ({ concurrency }) => concurrency, right: true },
  {
    title: "MACHINES",
    of: ({ machines, wanted }) => machines && `${machines.now} of ${machines.max}, wants ${wanted}`,
    colour: ({ machines, wanted }) => (machines && machines.now < wanted ? "yellow" : undefined),
  },
  { title: "OLDEST", of: ({ oldest }) => ago(oldest), right: true },
  { title: "NEXT DUE", of: ({ nextDue }) => ago(nextDue), right: true, spare: true },
  {
    title: "TROUBLE",
    of: ({ name, trouble, wastedStarts }) =>
      trouble?.message ?? (wastedStarts > 0 ? wastedStartsText(name, wastedStarts) : ""),
    colour: () => "red",
    elastic: true,
  },
  {
    title: "PAUSED",
    of: ({ paused }) =>
      paused && [ago(paused.at), paused.by && `by ${paused.by}`, paused.reason].filter(Boolean).join(", "),
    colour: () => "yellow",
    elastic: true,
  },
];

const limitColumns: Columns = [
  { title: "LIMIT", of: ({ name }) => name, elastic: true },
  {
    title: "MOST",
    of: ({ max, perMs }) => (max === null ? "" : `${max}${perMs === null ? "" : ` per ${span(perMs)}`}`),
    right: true,
  },
  { title: "AT ONCE", of: ({ concurrency }) => concurrency, right: true },
  { title: "FREE", of: ({ free }) => free, right: true, colour: ({ free }) => (free > 0 ? undefined : "yellow") },
  { title: "AGAIN", of: ({ until }) => ago(until), right: true },
  { title: "TOLD", of: ({ told }) => told && `${told.remaining} left, resets ${ago(told.resetAt)}`, elastic: true },
  { title: "REASON", of: ({ reason }) => reason, elastic: true },
];

const breakerColumns: Columns = [
  { title: "BREAKER", of: ({ name }) => name, elastic: true },
  { title: "STATE", of: ({ state }) => state, colour: ({ state }) => (state === "open" ? "red" : "green") },
  { title: "FAILURES", of: ({ failures, threshold }) => `${failures}/${threshold}`, right: true },
  { title: "OPENED", of: ({ openedAt }) => ago(openedAt), right: true },
  {
    title: "TRIES AGAIN",
    of: ({ state, resumeAt }) => (state === "open" ? ago(resumeAt) || "when closed" : ""),
    right: true,
  },
  { title: "BY", of: ({ openedBy }) => openedBy },
  { title: "REASON", of: ({ reason }) => reason, elastic: true },
];

const scheduleColumns: Columns = [
  { title: "SCHEDULE", of: ({ name }) => name, elastic: true },
  { title: "CRON", of: ({ cron }) => cron },
  { title: "ZONE", of: ({ zone }) => zone },
  { title: "PIPELINE", of: ({ pipeline }) => pipeline, elastic: true },
  { title: "NEXT", of: ({ next, paused }) => (paused ? "paused" : ago(next?.at)), right: true },
  { title: "LAST", of: ({ last }) => ago(last?.at), right: true },
  { title: "FIRED", of: ({ fired }) => fired, right: true },
  { title: "SKIPPED", of: ({ skipped }) => skipped || "", right: true },
  { title: "MISSED", of: ({ missed }) => missed || "", right: true },
  { title: "TROUBLE", of: ({ lastError }) => lastError, colour: () => "red", elastic: true },
];
