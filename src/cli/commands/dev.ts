// stillwake dev: declaration; dev/dev.ts starts everything.
import { type Command, configHelp, databaseFlags, pipelinesHelp } from "../command.ts";

export const devCommand: Command = {
  name: "dev",
  group: "Get started",
  summary: "start Postgres, workers, the API and the dashboard on this machine",
  usage: [""],
  args: [0, 0],
  flags: {
    pipelines: pipelinesHelp,
    slots: "<n> concurrent jobs (default: 4)",
    port: "<port> the first to try (default: STILLWAKE_PORT or 4700)",
    enqueue:
      "<pipeline> enqueue a job at the start and follow it; an unfinished job of an earlier start is followed instead",
    input: "<json> the input of that job: JSON, or @file",
    demo: "load the two demo pipelines beside your own",
    ...databaseFlags,
    url: "<url> a database instead of the embedded Postgres",
    config: configHelp,
  },
  examples: [
    ["dev", "with the pipelines of stillwake.config.ts, or with two demo pipelines"],
    ["dev --pipelines ./pipelines", "with these pipelines"],
    ["dev --pipelines ./pipelines --enqueue digest --input @sample.json", "and follow one job"],
  ],
  run: async (context) => (await import("../dev/dev.ts")).runDev(context),
};
