// Runs random games against a real Postgres. On failure fast-check prints the seed and the shortest list of moves that
// still fails; STILLWAKE_SEED=<seed> repeats that game, STILLWAKE_RUNS sets the number of games.
import fc from "fast-check";
import { expect } from "vitest";
import { newId } from "../../src/ids.ts";
import type { Engine } from "./engine.ts";
import type { Hits } from "./move.ts";
import { type Arrivals, otherMoves } from "./operator-moves.ts";
import { workerMoves } from "./worker-moves.ts";
import { newWorld } from "./world.ts";

const SEED = process.env.STILLWAKE_SEED ? Number(process.env.STILLWAKE_SEED) : undefined;

// For scripts/mutants.mjs, which needs the failed assertion, not the shortest game.
const BRIEFLY = process.env.STILLWAKE_SHRINK === "off";

/** How a property is checked, here and in other games. */
export const checking = (runs: number) => ({
  numRuns: Number(process.env.STILLWAKE_RUNS ?? runs),
  endOnFailure: BRIEFLY,
  includeErrorInReport: BRIEFLY,
  ...(SEED !== undefined && { seed: SEED }),
});

export interface GameResult {
  games: number;
  moves: number;
  longest: number;
  hits: Hits;
}

/** Runs the given number of games and returns what they have hit. The goals must be hit: a case that no game hit is not tested. */
export async function playGames(
  engine: Engine,
  runs: number,
  arrivals: Arrivals,
  goals: (keyof Hits)[],
): Promise<GameResult> {
  const settings = checking(runs);
  const hits: Hits = {
    ...{ refused: 0, late: 0, repeated: 0, poisoned: 0, exhausted: 0, recovered: 0, strays: 0, outages: 0 },
    ...{ joined: 0, spared: 0, waited: 0, replaced: 0, rejected: 0, admitted: 0 },
  };
  const played: GameResult = { games: settings.numRuns, moves: 0, longest: 0, hits };
  const prefix = newId().slice(0, 24);
  const idOf = (n: number) => `${prefix}${((n * 7919) % 65_536).toString(16).padStart(12, "0")}`;
  const game = fc.asyncProperty(
    fc.commands([...workerMoves, ...otherMoves(arrivals)], { maxCommands: 120, size: "max" }),
    async (commands) => {
      const world = newWorld(engine.laned);
      await fc.asyncModelRun(async () => {
        await engine.reset();
        return { model: world, real: { engine, hits, newId: idOf } };
      }, commands);
      const moves = [...commands].filter((command) => (command as { hasRan?: boolean }).hasRan).length;
      played.moves += moves;
      played.longest = Math.max(played.longest, moves);
      hits.admitted += world.admitted;
    },
  );
  await fc.assert(game, settings);
  for (const name of goals) expect(hits[name], `hits: ${name}`).toBeGreaterThan(0);
  return played;
}
