// OpenTelemetry spans around claims, attempts and steps, if the program that runs the worker has @opentelemetry/api; without it everything
// here only calls through. The keeper and each runner load this module for themselves. The trace of the enqueuer travels with the job as the
// two strings of W3C Trace Context, written and read here, so that it does not matter which propagator the program has set.
import type * as OpenTelemetry from "@opentelemetry/api";
import { version } from "./version.ts";

/** `traceparent` and, if there is one, `tracestate`. */
export type TraceCarrier = Record<string, string>;

interface AttemptInfo {
  job: string;
  pipeline: string;
  attempt: number;
  epoch: string;
  pool: string;
  /** What `inject` answered when the job was enqueued. */
  carrier?: TraceCarrier | null | undefined;
}

/**
 * Says how the work ended. A span is in error when an error is noted, or when its function throws without having noted anything: a signal such as
 * a drain is noted by its outcome alone, and then thrown.
 */
type NoteOutcome = (outcome: string, error?: unknown) => void;

export interface Tracing {
  claim<T>(fn: () => Promise<T>): Promise<T>;
  attempt<T>(info: AttemptInfo, fn: (note: NoteOutcome) => Promise<T>): Promise<T>;
  /** A child of the attempt it is called in. */
  step<T>(name: string, fn: (note: NoteOutcome) => Promise<T>): Promise<T>;
  /** The active trace, to be stored with a job; undefined where there is none. */
  inject(): TraceCarrier | undefined;
}

/** `importApi` is there for tests. */
export async function loadTracing(
  importApi: () => Promise<unknown> = () => import("@opentelemetry/api"),
): Promise<Tracing> {
  try {
    return spans((await importApi()) as typeof OpenTelemetry);
  } catch {
    return noSpans;
  }
}

const noNote = () => {};

const noSpans: Tracing = {
  claim: (fn) => fn(),
  attempt: (_info, fn) => fn(noNote),
  step: (_name, fn) => fn(noNote),
  inject: () => undefined,
};

// The W3C limit is 512 characters at least; a longer state is left behind rather than stored with every job.
const MAX_STATE = 512;

function spans(api: typeof OpenTelemetry): Tracing {
  const { trace, context, ROOT_CONTEXT, SpanKind, SpanStatusCode } = api;
  const tracer = trace.getTracer("stillwake", version);
  const provider = trace.getTracerProvider();
  /** The API is often there without an SDK behind it, and one may come later. A span that nobody reads still costs as much as a small job. */
  const unread = () =>
    provider instanceof api.ProxyTracerProvider && provider.getDelegate().constructor.name === "NoopTracerProvider";

  /** Runs `fn` within the span, and ends the span with what came of it. */
  async function within<T>(
    span: OpenTelemetry.Span,
    around: OpenTelemetry.Context,
    fn: (note: NoteOutcome) => Promise<T>,
  ): Promise<T> {
    let noted = false;
    const note: NoteOutcome = (outcome, error) => {
      noted = true;
      span.setAttribute("stillwake.outcome", outcome);
      if (error === undefined) return;
      span.recordException(error as Error);
      span.setStatus({ code: SpanStatusCode.ERROR, message: (error as Error)?.message ?? String(error) });
    };
    try {
      const result = await context.with(trace.setSpan(around, span), fn, undefined, note);
      if (!noted) note("completed");
      return result;
    } catch (error) {
      if (!noted) note("failed", error ?? new Error("undefined was thrown"));
      throw error;
    } finally {
      span.end();
    }
  }

  return {
    // Claims and attempts begin at the root: the loop may have been started within a trace that has long ended.
    claim: (fn) =>
      unread() ? fn() : within(tracer.startSpan("stillwake claim", { root: true }, ROOT_CONTEXT), ROOT_CONTEXT, fn),

    attempt({ job, pipeline, attempt, epoch, pool, carrier }, fn) {
      if (unread()) return fn(noNote);
      const enqueuer = carrier ? readCarrier(api, carrier) : undefined;
      const parent = enqueuer ? trace.setSpanContext(ROOT_CONTEXT, enqueuer) : ROOT_CONTEXT;
      const attributes = {
        "stillwake.job.id": job,
        "stillwake.pipeline": pipeline,
        "stillwake.attempt": attempt,
        "stillwake.epoch": epoch,
        "stillwake.pool": pool,
      };
      const options = { kind: SpanKind.CONSUMER, attributes, links: enqueuer ? [{ context: enqueuer }] : [] };
      return within(tracer.startSpan(`stillwake attempt ${pipeline}`, options, parent), parent, fn);
    },

    step(name, fn) {
      if (unread()) return fn(noNote);
      const around = context.active();
      return within(tracer.startSpan(`stillwake step ${name}`, {}, around), around, fn);
    },

    inject() {
      const span = trace.getActiveSpan()?.spanContext();
      if (!span || !api.isSpanContextValid(span)) return undefined;
      const flags = (span.traceFlags & 0xff).toString(16).padStart(2, "0");
      const tracestate = span.traceState?.serialize();
      return {
        traceparent: `00-${span.traceId}-${span.spanId}-${flags}`,
        ...(tracestate && tracestate.length <= MAX_STATE && { tracestate }),
      };
    },
  };
}

/** The carrier comes from the database, where any client may have written it: what is not a trace is no trace. */
function readCarrier(
  api: typeof OpenTelemetry,
  { traceparent, tracestate }: TraceCarrier,
): OpenTelemetry.SpanContext | undefined {
  // Versions after 00 may add fields; ff is none.
  const [, traceId, spanId, flags] =
    /^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/.exec(String(traceparent)) ?? [];
  const found = { traceId: traceId ?? "", spanId: spanId ?? "", traceFlags: Number.parseInt(flags ?? "0", 16) };
  if (!api.isSpanContextValid(found)) return undefined;
  const state = typeof tracestate === "string" && { traceState: api.createTraceState(tracestate) };
  return { ...found, isRemote: true, ...state };
}
