// One job as Server-Sent Events. Lines and events of the feed carry an id, everything else does not, so that a client that lost its connection comes
// back with the place of the last line it has and misses nothing. The body is pulled: a client that does not read is asked for nothing more, holds
// its place and a socket, and is dropped after a minute.
import { InvalidInput } from "../errors.ts";
import type { FeedReader } from "../live/feed-reader.ts";
import { checkAfter, Follower } from "../live/follower.ts";
import { type FollowEvent, tailOf } from "../live/job-buffer.ts";
import { failureForGuest } from "./http/redact-failure.ts";

export interface StreamOptions {
  reader: FeedReader;
  /** The job. Whoever calls has seen to it that the client may follow it. */
  id: string;
  /** The header of a client that comes back. It wins over `after`, which is part of an address that stays the same. */
  lastEventId?: string | null | undefined;
  /** The seq after which to begin. */
  after?: string | null | undefined;
  /** Given when the client has gone. */
  signal?: AbortSignal;
  /** Asked now and then whether the client still may: false ends the stream. */
  recheck?: () => Promise<boolean>;
  /** When what the client came in with runs out. */
  until?: Date | null;
  /** Breaks the connection of a client that does not read. Without it the body ends in an error, which most servers answer in the same way. */
  drop?: () => void;
  /** Called once, when it is over, however that comes about. */
  onOver?: () => void;
  /** For somebody outside the house: how the job fares and what it says, without who did what to it and where in the code it failed. */
  guest?: boolean;
  keepAliveMs?: number;
  recheckMs?: number;
  /** How long a client may leave what was sent lying. */
  stallMs?: number;
  /** How long a client is to wait before it comes back. */
  retryMs?: number;
}

const encoder = new TextEncoder();

/** Answers 204, at which an EventSource stops, to one that has seen the end. Throws InvalidInput for a place that is none, JobNotFound. */
export async function streamJob(options: StreamOptions): Promise<Response> {
  const { reader, id, signal } = options;
  const place = readPlace(id, options.lastEventId || undefined, options.after ?? undefined);
  const stopping = new AbortController();
  const given = signal ? AbortSignal.any([signal, stopping.signal]) : stopping.signal;
  const follower = await Follower.open(reader, id, place.after, given);
  if (place.ended && follower.isAtEnd) {
    follower.close();
    options.onOver?.();
    return new Response(null, { status: 204, headers: { "cache-control": "no-store" } });
  }
  return new Response(bodyOf(follower, stopping, options), {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    },
  });
}

/** An id is that of a line of this job: its seq, the end of the job's id, and a word when it was the last. */
function readPlace(
  id: string,
  lastEventId: string | undefined,
  after: string | undefined,
): { after: bigint; ended: boolean } {
  if (lastEventId === undefined) return { after: checkAfter(after ?? "0"), ended: false };
  const [, seq, tail, end] = (lastEventId.length < 60 && /^(\d{1,19})-([0-9a-f]{8})(-end)?$/.exec(lastEventId)) || [];
  if (seq === undefined || tail !== tailOf(id)) {
    throw new InvalidInput(`${JSON.stringify(lastEventId.slice(0, 60))} is not an id of a line of this job`, {
      field: "last-event-id",
      remedy: "Send back the last id this stream gave, or none to begin at the first line",
    });
  }
  return { after: checkAfter(seq, "last-event-id"), ended: end !== undefined };
}

function bodyOf(follower: Follower, stopping: AbortController, options: StreamOptions): ReadableStream<Uint8Array> {
  const { signal, recheck, until, drop, onOver, guest = false } = options;
  const { keepAliveMs = 15_000, recheckMs = 60_000, stallMs = 60_000, retryMs = 1000 } = options;
  const over = until ? until.getTime() : Number.POSITIVE_INFINITY;
  let recheckAt = recheck ? performance.now() + recheckMs : Number.POSITIVE_INFINITY;
  let first = true;
  let isOver = false;
  let stalled: NodeJS.Timeout | undefined;

  const finish = () => {
    if (isOver) return;
    isOver = true;
    clearTimeout(stalled);
    signal?.removeEventListener("abort", finish);
    follower.close();
    stopping.abort();
    onOver?.();
  };

  // Also when nobody asks for the body: there would be no one to notice.
  signal?.addEventListener("abort", finish);
  if (signal?.aborted) finish();

  /** From now on it is the client's turn: a body that nobody asks for is given up, like one that nobody reads on. */
  const awaitClient = (controller: ReadableStreamDefaultController) => {
    if (isOver) return;
    stalled = setTimeout(() => {
      finish();
      if (drop) drop();
      else controller.error(new Error("The client has not read for too long"));
    }, stallMs);
    stalled.unref();
  };

  /** What is sent next; undefined when there is no more to send. */
  const next = async (): Promise<Uint8Array | undefined> => {
    const aliveAt = performance.now() + keepAliveMs;
    for (;;) {
      if (Date.now() >= over) return undefined;
      if (performance.now() >= recheckAt) {
        if (!(await recheck!())) return undefined;
        recheckAt = performance.now() + recheckMs;
      }
      const waitMs = Math.min(aliveAt, recheckAt) - performance.now();
      const events = await follower.next(Math.max(0, Math.min(waitMs, over - Date.now(), 2 ** 31 - 1)));
      if (!events) return undefined;
      // The wait may have been long enough for either to run out.
      if (Date.now() >= over) return undefined;
      if (events.length > 0) return encodeAll(follower, events, guest);
      if (performance.now() >= aliveAt) return encoder.encode(":\n\n");
    }
  };

  return new ReadableStream<Uint8Array>(
    {
      start: awaitClient,
      async pull(controller) {
        clearTimeout(stalled);
        try {
          const bytes = first ? encoder.encode(`retry: ${retryMs}\n\n`) : await next();
          first = false;
          if (!bytes) {
            finish();
            controller.close();
            return;
          }
          controller.enqueue(bytes);
          awaitClient(controller);
        } catch {
          // The reader was closed, or the client has gone. Whoever is still there comes back.
          finish();
          try {
            controller.close();
          } catch {}
        }
      },
      cancel: finish,
    },
    { highWaterMark: 0 },
  );
}

/** Those who follow one job closely are sent the same bytes. */
function encodeAll({ job }: Follower, events: FollowEvent[], guest: boolean): Uint8Array {
  const known = job.encoded[guest ? 1 : 0];
  if (known && known.events.length === events.length && known.events.every((event, at) => event === events[at])) {
    return known.bytes;
  }
  const bytes = encoder.encode(events.map((event) => encode(guest ? forGuest(event) : event)).join(""));
  job.encoded[guest ? 1 : 0] = { events, bytes };
  return bytes;
}

function forGuest(event: FollowEvent): FollowEvent {
  // That what was kept is gone is for everybody to know; by whom and why is not.
  if (event.kind === "event") {
    const { from_start } = (event.data ?? {}) as { from_start?: unknown };
    return { ...event, data: from_start === true ? { from_start } : null };
  }
  return event.kind === "end" ? { ...event, failure: failureForGuest(event.failure) } : event;
}

/** JSON has no line break in it, so that nothing in a message can look like a field. */
function encode(event: FollowEvent): string {
  const { kind, ...rest } = event;
  const id = "id" in rest ? `id: ${rest.id}\n` : "";
  const { id: _, event: what, ...data } = rest as { id?: string; event?: string };
  const body = what === undefined ? data : { ...data, kind: what };
  return `${id}event: ${kind}\ndata: ${JSON.stringify(kind === "progress" ? event.progress : body)}\n\n`;
}
