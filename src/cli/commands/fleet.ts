// stillwake fleet: whose machines are ours. A copy of the database, such as staging made from a backup, carries the name of the original's fleet and is refused
// until somebody has said what it is.

import { adoptFleet, readFleet } from "../../db/calls/machines.ts";
import { Database } from "../../db/database.ts";
import { databaseAddress } from "../../orchestrator/database-address.ts";
import type { Call } from "../command.ts";
import { needUrl } from "./migrate.ts";

export async function fleetCommand({ flags, words, config, screen }: Call): Promise<number> {
  const url = needUrl(flags.url ?? config.databaseUrl);
  const address = databaseAddress(url);
  const database = new Database({ url, schema: flags.schema ?? config.schema, connections: 1 });
  try {
    if (words[0] === "adopt") {
      const id = await adoptFleet(database, { address, same: flags.same ?? false, by: flags.by ?? null });
      screen.print(
        flags.same
          ? `Fleet ${id} is this database's, here too. Its machines stay its own.`
          : `This database has a fleet of its own now: ${id}. Machines of the fleet it was copied from are not touched.`,
      );
      return 0;
    }
    const { id, fits, why } = await readFleet(database, address);
    if (flags.json) screen.print(JSON.stringify({ id, fits, why }));
    else if (fits) screen.print(`Fleet ${id}. Its machines are named sw-${id}-<pool>-…`);
    else
      screen.print(
        [
          `Fleet ${id}, but this database looks like a copy: ${why}.`,
          "No machine is started or ended from here until you say which it is:",
          "  stillwake fleet adopt          a copy: it gets a fleet of its own, the machines stay with the original",
          "  stillwake fleet adopt --same   the original, moved or reached by another name: it keeps its machines",
        ].join("\n"),
      );
    return fits ? 0 : 1;
  } finally {
    await database.close();
  }
}
