// stillwake stats and stillwake pipelines.
import type { api as apiTypes } from "../../server/index.ts";
import { pathSegment } from "../arguments.ts";
import { apiFlags, type Command } from "../command.ts";
import { type Column, printFacts, printTable } from "../output/table.ts";
import { formatAgo, formatDuration } from "../output/time.ts";
import { printResources } from "../resource.ts";

export const statsCommand: Command = {
  name: "stats",
  group: "Inspect",
  summary: "counts of queued, running and recently finished jobs",
  usage: [""],
  args: [0, 0],
  flags: { span: "<time> how far back, at most 24h (default: 1h)", ...apiFlags },
  examples: [
    ["stats", "the last hour"],
    ["stats --span 24h --json", "the last day, as JSON"],
  ],
  async run({ flags, screen, api }) {
    const stats = await (await api()).call("GET", "/v1/stats", { query: { span: flags.span } });
    if (flags.json) {
      screen.json(stats);
      return 0;
    }
    const { live, waiting, ended, more, oldest, spanMs, pipelines } = stats;
    const reasons = Object.entries(waiting as Record<string, number>).map(([reason, count]) => `${count} ${reason}`);
    printFacts(screen, [
      ["queued", `${live.queued}${more ? " or more" : ""}${reasons.length > 0 ? ` (${reasons.join(", ")})` : ""}`],
      ["oldest", formatAgo(oldest)],
      ["running", live.running],
      ["paused", live.paused],
      [
        `in ${formatDuration(spanMs)}`,
        `${ended.completed} completed, ${ended.failed} failed, ${ended.cancelled} cancelled`,
      ],
    ]);
    if (pipelines.length === 0) return 0;
    screen.print("");
    const seconds = (value: number | null) => (value === null ? "" : formatDuration(value * 1000));
    printTable<apiTypes.Stats["pipelines"][number]>(
      screen,
      pipelines,
      [
        { title: "PIPELINE", value: ({ name }) => name, elastic: true },
        { title: "COMPLETED", value: ({ completed }) => completed, right: true },
        {
          title: "FAILED",
          value: ({ failed }) => failed,
          right: true,
          colour: ({ failed }) => (failed ? "red" : undefined),
        },
        { title: "CANCELLED", value: ({ cancelled }) => cancelled, right: true },
        { title: "MEAN", value: ({ meanSeconds }) => seconds(meanSeconds), right: true },
        { title: "LONGEST", value: ({ longestSeconds }) => seconds(longestSeconds), right: true },
      ],
      "",
    );
    return 0;
  },
};

export const pipelinesCommand: Command = {
  name: "pipelines",
  group: "Inspect",
  summary: "list the pipelines, or show one with its input schema",
  usage: ["", "<name>"],
  args: [0, 1],
  flags: { ...apiFlags },
  examples: [
    ["pipelines", ""],
    ["pipelines extraction", "with its input schema"],
  ],
  async run(context) {
    const { flags, screen, api } = context;
    const [name] = context.args;
    if (name === undefined) {
      const emptyText = "No pipelines yet: a worker or the first enqueued job registers them.";
      return printResources(context, "pipelines", pipelineColumns, emptyText);
    }
    const pipeline = await (await api()).call("GET", `/v1/pipelines/${pathSegment(name)}`);
    if (flags.json) {
      screen.json(pipeline);
      return 0;
    }
    const { inputSchema, updatedAt, ...facts } = pipeline;
    const shown = Object.entries(facts).map(
      ([field, value]) => [field, Array.isArray(value) ? value.join(", ") : value] as const,
    );
    printFacts(screen, [...shown, ["updated", formatAgo(updatedAt)]]);
    if (inputSchema !== null) {
      screen.print("");
      screen.json(inputSchema);
    }
    return 0;
  },
};

const pipelineColumns: readonly Column<apiTypes.Pipeline>[] = [
  { title: "PIPELINE", value: ({ name }) => name, elastic: true },
  { title: "POOL", value: ({ pool }) => pool },
  { title: "ATTEMPTS", value: ({ maxAttempts }) => maxAttempts, right: true },
  { title: "CONCURRENCY", value: ({ concurrency }) => concurrency, right: true },
  { title: "LIMITS", value: ({ limits }) => limits.join(", "), elastic: true },
  { title: "BREAKERS", value: ({ breakers }) => breakers.join(", "), elastic: true },
  { title: "UPDATED", value: ({ updatedAt }) => formatAgo(updatedAt), right: true },
];
