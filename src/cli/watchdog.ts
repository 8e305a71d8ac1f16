// stillwake watchdog: one call of the watchdog for a cron that speaks no SQL. It says what was done.
import { createStillwake } from "../client.ts";
import { needUrl } from "./migrate.ts";

export async function watchdogCommand(options: {
  url: string | undefined;
  schema: string;
  json: boolean;
}): Promise<number> {
  const stillwake = createStillwake({
    url: needUrl(options.url),
    schema: options.schema,
    connections: 1,
    // The next call is a minute away: it is better to fail now, and be seen, than to wait for a database that is gone.
    patience: "10s",
    // After weeks without a call there may be much to do.
    statementTimeout: "5m",
  });
  const acts = await stillwake.watchdog().finally(() => stillwake.close());
  if (options.json) console.log(JSON.stringify(acts, null, 2));
  else {
    const width = (texts: string[]) => Math.max(...texts.map((text) => text.length));
    const actWidth = width(acts.map(({ act }) => act));
    const countWidth = width(acts.map(({ count }) => String(count)));
    for (const { act, count, note } of acts) {
      console.log(`${act.padEnd(actWidth)}  ${String(count).padStart(countWidth)}  ${note}`.trimEnd());
    }
  }
  return 0;
}
