// Streams one job as Server-Sent Events. Only lines and events of the feed have an id, so that a client that reconnects
// sends the cursor of its last line and misses nothing. The body is pulled: for a client that does not read, no further
// data is produced, and its connection is destroyed after a minute.
import { InvalidInput } from "../errors.ts";
import type { FeedReader } from "../live/feed-reader.ts";
import { Follower, parseSeq } from "../live/follower.ts";
import { type FollowEvent, idSuffix } from "../live/job-buffer.ts";
import { redactEvent } from "./http/redact.ts";

export interface StreamOptions {
  reader: FeedReader;
  /** The job. The caller of streamJob has checked the client's access. */
  id: string;
  /** The header of a client that reconnects. Takes precedence over `after`, which stays in the URL. */
  lastEventId?: string | null | undefined;
  /** The seq after which to start. */
  after?: string | null | undefined;
  /** Aborted when the client has disconnected. */
  signal?: AbortSignal;
  /** Called regularly: false (the client has lost access) ends the stream. */
  recheck?: () => Promise<boolean>;
  /** When the client's token expires. */
  until?: Date | null;
  /** Destroys the connection of a client that does not read. Without it the body ends in an error. */
  destroyConnection?: () => void;
  /** Called once, however the stream ends. */
  onFinish?: () => void;
  /** For an external caller (read token): see redactEvent. */
  redacted?: boolean;
  keepAliveMs?: number;
  recheckMs?: number;
  /** How long a client may not read. */
  stallMs?: number;
  /** The reconnection delay sent to the client. */
  retryMs?: number;
}

const encoder = new TextEncoder();

/** Responds with 204, at which an EventSource stops, if the client has received the end. Throws InvalidInput, JobNotFound. */
export async function streamJob(options: StreamOptions): Promise<Response> {
  const { reader, id, signal } = options;
  const cursor = parseCursor(id, options.lastEventId || undefined, options.after ?? undefined);
  const stopping = new AbortController();
  const stopped = signal ? AbortSignal.any([signal, stopping.signal]) : stopping.signal;
  const follower = await Follower.open(reader, id, cursor.after, stopped);
  if (cursor.ended && follower.isAtEnd) {
    follower.close();
    options.onFinish?.();
    return new Response(null, { status: 204, headers: { "cache-control": "no-store" } });
  }
  return new Response(createBody(follower, stopping, options), {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    },
  });
}

/** An event id has the line's seq, the suffix of the job's id, and "-end" for the end event. */
function parseCursor(
  id: string,
  lastEventId: string | undefined,
  after: string | undefined,
): { after: bigint; ended: boolean } {
  if (lastEventId === undefined) return { after: parseSeq(after ?? "0"), ended: false };
  const [, seq, suffix, end] = (lastEventId.length < 60 && /^(\d{1,19})-([0-9a-f]{8})(-end)?$/.exec(lastEventId)) || [];
  if (seq === undefined || suffix !== idSuffix(id)) {
    throw new InvalidInput(`${JSON.stringify(lastEventId.slice(0, 60))} is not an event id of this job`, {
      field: "last-event-id",
      remedy: "Send the last id that this stream sent, or none to start at the first line",
    });
  }
  return { after: parseSeq(seq, "last-event-id"), ended: end !== undefined };
}

function createBody(follower: Follower, stopping: AbortController, options: StreamOptions): ReadableStream<Uint8Array> {
  const { signal, recheck, until, destroyConnection, onFinish, redacted = false } = options;
  const { keepAliveMs = 15_000, recheckMs = 60_000, stallMs = 60_000, retryMs = 1000 } = options;
  const expiresAt = until ? until.getTime() : Number.POSITIVE_INFINITY;
  let recheckAt = recheck ? performance.now() + recheckMs : Number.POSITIVE_INFINITY;
  let first = true;
  let finished = false;
  let stallTimer: NodeJS.Timeout | undefined;

  const finish = () => {
    if (finished) return;
    finished = true;
    clearTimeout(stallTimer);
    signal?.removeEventListener("abort", finish);
    follower.close();
    stopping.abort();
    onFinish?.();
  };

  // Needed for a body that is never read: neither pull nor cancel would be called.
  signal?.addEventListener("abort", finish);
  if (signal?.aborted) finish();

  /** Ends the stream if the client does not read, from the first byte on. */
  const startStallTimer = (controller: ReadableStreamDefaultController) => {
    if (finished) return;
    stallTimer = setTimeout(() => {
      finish();
      if (destroyConnection) destroyConnection();
      else controller.error(new Error("The client has not read for too long"));
    }, stallMs);
    stallTimer.unref();
  };

  /** The next bytes to send; undefined at the end. */
  const next = async (): Promise<Uint8Array | undefined> => {
    const keepAliveAt = performance.now() + keepAliveMs;
    for (;;) {
      if (Date.now() >= expiresAt) return undefined;
      if (performance.now() >= recheckAt) {
        if (!(await recheck!())) return undefined;
        recheckAt = performance.now() + recheckMs;
      }
      const waitMs = Math.min(keepAliveAt, recheckAt) - performance.now();
      const events = await follower.next(Math.max(0, Math.min(waitMs, expiresAt - Date.now(), 2 ** 31 - 1)));
      if (!events) return undefined;
      // The token may have expired during the wait.
      if (Date.now() >= expiresAt) return undefined;
      if (events.length > 0) return encodeAll(follower, events, redacted);
      if (performance.now() >= keepAliveAt) return encoder.encode(":\n\n");
    }
  };

  return new ReadableStream<Uint8Array>(
    {
      start: startStallTimer,
      async pull(controller) {
        clearTimeout(stallTimer);
        try {
          const bytes = first ? encoder.encode(`retry: ${retryMs}\n\n`) : await next();
          first = false;
          if (!bytes) {
            finish();
            controller.close();
            return;
          }
          controller.enqueue(bytes);
          startStallTimer(controller);
        } catch {
          // The reader was closed, or the client has disconnected. A connected client reconnects.
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

/** Followers of one job at the same position share the encoded bytes. */
function encodeAll({ job }: Follower, events: FollowEvent[], redacted: boolean): Uint8Array {
  const cached = job.encoded[redacted ? 1 : 0];
  if (
    cached &&
    cached.events.length === events.length &&
    cached.events.every((event, index) => event === events[index])
  ) {
    return cached.bytes;
  }
  const bytes = encoder.encode(events.map((event) => encode(redacted ? redactEvent(event) : event)).join(""));
  job.encoded[redacted ? 1 : 0] = { events, bytes };
  return bytes;
}

/** The JSON contains no line break, so that a message cannot inject a field. */
function encode(event: FollowEvent): string {
  const { kind, ...rest } = event;
  const id = "id" in rest ? `id: ${rest.id}\n` : "";
  const { id: _, event: eventKind, ...data } = rest as { id?: string; event?: string };
  const body = eventKind === undefined ? data : { ...data, kind: eventKind };
  return `${id}event: ${kind}\ndata: ${JSON.stringify(kind === "progress" ? event.progress : body)}\n\n`;
}
