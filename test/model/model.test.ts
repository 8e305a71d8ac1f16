// T1: random games against a real Postgres, held move by move against a model that knows no SQL.
import { afterAll, beforeAll, describe, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { Engine } from "./engine.ts";
import { playGames } from "./game.ts";

const engine = new Engine((await freshDatabase()).url);
beforeAll(() => engine.open());
afterAll(() => engine.close());

describe("the lease machine", () => {
  it("T1: does in every game what the model says, and no write of a replaced attempt is accepted (I1-I4, I6, I7)", {
    timeout: 300_000,
  }, async () => {
    const { games, moves, longest, shots } = await playGames(
      engine,
      300,
      { most: 7, atOnce: 1, keys: [null, null, null, "k"] },
      ["refused", "late", "repeated", "poisoned", "exhausted", "recovered"],
    );
    recordFigure("T1: games against the model", games, "", `${moves} moves, the longest game ${longest}`);
    recordFigure("T1: verbs called", engine.calls);
    recordFigure("T1: stale or forged writes refused", shots.refused, "", "shots on goal; accepted: 0");
    recordFigure("T1: late writes of attempts not yet replaced, accepted", shots.late);
    recordFigure(
      "T1: leases recovered",
      shots.recovered,
      "",
      `${shots.poisoned} poisoned, ${shots.exhausted} exhausted`,
    );
  });
});
