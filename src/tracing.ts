// OpenTelemetry spans around claims, attempts and steps, if @opentelemetry/api is installed; otherwise no-ops.
// The keeper and each runner load this module separately. The enqueuer's trace is stored with the job as the two
// strings of W3C Trace Context, written and parsed here, so that the program's propagator does not matter.
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
  /** The result of `inject` when the job was enqueued. */
  carrier?: TraceCarrier | null | undefined;
}

/**
 * Records the outcome of the work. A span has error status when an error is recorded, or when its function throws
 * without having recorded an outcome. A drain, for example, records its outcome without an error and then throws.
 */
type NoteOutcome = (outcome: string, error?: unknown) => void;

export interface Tracing {
  claim<T>(fn: () => Promise<T>): Promise<T>;
  attempt<T>(info: AttemptInfo, fn: (note: NoteOutcome) => Promise<T>): Promise<T>;
  /** A child span of the current attempt. */
  step<T>(name: string, fn: (note: NoteOutcome) => Promise<T>): Promise<T>;
  /** The active trace, to be stored with a job; undefined without one. */
  inject(): TraceCarrier | undefined;
}

/** `importApi` is for tests. */
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

// W3C requires support for at least 512 characters; a longer state is dropped rather than stored with every job.
const MAX_STATE = 512;

function spans(api: typeof OpenTelemetry): Tracing {
  const { trace, context, ROOT_CONTEXT, SpanKind, SpanStatusCode } = api;
  const tracer = trace.getTracer("stillwake", version);
  const provider = trace.getTracerProvider();
  /**
   * True while no SDK is registered. The API is often installed without one, and one may be registered later. A span
   * that is never exported still costs as much as a small job.
   */
  const hasNoSdk = () =>
    provider instanceof api.ProxyTracerProvider && provider.getDelegate().constructor.name === "NoopTracerProvider";

  /** Runs `fn` within the span, and ends the span with its outcome. */
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
    // Claims and attempts start at the root: the loop may have been started within a trace that ended long ago.
    claim: (fn) =>
      hasNoSdk() ? fn() : within(tracer.startSpan("stillwake claim", { root: true }, ROOT_CONTEXT), ROOT_CONTEXT, fn),

    attempt({ job, pipeline, attempt, epoch, pool, carrier }, fn) {
      if (hasNoSdk()) return fn(noNote);
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
      if (hasNoSdk()) return fn(noNote);
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

/** The carrier comes from the database, where any client can write it: anything malformed is ignored. */
function readCarrier(
  api: typeof OpenTelemetry,
  { traceparent, tracestate }: TraceCarrier,
): OpenTelemetry.SpanContext | undefined {
  // Versions after 00 may add fields; ff is invalid.
  const [, traceId, spanId, flags] =
    /^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/.exec(String(traceparent)) ?? [];
  const found = { traceId: traceId ?? "", spanId: spanId ?? "", traceFlags: Number.parseInt(flags ?? "0", 16) };
  if (!api.isSpanContextValid(found)) return undefined;
  const state = typeof tracestate === "string" && { traceState: api.createTraceState(tracestate) };
  return { ...found, isRemote: true, ...state };
}
