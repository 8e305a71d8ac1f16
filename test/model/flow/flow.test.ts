// Random games of limits and breakers against a real Postgres, compared move by move with a model that knows no SQL.
// STILLWAKE_SEED=<seed> repeats a game, STILLWAKE_RUNS sets the number of games.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../support/database/database.ts";
import { recordFigure } from "../../support/figures.ts";
import { FULL } from "../../support/processes/fault-checks.ts";
import { checking } from "../game.ts";
import { FlowEngine } from "./engine.ts";
import { flowMoves } from "./game.ts";
import type { LimitSettings } from "./limit-and-breaker.ts";
import { FlowWorld, hits } from "./world.ts";

const engine = new FlowEngine((await freshDatabase()).url);
beforeAll(() => engine.open());
afterAll(() => engine.close());

// Periods whose 128th part is a whole number of microseconds, and exact in binary.
const kinds: LimitSettings[] = [
  { max: 4, period: 10_000 },
  { max: 3, period: 2000, concurrency: 2 },
  { concurrency: 2 },
  { learn: true },
  { learn: true, concurrency: 3 },
  { learn: true, max: 5, period: 4000 },
];

describe("limits and breakers", () => {
  it("match the model in every game, and never grant more than allowed", {
    timeout: 900_000,
  }, async () => {
    const settings = checking(FULL ? 3000 : 80);
    let moves = 0;
    const game = fc.asyncProperty(
      fc.constantFrom(...kinds),
      fc.boolean(),
      fc.commands(flowMoves, { maxCommands: 120, size: "max" }),
      async (kind, honest, commands) => {
        await fc.asyncModelRun(async () => {
          const jobs = await engine.reset(kind);
          return { model: new FlowWorld(kind, honest, engine.origin, jobs), real: { engine } };
        }, commands);
        moves += [...commands].filter((command) => (command as { hasRan?: boolean }).hasRan).length;
      },
    );
    await fc.assert(game, settings);
    for (const [name, count] of Object.entries(hits)) expect(count, `hits: ${name}`).toBeGreaterThan(0);
    recordFigure("flow: games of limits and breakers", settings.numRuns, "", `${moves} moves`);
    recordFigure(
      "flow: uses granted",
      hits.granted,
      "",
      `${hits.full + hits.busy + hits.blocked} times none, ${hits.windows} windows of the other side, 0 calls too many`,
    );
    recordFigure(
      "flow: probes",
      hits.probes,
      "",
      `${hits.opened} times opened, ${hits.probeFailed} probes failed; two at once: 0`,
    );
  });
});
