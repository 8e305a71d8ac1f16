// Machines and whoever starts them: what there is, what there was, and the poke that says there is work.
import { z } from "zod";
import type { ServerContext } from "../context.ts";
import { refusal } from "../http/problem.ts";
import { operation } from "../operation.ts";
import * as shapes from "../shapes.ts";

/** Of those that have ended. */
const MAX_ENDED = 200;

export const machines = operation({
  summary: "The machines, and the workers that are awake on none",
  about: `A machine carries the name of its worker. With ended=true the last ${MAX_ENDED} that have ended follow, the latest first, with how they ended.`,
  query: z.strictObject({ ended: z.enum(["true", "false"]).optional() }),
  answer: z.object({ machines: z.array(shapes.Machine) }),
  handle: async ({ stillwake, query: { ended } }) => ({
    machines: await stillwake.machines({ ended: ended === "true" ? MAX_ENDED : 0 }),
  }),
});

export const poke = operation({
  summary: "Tells the orchestrator of this process that there may be work",
  about:
    "For whoever enqueues in another process. It only makes it look sooner: a poke that is lost is made up for by the watchdog.",
  body: z.strictObject({ pool: z.string().min(1).max(200).optional() }).optional(),
  answer: z.object({ poked: z.literal(true) }),
  status: 202,
  // By every program that enqueues, at every job: no act of anybody's.
  record: null,
  async handle({ house, body, request }) {
    if (!house.options.onPoke) {
      throw refusal("NO_ORCHESTRATOR", "There is no orchestrator in the process of this server", {
        remedy: "Poke `stillwake orchestrator` where it listens, or leave it to the watchdog",
      });
    }
    pokeHouse(house, request, body?.pool);
    return { poked: true };
  },
});

/** Whatever the listener does with it is not the caller's concern. */
export function pokeHouse(house: ServerContext, request: Request, pool?: string): void {
  try {
    house.options.onPoke?.(pool);
  } catch (error) {
    house.onError(error, { method: request.method, path: new URL(request.url).pathname });
  }
}
