// Machines, and the poke of the orchestrator.
import { z } from "zod";
import type { ServerContext } from "../context.ts";
import { httpError } from "../http/problem.ts";
import { operation } from "../operation.ts";
import * as schemas from "../schemas.ts";

const MAX_ENDED = 200;

export const machines = operation({
  summary: "All machines, and active workers without a machine",
  description: `A machine has the name of its worker. With ended=true the last ${MAX_ENDED} ended machines follow, latest first, with the reason.`,
  query: z.strictObject({ ended: z.enum(["true", "false"]).optional() }),
  response: z.object({ machines: z.array(schemas.Machine) }),
  handle: async ({ stillwake, query: { ended } }) => ({
    machines: await stillwake.machines({ ended: ended === "true" ? MAX_ENDED : 0 }),
  }),
});

export const poke = operation({
  summary: "Notifies the orchestrator of this process that there may be work",
  description:
    "For programs that enqueue in another process. It only makes the orchestrator check sooner; the watchdog makes up for a lost poke.",
  body: z.strictObject({ pool: z.string().min(1).max(200).optional() }).optional(),
  response: z.object({ poked: z.literal(true) }),
  status: 202,
  // Not audited: programs send it with every enqueue.
  audit: null,
  async handle({ context, body, request }) {
    if (!context.options.onPoke) {
      throw httpError("NO_ORCHESTRATOR", "This server has no orchestrator in its process", {
        remedy: "Send the poke to `stillwake orchestrator`, or rely on the watchdog",
      });
    }
    pokeOrchestrator(context, request, body?.pool);
    return { poked: true };
  },
});

/** An error of the orchestrator must not fail the request. */
export function pokeOrchestrator(context: ServerContext, request: Request, pool?: string): void {
  try {
    context.options.onPoke?.(pool);
  } catch (error) {
    context.onError(error, { method: request.method, path: new URL(request.url).pathname });
  }
}
