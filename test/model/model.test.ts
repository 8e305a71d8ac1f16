// Random games against a real Postgres, compared move by move with a model that knows no SQL.
import { afterAll, beforeAll, describe, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { Engine } from "./engine.ts";
import { playGames } from "./game.ts";

const engine = new Engine((await freshDatabase()).url);
beforeAll(() => engine.open());
afterAll(() => engine.close());

describe("leases", () => {
  it("match the model in every game, and no write of a replaced attempt is accepted", {
    timeout: 300_000,
  }, async () => {
    const { games, moves, longest, hits } = await playGames(
      engine,
      FULL ? 3000 : 150,
      { maxJobs: 7, atOnce: 1, keys: [null, null, null, "k"], tenants: [null] },
      ["refused", "late", "repeated", "poisoned", "exhausted", "recovered", "strays", "outages"],
    );
    recordFigure("model: games against the model", games, "", `${moves} moves, the longest game ${longest}`);
    recordFigure("model: calls made", engine.calls);
    recordFigure("model: jobs committed after their pool got lanes", hits.strays);
    recordFigure("model: stale or forged writes refused", hits.refused, "", "accepted: 0");
    recordFigure("model: late writes of attempts not yet replaced, accepted", hits.late);
    recordFigure(
      "model: leases recovered",
      hits.recovered,
      "",
      `${hits.poisoned} poisoned, ${hits.exhausted} exhausted`,
    );
  });
});
