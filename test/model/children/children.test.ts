// Random games of parents and children, events and positions against a real Postgres, compared move by move with a model
// that knows no SQL. STILLWAKE_SEED=<seed> repeats a game, STILLWAKE_RUNS sets the number of games.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newId } from "../../../src/ids.ts";
import { freshDatabase } from "../../support/database/database.ts";
import { recordFigure } from "../../support/figures.ts";
import { FULL } from "../../support/processes/fault-checks.ts";
import { checking } from "../game.ts";
import { SpawnEngine } from "./engine.ts";
import { games } from "./game.ts";
import { hits } from "./move.ts";
import { newJob, SpawnWorld } from "./world.ts";

const engine = new SpawnEngine((await freshDatabase()).url);
beforeAll(() => engine.open());
afterAll(() => engine.close());

const prefix = newId().slice(0, 24);
// Not in the order of creation, and the same in each game.
const idOf = (n: number) => `${prefix}${((n * 7919) % 65_536).toString(16).padStart(12, "0")}`;
let moves = 0;

async function play(kind: keyof typeof games, runs: number, isWide = false): Promise<void> {
  const commands = fc.commands(games[kind], { maxCommands: 200, size: "max" });
  const game = fc.asyncProperty(commands, async (all) => {
    await fc.asyncModelRun(async () => {
      const model = new SpawnWorld(isWide);
      await engine.reset();
      for (const id of [idOf(model.ids++), idOf(model.ids++)]) {
        await engine.enqueue(id);
        model.jobs.set(id, newJob(id, 0, null));
      }
      return { model, real: { engine, newId: idOf } };
    }, all);
    moves += [...all].filter((command) => (command as { hasRan?: boolean }).hasRan).length;
  });
  await fc.assert(game, checking(FULL ? runs * 30 : runs));
}

const room = { timeout: 900_000 };

describe("the database matches the model in every game", () => {
  it("parents and children: no parent waits for finished children, no child is lost or duplicated", room, () =>
    play("parents and children", 24),
  );
  it("more children than one part has", room, () => play("parents and children", 2, true));
  it("events and positions: each signal is taken once, no item is done twice", room, () =>
    play("events and positions", 14),
  );
  it("all together", room, () => play("all together", 14));
});

// A case that no game hit is not tested. The rest is hit by the long form.
const rare = ["inParts", "otherTotal", "wokenEarly", "asked", "forgotten", "poisonedParents", "resumed", "timeouts"];
it("the games have hit their cases", () => {
  for (const [name, count] of Object.entries(hits)) {
    if (FULL || !rare.includes(name)) expect(count, `hits: ${name}`).toBeGreaterThan(0);
  }
});

afterAll(() => {
  if (process.env.SHOTS) console.log(moves, JSON.stringify(hits));
  recordFigure("spawns: moves against the model", moves);
  recordFigure(
    "spawns: parents woken",
    hits.woken,
    "",
    `${hits.wokenEarly} before all had ended, ${hits.wentOn} checked in time; ${hits.spawned} children, 0 wake-ups lost`,
  );
  recordFigure(
    "events: waits in the model",
    hits.heard,
    "",
    `${hits.taken} taken, ${hits.refused} refused, ${hits.timeouts} timed out; taken twice: 0`,
  );
});
