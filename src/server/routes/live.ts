// Follows one job as a stream of Server-Sent Events.
import { z } from "zod";
import { operation } from "../operation.ts";
import { streamJob } from "../stream.ts";
import { findJob } from "./jobs.ts";

export const follow = operation({
  summary: "Streams a job's log lines, steps, states and progress as Server-Sent Events",
  description:
    "Events: state, log, event, step, progress, gap, end. Lines have an id; a client that reconnects with it in Last-Event-ID misses nothing and receives nothing twice. `gap` means that lines in between were deleted. A client that has received the end gets 204, at which an EventSource stops.",
  query: z.strictObject({
    after: z
      .string()
      .regex(/^\d{1,19}$/)
      .optional(),
  }),
  response: "text/event-stream",
  async handle(call) {
    const { context, caller, request } = call;
    const { id } = await findJob(call);
    const { release, revoked } = context.streams.open(caller.id ?? caller.name);
    try {
      return await streamJob({
        reader: call.stillwake.feed,
        id,
        lastEventId: request.headers.get("last-event-id"),
        after: call.query.after,
        signal: AbortSignal.any([request.signal, context.closing.signal, revoked]),
        until: caller.expiresAt,
        recheck: () => context.isStillAllowed(request, caller),
        recheckMs: context.recheckMs,
        redacted: caller.role === "follower",
        destroyConnection: call.destroyConnection,
        onFinish: release,
      });
    } catch (error) {
      release();
      throw error;
    }
  },
});
