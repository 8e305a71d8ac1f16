// stillwake watchdog: one run of the watchdog, for cron, through the server or in the database.
import type { WatchdogAction } from "../../db/calls/housekeeping.ts";
import { escapeLine } from "../../text/escape.ts";
import { apiFlags, type Command, type CommandContext } from "../command.ts";

export const watchdogCommand: Command = {
  name: "watchdog",
  group: "Run",
  summary: "recover and expire jobs, create and drop partitions, once; for cron, where no other process runs",
  usage: [""],
  args: [0, 0],
  flags: { ...apiFlags, json: "print JSON" },
  examples: [
    ["watchdog", "from cron: * * * * * DATABASE_URL=postgres://app@localhost/app stillwake watchdog"],
    ["watchdog --server https://jobs.example.com", "where only the server can be reached; needs a worker token"],
  ],
  async run(context) {
    const { flags, config, screen, api } = context;
    const useServer = flags.server ?? (flags.url ? undefined : config.server);
    const actions: WatchdogAction[] = useServer
      ? (await (await api()).call("POST", "/v1/watchdog")).actions
      : await runInDatabase(context);
    if (flags.json) screen.json(actions);
    else {
      const width = (texts: string[]) => Math.max(...texts.map((text) => text.length));
      const actWidth = width(actions.map(({ act }) => act));
      const countWidth = width(actions.map(({ count }) => String(count)));
      for (const { act, count, note } of actions) {
        screen.print(`${act.padEnd(actWidth)}  ${String(count).padStart(countWidth)}  ${escapeLine(note)}`.trimEnd());
      }
    }
    return 0;
  },
};

async function runInDatabase({ flags, config }: CommandContext): Promise<WatchdogAction[]> {
  const [{ createStillwake }, { pokeOptions, requireDatabaseUrl }] = await Promise.all([
    import("../../client/client.ts"),
    import("../connection.ts"),
  ]);
  const stillwake = createStillwake({
    url: requireDatabaseUrl(flags.url ?? config.databaseUrl),
    schema: flags.schema ?? config.schema,
    connections: 1,
    // The next run is a minute away: fail visibly instead of waiting for a database that cannot be reached.
    retryTimeout: "10s",
    ...(config.pokeUrl && { poke: pokeOptions(config.pokeUrl, config.token) }),
  });
  try {
    const actions = await stillwake.watchdog();
    // Makes up for pokes that were lost: the orchestrator checks for work again.
    await stillwake.poke();
    return actions;
  } finally {
    await stillwake.close();
  }
}
