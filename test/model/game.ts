// Random games of one kind against a real Postgres. On failure fast-check prints the seed and the shortest list of moves that still fails;
// STILLWAKE_SEED=<seed> plays that game again, STILLWAKE_RUNS sets how many.
import fc from "fast-check";
import { expect } from "vitest";
import { newId } from "../../src/ids.ts";
import type { Engine } from "./engine.ts";
import type { Shots } from "./move.ts";
import { type Arrivals, otherMoves } from "./operator-moves.ts";
import { workerMoves } from "./worker-moves.ts";
import { newWorld } from "./world.ts";

const SEED = process.env.STILLWAKE_SEED ? Number(process.env.STILLWAKE_SEED) : undefined;

// For scripts/mutants.mjs, which wants to know that a game was lost and by which assertion, not the shortest such game.
const BRIEFLY = process.env.STILLWAKE_SHRINK === "off";

/** How a property is checked, here and in other games. */
export const checking = (runs: number) => ({
  numRuns: Number(process.env.STILLWAKE_RUNS ?? runs),
  endOnFailure: BRIEFLY,
  includeErrorInReport: BRIEFLY,
  ...(SEED !== undefined && { seed: SEED }),
});

export interface Played {
  games: number;
  moves: number;
  longest: number;
  shots: Shots;
}

/** Plays so many games and answers what they have hit. Of what none of them hit nothing is proven, so the goals must have been. */
export async function playGames(
  engine: Engine,
  runs: number,
  arrivals: Arrivals,
  goals: (keyof Shots)[],
): Promise<Played> {
  const settings = checking(runs);
  const shots: Shots = {
    ...{ refused: 0, late: 0, repeated: 0, poisoned: 0, exhausted: 0, recovered: 0 },
    ...{ joined: 0, spared: 0, waited: 0, replaced: 0, rejected: 0, admitted: 0 },
  };
  const played: Played = { games: settings.numRuns, moves: 0, longest: 0, shots };
  const prefix = newId().slice(0, 24);
  const idOf = (n: number) => `${prefix}${((n * 7919) % 65_536).toString(16).padStart(12, "0")}`;
  const game = fc.asyncProperty(
    fc.commands([...workerMoves, ...otherMoves(arrivals)], { maxCommands: 120, size: "max" }),
    async (commands) => {
      const world = newWorld();
      await fc.asyncModelRun(async () => {
        await engine.reset();
        return { model: world, real: { engine, shots, newId: idOf } };
      }, commands);
      const moves = [...commands].filter((command) => (command as { hasRan?: boolean }).hasRan).length;
      played.moves += moves;
      played.longest = Math.max(played.longest, moves);
      shots.admitted += world.admitted;
    },
  );
  await fc.assert(game, settings);
  for (const name of goals) expect(shots[name], `shots: ${name}`).toBeGreaterThan(0);
  return played;
}
