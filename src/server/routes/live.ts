// One job as it happens, for whoever may follow it.
import { z } from "zod";
import { operation } from "../operation.ts";
import { streamJob } from "../stream.ts";
import { jobOf } from "./jobs.ts";

export const follow = operation({
  summary: "A job as it happens: lines, steps, states and progress as Server-Sent Events",
  about:
    "Events: state, log, event, step, progress, gap, end. Lines carry an id; a client that comes back with it in Last-Event-ID misses nothing and gets nothing twice. `gap` says that lines between are gone. A client that has seen the end is answered 204, at which an EventSource stops.",
  query: z.strictObject({
    after: z
      .string()
      .regex(/^\d{1,19}$/)
      .optional(),
  }),
  answer: "text/event-stream",
  async handle(call) {
    const { house, who, request } = call;
    const { id } = await jobOf(call);
    const { leave, sentAway } = house.streams.enter(who.id ?? who.name);
    try {
      return await streamJob({
        reader: call.stillwake.feed,
        id,
        lastEventId: request.headers.get("last-event-id"),
        after: call.query.after,
        signal: AbortSignal.any([request.signal, house.closing.signal, sentAway]),
        until: who.expiresAt,
        recheck: () => house.stillMay(request, who),
        recheckMs: house.recheckMs,
        guest: who.role === "follower",
        drop: call.hangUp,
        onOver: leave,
      });
    } catch (error) {
      leave();
      throw error;
    }
  },
});
