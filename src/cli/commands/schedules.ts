// stillwake schedules.

import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { parseInteger, parseJson, pathSegment } from "../arguments.ts";
import { apiFlags, type Command, type CommandContext } from "../command.ts";
import { type Column, printTable } from "../output/table.ts";
import { formatAgo } from "../output/time.ts";
import { changeResource, printResources, requireName } from "../resource.ts";

export const schedulesCommand: Command = {
  name: "schedules",
  group: "Control",
  summary: "list the schedules, set, pause, resume or remove one, show its next run times",
  usage: [
    "",
    "set <name> --cron <cron> --pipeline <name>",
    "pause <name>",
    "resume <name>",
    "remove <name>",
    "upcoming <name>",
  ],
  args: [0, 2],
  subcommands: ["set", "pause", "resume", "remove", "upcoming"],
  flags: {
    cron: "<cron> with set: minute, hour, day of the month, month, day of the week, or @daily",
    zone: "<zone> with set: such as Europe/Berlin (default: UTC)",
    pipeline: "<name> with set: of its jobs",
    input: "<json> with set: the input of its jobs, also @file and - (default: {})",
    overlap: "<how> with set: skip (default), queue, replace, allow",
    "catch-up": "<how> with set: one (default), all, none",
    count: "<n> with upcoming: the number of occurrences (default: 10)",
    ...apiFlags,
  },
  examples: [
    ["schedules", ""],
    ["schedules set nightly --cron '30 2 * * *' --zone Europe/Berlin --pipeline report", "creates or changes it"],
    ["schedules upcoming nightly --count 3", ""],
    ["schedules pause nightly", "no jobs are enqueued until it is resumed"],
  ],
  async run(context) {
    const [action, name, extra] = context.args;
    const { flags, screen } = context;
    if (action === undefined) return printResources(context, "schedules", scheduleColumns, "There are no schedules.");
    requireName("schedules", action, name, extra);
    const path = `/v1/schedules/${pathSegment(name)}`;
    if (action === "set") return setSchedule(context, name, path);
    if (action === "remove")
      return changeResource(context, "DELETE", path, `Schedule ${name} is removed; its jobs stay.`);
    if (action !== "upcoming") {
      const message = `Schedule ${name} is ${action === "pause" ? "paused" : "resumed"}.`;
      return changeResource(context, "POST", `${path}/${action}`, message);
    }
    const upcoming = await (await context.api()).call("GET", `${path}/upcoming`, {
      query: { count: parseInteger(flags.count, "count") },
    });
    if (flags.json) screen.json(upcoming);
    else {
      const columns: Column<{ occurrence: string; at: string }>[] = [
        { title: "OCCURRENCE", value: ({ occurrence }) => occurrence },
        { title: "AT", value: ({ at }) => at },
        { title: "", value: ({ at }) => formatAgo(at) },
      ];
      printTable(screen, upcoming.occurrences, columns, "There are no upcoming occurrences.");
    }
    return 0;
  },
};

async function setSchedule(context: CommandContext, name: string, path: string): Promise<number> {
  const { flags, screen } = context;
  const { cron, zone, pipeline, overlap, catchUp } = flags;
  for (const [flag, value] of Object.entries({ cron, pipeline })) {
    if (value !== undefined) continue;
    throw new InvalidInput(`schedules set needs --${flag}`, {
      field: flag,
      remedy: "Write stillwake schedules set <name> --cron '30 2 * * *' --pipeline <name>",
    });
  }
  const body = { cron, zone, pipeline, overlap, catchUp, input: parseJson(flags.input, "input") };
  const result = await (await context.api()).call("PUT", path, { body });
  if (flags.json) screen.json(result);
  else screen.print(escapeLine(`Schedule ${name} is ${result.changed ? "set" : "unchanged"}.`));
  return 0;
}

const scheduleColumns: readonly Column<apiTypes.Schedule>[] = [
  { title: "SCHEDULE", value: ({ name }) => name, elastic: true },
  { title: "CRON", value: ({ cron }) => cron },
  { title: "ZONE", value: ({ zone }) => zone },
  { title: "PIPELINE", value: ({ pipeline }) => pipeline, elastic: true },
  { title: "NEXT", value: ({ next, paused }) => (paused ? "paused" : formatAgo(next?.at)), right: true },
  { title: "LAST", value: ({ last }) => formatAgo(last?.at), right: true },
  { title: "FIRED", value: ({ fired }) => fired, right: true },
  { title: "SKIPPED", value: ({ skipped }) => skipped || "", right: true },
  { title: "MISSED", value: ({ missed }) => missed || "", right: true },
  { title: "ERROR", value: ({ lastError }) => lastError, colour: () => "red", elastic: true },
];
