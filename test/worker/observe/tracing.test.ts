// Spans as received by an OpenTelemetry exporter, and the same calls in a program without OpenTelemetry.
import {
  context,
  createTraceState,
  INVALID_SPAN_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { loadTracing, type TraceCarrier } from "../../../src/tracing.ts";

const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
trace.setGlobalTracerProvider(provider);
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const tracing = await loadTracing();
const app = trace.getTracer("app");
const info = { job: "0198", pipeline: "clip", attempt: 2, epoch: "9007199254740993", pool: "gpu" };

beforeEach(() => exporter.reset());
afterAll(async () => {
  await provider.shutdown();
  trace.disable();
  context.disable();
});

describe("with OpenTelemetry", () => {
  it("an attempt is a span with the job's attributes, and spans within it are its children", async () => {
    const result = await tracing.attempt(info, async (note) => {
      app.startSpan("the user's own").end();
      note("completed");
      return 42;
    });
    expect(result).toBe(42);
    const attempt = spanNamed("stillwake attempt clip");
    expect(attempt.kind).toBe(SpanKind.CONSUMER);
    expect(attempt.attributes).toEqual({
      "stillwake.job.id": "0198",
      "stillwake.pipeline": "clip",
      "stillwake.attempt": 2,
      "stillwake.epoch": "9007199254740993",
      "stillwake.pool": "gpu",
      "stillwake.outcome": "completed",
    });
    expect(attempt.status.code).toBe(SpanStatusCode.UNSET);
    expect(spanNamed("the user's own").parentSpanContext?.spanId).toBe(attempt.spanContext().spanId);
  });

  it("steps are children of their attempt, also concurrent and nested ones", async () => {
    await tracing.attempt(info, async () => {
      await Promise.all([
        tracing.step("resolve", () => new Promise((resolve) => setImmediate(resolve))),
        tracing.step("upload", () => tracing.step("part", async () => {})),
      ]);
    });
    const attempt = spanNamed("stillwake attempt clip");
    expect(parentOf("stillwake step resolve")).toBe(attempt.spanContext().spanId);
    expect(parentOf("stillwake step upload")).toBe(attempt.spanContext().spanId);
    expect(parentOf("stillwake step part")).toBe(spanNamed("stillwake step upload").spanContext().spanId);
  });

  it("an error passes through and is recorded as an exception", async () => {
    const failure = new Error("no space left");
    const attempt = tracing.attempt(info, () =>
      tracing.step("upload", async () => {
        throw failure;
      }),
    );
    await expect(attempt).rejects.toBe(failure);
    for (const name of ["stillwake step upload", "stillwake attempt clip"]) {
      const span = spanNamed(name);
      expect(span.status).toEqual({ code: SpanStatusCode.ERROR, message: "no space left" });
      expect(span.attributes["stillwake.outcome"]).toBe("failed");
      expect(span.events.map((event) => event.attributes?.["exception.message"])).toEqual(["no space left"]);
    }
  });

  it("a failure that is recorded but not thrown is an error too", async () => {
    await tracing.attempt(info, async (note) => note("failed", new Error("HTTP 500")));
    expect(spanNamed("stillwake attempt clip").status).toEqual({ code: SpanStatusCode.ERROR, message: "HTTP 500" });
  });

  it("a signal that is recorded only by its outcome is no error, even when it is thrown", async () => {
    const attempt = tracing.attempt(info, async (note) => {
      note("released");
      throw new Error("draining");
    });
    await expect(attempt).rejects.toThrow("draining");
    const span = spanNamed("stillwake attempt clip");
    expect(span.status.code).toBe(SpanStatusCode.UNSET);
    expect(span.attributes["stillwake.outcome"]).toBe("released");
    expect(span.events).toEqual([]);
  });

  it("a claim is a separate trace that contains its calls", async () => {
    await app.startActiveSpan("the program's start", async (start: Span) => {
      expect(await tracing.claim(async () => tracing.inject()?.traceparent)).toContain(
        spanNamed("stillwake claim").spanContext().spanId,
      );
      start.end();
    });
    expect(spanNamed("stillwake claim").parentSpanContext).toBeUndefined();
  });

  it("the enqueuer's trace is restored as parent and link, through JSON and a database", async () => {
    const carrier = enqueuing((span) => ({ span, stored: stored(tracing.inject()) }));
    await tracing.attempt({ ...info, carrier: carrier.stored }, async () => {});
    const attempt = spanNamed("stillwake attempt clip");
    const enqueuer = carrier.span.spanContext();
    expect(attempt.spanContext().traceId).toBe(enqueuer.traceId);
    expect(attempt.parentSpanContext).toMatchObject({ spanId: enqueuer.spanId, isRemote: true });
    expect(attempt.links.map((link) => link.context.spanId)).toEqual([enqueuer.spanId]);
  });

  it("the tracestate is stored, unless it is too long", () => {
    const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    const inState = (state: string) => {
      const traceState = createTraceState(state);
      const active = { traceId: "a".repeat(32), spanId: "b".repeat(16), traceFlags: 1, traceState };
      return context.with(trace.setSpanContext(context.active(), active), () => tracing.inject());
    };
    expect(inState("vendor=abc")).toEqual({ traceparent, tracestate: "vendor=abc" });
    const long = [1, 2, 3].map((n) => `v${n}=${"x".repeat(200)}`);
    const tooLong = long.reduce(
      (state, pair) => state.set(...(pair.split("=") as [string, string])),
      createTraceState(),
    );
    const active = { traceId: "a".repeat(32), spanId: "b".repeat(16), traceFlags: 1, traceState: tooLong };
    const injected = context.with(trace.setSpanContext(context.active(), active), () => tracing.inject());
    expect(injected).toEqual({ traceparent });
  });

  it("the tracestate of the carrier reaches the attempt", async () => {
    const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    await tracing.attempt({ ...info, carrier: { traceparent, tracestate: "vendor=abc" } }, async () => {
      expect(tracing.inject()?.tracestate).toBe("vendor=abc");
    });
  });

  it.each<[string, unknown]>([
    ["none", null],
    ["an empty one", {}],
    ["zeros", { traceparent: `00-${"0".repeat(32)}-${"0".repeat(16)}-01` }],
    ["the version that is none", { traceparent: `ff-${"a".repeat(32)}-${"b".repeat(16)}-01` }],
    ["a text", "00-zz"],
    ["numbers", { traceparent: 7, tracestate: 8 }],
  ])("a carrier that is %s starts a new trace", async (_, carrier) => {
    await app.startActiveSpan("the program's start", async (start: Span) => {
      await tracing.attempt({ ...info, carrier: carrier as TraceCarrier }, async () => {});
      start.end();
    });
    const attempt = spanNamed("stillwake attempt clip");
    expect(attempt.parentSpanContext).toBeUndefined();
    expect(attempt.links).toEqual([]);
  });

  it("outside of any span the carrier is empty", () => {
    expect(tracing.inject()).toBeUndefined();
  });

  it("a span that is not recorded is not stored", () => {
    const silent = trace.setSpanContext(context.active(), INVALID_SPAN_CONTEXT);
    expect(context.with(silent, () => tracing.inject())).toBeUndefined();
  });
});

describe("without OpenTelemetry", () => {
  it.each<[string, () => Promise<unknown>]>([
    [
      "missing",
      () => Promise.reject(Object.assign(new Error("Cannot find package"), { code: "ERR_MODULE_NOT_FOUND" })),
    ],
    ["something else under its name", async () => ({})],
  ])("when the package is %s, all functions only call through", async (_, importApi) => {
    const none = await loadTracing(importApi);
    const carrier = enqueuing(() => none.inject());
    expect(carrier).toBeUndefined();
    expect(await none.claim(async () => 1)).toBe(1);
    const result = await none.attempt(info, (note) => {
      note("completed");
      return none.step("upload", async (noteStep) => {
        noteStep("failed", new Error("x"));
        return 2;
      });
    });
    expect(result).toBe(2);
    const failure = new Error("passes through");
    await expect(none.attempt(info, () => Promise.reject(failure))).rejects.toBe(failure);
    expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(["enqueue"]);
  });
});

function enqueuing<T>(fn: (span: Span) => T): T {
  return app.startActiveSpan("enqueue", (span) => {
    try {
      return fn(span);
    } finally {
      span.end();
    }
  });
}

function stored<T>(value: T): T {
  return JSON.parse(JSON.stringify(value));
}

function spanNamed(name: string) {
  const spans = exporter.getFinishedSpans().filter((span) => span.name === name);
  expect(spans, `spans named ${name}`).toHaveLength(1);
  return spans[0]!;
}

function parentOf(name: string): string | undefined {
  return spanNamed(name).parentSpanContext?.spanId;
}
