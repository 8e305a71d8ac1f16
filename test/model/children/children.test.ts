// Random games of parents and children, of what is said to jobs and of long lists, against a real Postgres, held move by move against a model
// that knows no SQL. STILLWAKE_SEED=<seed> plays a game again, STILLWAKE_RUNS sets how many.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newId } from "../../../src/ids.ts";
import { freshDatabase } from "../../support/database/database.ts";
import { recordFigure } from "../../support/figures.ts";
import { FULL } from "../../support/processes/aftermath.ts";
import { checking } from "../game.ts";
import { SpawnEngine } from "./engine.ts";
import { games } from "./game.ts";
import { shots } from "./move.ts";
import { newJob, SpawnWorld } from "./world.ts";

const engine = new SpawnEngine((await freshDatabase()).url);
beforeAll(() => engine.open());
afterAll(() => engine.close());

const prefix = newId().slice(0, 24);
// Not in the order of their making, and the same in each game.
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

describe("in every game the database does what the model says", () => {
  it("parents and children: nobody waits for what is over, no child is lost or there twice", room, () =>
    play("parents and children", 24),
  );
  it("more children than one part has", room, () => play("parents and children", 2, true));
  it("events and places: each word is taken once, no item is done twice", room, () => play("events and places", 14));
  it("all together", room, () => play("all together", 14));
});

// Of what no game hit nothing is proven. The rest is hit by the long form.
const rare = ["inParts", "otherTotal", "wokenEarly", "asked", "forgotten", "poisonedParents", "resumed", "timeouts"];
it("the games have hit what they are about", () => {
  for (const [name, count] of Object.entries(shots)) {
    if (FULL || !rare.includes(name)) expect(count, `shots: ${name}`).toBeGreaterThan(0);
  }
});

afterAll(() => {
  if (process.env.SHOTS) console.log(moves, JSON.stringify(shots));
  recordFigure("spawns: moves against the model", moves);
  recordFigure(
    "spawns: parents woken",
    shots.woken,
    "",
    `${shots.wokenEarly} before all had ended, ${shots.wentOn} looked in time; ${shots.spawned} children, 0 wake-ups lost`,
  );
  recordFigure(
    "events: waits in the model",
    shots.heard,
    "",
    `${shots.taken} taken, ${shots.refused} refused, ${shots.timeouts} timed out; taken twice: 0`,
  );
});
