// stillwake watchdog: one call of the watchdog for a cron that speaks no SQL. It says what was done.
import type { WatchdogAct } from "../../db/calls/jobs.ts";
import { pokeAt } from "../checks.ts";
import type { Call } from "../command.ts";
import { inLine } from "../output/escape.ts";

export async function watchdogCommand(call: Call): Promise<number> {
  const { flags, config, screen } = call;
  const viaServer = flags.server ?? (flags.url ? undefined : config.server);
  const acts = viaServer ? await atServer(call) : await inDatabase(call);
  if (flags.json) screen.json(acts);
  else {
    const width = (texts: string[]) => Math.max(...texts.map((text) => text.length));
    const actWidth = width(acts.map(({ act }) => act));
    const countWidth = width(acts.map(({ count }) => String(count)));
    for (const { act, count, note } of acts) {
      screen.print(`${act.padEnd(actWidth)}  ${String(count).padStart(countWidth)}  ${inLine(note)}`.trimEnd());
    }
  }
  return 0;
}

async function atServer(call: Call): Promise<WatchdogAct[]> {
  return (await (await call.door()).call("POST", "/v1/watchdog")).acts;
}

async function inDatabase({ flags, config }: Call): Promise<WatchdogAct[]> {
  const [{ createStillwake }, { needUrl }] = await Promise.all([
    import("../../client/client.ts"),
    import("./migrate.ts"),
  ]);
  const stillwake = createStillwake({
    url: needUrl(flags.url ?? config.databaseUrl),
    schema: flags.schema ?? config.schema,
    connections: 1,
    // The next call is a minute away: it is better to fail now, and be seen, than to wait for a database that is gone.
    patience: "10s",
    // After weeks without a call there may be much to do.
    statementTimeout: "5m",
    ...(config.pokeUrl && { poke: pokeAt(config.pokeUrl, config.token) }),
  });
  try {
    const acts = await stillwake.watchdog();
    // What was lost on its way is made up for here: whoever starts machines looks once more.
    await stillwake.poke();
    return acts;
  } finally {
    await stillwake.close();
  }
}
