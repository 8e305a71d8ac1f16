// The game of model.test.ts with many jobs, few keys and some tenants: slots are taken, waited for, passed on, refused and replaced all the time.
import { afterAll, beforeAll, describe, it } from "vitest";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { Engine } from "./engine.ts";
import { playGames } from "./game.ts";

const engine = new Engine((await freshDatabase()).url, { laned: true });
beforeAll(() => engine.open());
afterAll(() => engine.close());

describe("keys", () => {
  it("match the model in every game: never more active jobs than allowed, no job waits for a free slot, first come, first served", {
    timeout: 900_000,
  }, async () => {
    const { games, moves, longest, hits } = await playGames(
      engine,
      FULL ? 2000 : 80,
      { maxJobs: 14, atOnce: 3, keys: ["k", "k", "k", "m", null], tenants: [null, null, "t", "u"] },
      ["joined", "waited", "replaced", "rejected", "admitted", "recovered"],
    );
    recordFigure("keys: games against the model", games, "", `${moves} moves, the longest game ${longest}`);
    recordFigure(
      "keys: admitted after they had waited",
      hits.admitted,
      "",
      `${hits.waited} waited, ${hits.joined} joined, ${hits.spared} waited because the holder had a cancel request, ${hits.replaced} replaced, ${hits.rejected} calls rejected`,
    );
  });
});
