// stillwake limits and stillwake breakers.
import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { pathSegment } from "../arguments.ts";
import { apiFlags, type Command } from "../command.ts";
import type { Column } from "../output/table.ts";
import { formatAgo, formatDuration } from "../output/time.ts";
import { changeResource, printResources, requireName } from "../resource.ts";

export const limitsCommand: Command = {
  name: "limits",
  group: "Control",
  summary: "list the limits, or reset what one has learned",
  usage: ["", "reset <name>"],
  args: [0, 2],
  subcommands: ["reset"],
  flags: { ...apiFlags },
  examples: [
    ["limits", ""],
    ["limits reset github", "discard the rate limit that GitHub reported"],
  ],
  async run(context) {
    const [action, name, extra] = context.args;
    if (action === undefined) return printResources(context, "limits", limitColumns, "There are no limits.");
    requireName("limits", action, name, extra);
    return changeResource(context, "POST", `/v1/limits/${pathSegment(name)}/reset`, `Limit ${name} is reset.`);
  },
};

const limitColumns: readonly Column<apiTypes.Limit>[] = [
  { title: "LIMIT", value: ({ name }) => name, elastic: true },
  {
    title: "MAX",
    value: ({ max, perMs }) => (max === null ? "" : `${max}${perMs === null ? "" : ` per ${formatDuration(perMs)}`}`),
    right: true,
  },
  { title: "CONCURRENCY", value: ({ concurrency }) => concurrency, right: true },
  { title: "FREE", value: ({ free }) => free, right: true, colour: ({ free }) => (free > 0 ? undefined : "yellow") },
  { title: "AVAILABLE", value: ({ until }) => formatAgo(until), right: true },
  {
    title: "REPORTED",
    value: ({ reported }) => reported && `${reported.remaining} left, resets ${formatAgo(reported.resetAt)}`,
    elastic: true,
  },
  { title: "REASON", value: ({ reason }) => reason, elastic: true },
];

export const breakersCommand: Command = {
  name: "breakers",
  group: "Control",
  summary: "list the breakers, open or close one",
  usage: ["", "open <name>", "close <name>"],
  args: [0, 2],
  subcommands: ["open", "close"],
  flags: {
    for: "<time> open it for this time (default: until it is closed)",
    reason: "<text> shown with the jobs that wait",
    ...apiFlags,
  },
  examples: [
    ["breakers", ""],
    ['breakers open github --for 30m --reason "outage on their status page"', ""],
    ["breakers close github", "its jobs resume at once"],
  ],
  async run(context) {
    const [action, name, extra] = context.args;
    const { for: duration, reason } = context.flags;
    if (action !== "open" && (duration ?? reason) !== undefined)
      throw new InvalidInput("--for and --reason apply only to breakers open", { remedy: "Leave them out" });
    if (action === undefined) return printResources(context, "breakers", breakerColumns, "There are no breakers.");
    requireName("breakers", action, name, extra);
    const until = duration === undefined ? "until it is closed" : `for ${duration}`;
    const message = action === "open" ? `Breaker ${name} is open ${until}.` : `Breaker ${name} is closed.`;
    const request = action === "open" ? { body: { for: duration, reason } } : {};
    return changeResource(context, "POST", `/v1/breakers/${pathSegment(name)}/${action}`, message, request);
  },
};

const breakerColumns: readonly Column<apiTypes.Breaker>[] = [
  { title: "BREAKER", value: ({ name }) => name, elastic: true },
  { title: "STATE", value: ({ state }) => state, colour: ({ state }) => (state === "open" ? "red" : "green") },
  { title: "FAILURES", value: ({ failures, threshold }) => `${failures}/${threshold}`, right: true },
  { title: "OPENED", value: ({ openedAt }) => formatAgo(openedAt), right: true },
  {
    title: "NEXT TRIAL",
    value: ({ state, resumeAt }) => (state === "open" ? formatAgo(resumeAt) || "when closed" : ""),
    right: true,
  },
  { title: "BY", value: ({ openedBy }) => openedBy },
  { title: "REASON", value: ({ reason }) => reason, elastic: true },
];
