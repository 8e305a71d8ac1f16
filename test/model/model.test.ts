// T1: random games against a real Postgres, held move by move against a model that knows no SQL. On failure fast-check prints the
// seed and the shortest list of moves that still fails; STILLWAKE_SEED=<seed> plays that game again, STILLWAKE_RUNS sets how many.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newId } from "../../src/ids.ts";
import { freshDatabase } from "../setup/database.ts";
import { recordFigure } from "../setup/figures.ts";
import { Engine } from "./engine.ts";
import type { Shots } from "./move.ts";
import { otherMoves } from "./operator-moves.ts";
import { workerMoves } from "./worker-moves.ts";
import { newWorld } from "./world.ts";

const RUNS = Number(process.env.STILLWAKE_RUNS ?? 300);
const SEED = process.env.STILLWAKE_SEED ? Number(process.env.STILLWAKE_SEED) : undefined;

// For scripts/mutants.mjs, which wants to know that a game was lost and by which assertion, not the shortest such game.
const BRIEFLY = process.env.STILLWAKE_SHRINK === "off";

const engine = new Engine((await freshDatabase()).url);
beforeAll(() => engine.open());
afterAll(() => engine.close());

describe("the lease machine", () => {
  it("T1: does in every game what the model says, and no write of a replaced attempt is accepted (I1-I4, I6, I7)", {
    timeout: 300_000,
  }, async () => {
    const shots: Shots = { refused: 0, late: 0, repeated: 0, poisoned: 0, exhausted: 0, recovered: 0 };
    let longest = 0;
    let moves = 0;
    const prefix = newId().slice(0, 24);
    const idOf = (n: number) => `${prefix}${((n * 7919) % 65_536).toString(16).padStart(12, "0")}`;
    const game = fc.asyncProperty(
      fc.commands([...workerMoves, ...otherMoves], { maxCommands: 120, size: "max" }),
      async (commands) => {
        await fc.asyncModelRun(async () => {
          await engine.reset();
          return { model: newWorld(), real: { engine, shots, newId: idOf } };
        }, commands);
        const played = [...commands].filter((command) => (command as { hasRan?: boolean }).hasRan).length;
        moves += played;
        longest = Math.max(longest, played);
      },
    );
    await fc.assert(game, {
      numRuns: RUNS,
      endOnFailure: BRIEFLY,
      includeErrorInReport: BRIEFLY,
      ...(SEED !== undefined && { seed: SEED }),
    });

    recordFigure("T1: games against the model", RUNS, "", `${moves} moves, the longest game ${longest}`);
    recordFigure("T1: verbs called", engine.calls);
    recordFigure("T1: stale or forged writes refused", shots.refused, "", "shots on goal; accepted: 0");
    recordFigure("T1: late writes of attempts not yet replaced, accepted", shots.late);
    recordFigure(
      "T1: leases recovered",
      shots.recovered,
      "",
      `${shots.poisoned} poisoned, ${shots.exhausted} exhausted`,
    );
    for (const [name, count] of Object.entries(shots)) expect(count, `shots: ${name}`).toBeGreaterThan(0);
  });
});
