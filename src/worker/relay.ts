// stillwake/relay: a worker for platforms that limit how long code may run. A fetch-style handler of a serverless function: it claims and
// runs jobs for a limited time, releases unfinished jobs, and invokes itself while more is due.
//
//   invoked (by the previous invocation, a cron job or an enqueuer) -> claim and run until maxDuration is over or nothing is left
//     -> jobs are released between batches and steps; the others are stopped and released
//     -> more due? invoke the next, with depth + 1
//
// If an invocation dies, its jobs wait for their leases to expire, and the chain continues with the next trigger, so a
// cron job must invoke the handler too. Concurrent invocations are safe: the claim decides which one gets a job.
import fs from "node:fs/promises";
import { registerDependency } from "../db/calls/flow.ts";
import { registerPipeline } from "../db/calls/jobs.ts";
import { nextDueInMs, readPipelinePools } from "../db/calls/worker.ts";
import { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { newId } from "../ids.ts";
import { type Duration, durationMs } from "../time.ts";
import { withTimeout } from "../timeout.ts";
import { loadTracing } from "../tracing.ts";
import { Sender } from "../webhooks/sender.ts";
import type { AnyImplementation } from "./attempt/implement.ts";
import { Keeper } from "./keeper/keeper.ts";
import { createWorkerEvents } from "./observe/events.ts";
import { readWorkerOptions, type WorkerOptions, type WorkerSettings } from "./options.ts";
import { InProcessRunner } from "./runner/in-process.ts";
import { claimableBy, type LoadedPipeline, type Runners } from "./runner/port.ts";

export interface RelayOptions
  extends Pick<
    WorkerOptions,
    | "url"
    | "schema"
    | "connections"
    | "pool"
    | "slots"
    | "lease"
    | "grace"
    | "store"
    | "sealKeys"
    | "secrets"
    | "environment"
    | "webhooks"
  > {
  /** Results of implement(). */
  pipelines: readonly AnyImplementation[];
  /** How long an invocation works: some seconds less than the platform allows. */
  maxDuration: Duration;
  /**
   * Callers send it as `Authorization: Bearer …`; at least 16 characters. Several during a rotation: the first is sent
   * to the next invocation.
   */
  secret: string | readonly string[];
  /** The URL of this handler, or a function that invokes it. Without it, the handler does not invoke itself. */
  next?: string | URL | ((invocation: { depth: number }) => Promise<unknown>);
  /** Maximum number of invocations that follow from one trigger. Default 1000. */
  depth?: number;
}

/** The result of an invocation; the last line of the response. */
export interface Relayed {
  depth: number;
  jobs: number;
  tookMs: number;
  /** "invoked", "invoked; no response yet", "nothing is due", "the depth limit is reached", "no next handler is set", or an error. */
  next: string;
}

/** `platform`: the context object of Cloudflare, Vercel and others; with waitUntil, work continues after the response. */
export type Relay = (request: Request, platform?: { waitUntil?(work: Promise<unknown>): void }) => Promise<Response>;

const DEPTH = "stillwake-depth";
/** An invocation waits for a job that is due within this time. */
const DUE_SOON_MS = 500;
/** How long to wait for the response headers of the next invocation. */
const ACCEPT_MS = 5000;
/** Without Postgres nothing can be settled: unsettled jobs then wait for their leases to expire. */
const SETTLE_MS = 1000;
const LIMITS_MS = 500;
/** How long an invocation sends webhooks after its jobs are done. */
const WEBHOOKS_MS = 5000;
/** Errors after which the handler cannot have started. After any other error it may run, and a retry would start a second one. */
const notReached = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

export function relay(options: RelayOptions): Relay {
  const { maxDuration, secret, next, depth: maxDepth = 1000, ...rest } = options;
  const maxDurationMs = durationMs(maxDuration, "maxDuration");
  const secrets = typeof secret === "string" ? [secret] : [...(secret ?? [])];
  if (secrets.length === 0 || secrets.some((value) => typeof value !== "string" || value.length < 16)) {
    throw new InvalidInput("A relay needs a secret of at least 16 characters", {
      field: "secret",
      remedy: "Create one with: openssl rand -hex 32",
    });
  }
  if (!Number.isInteger(maxDepth) || maxDepth < 1) {
    throw new InvalidInput(`depth must be a whole number of at least 1, not ${String(maxDepth)}`, {
      field: "depth",
      remedy: "Pass how many invocations may follow from one trigger",
    });
  }
  if (next !== undefined && typeof next !== "function" && !isHttpUrl(next)) {
    throw new InvalidInput("next must be a function or the absolute URL of this handler", {
      field: "next",
      remedy: 'Pass a URL such as "https://example.org/work"',
    });
  }
  const settings = readWorkerOptions({
    slots: 4,
    lease: "10s",
    grace: "2s",
    ...rest,
    isolation: "none",
    directUrl: false,
    poll: "250ms",
  });
  const database = new Database({ ...settings.database, retryTimeout: `${maxDurationMs}ms` });
  let prepared: Promise<Prepared> | undefined;

  const work = async (depth: number): Promise<Relayed> => {
    const startedAt = performance.now();
    prepared ??= prepare(database, settings);
    const ready = await prepared.catch((error) => {
      prepared = undefined;
      throw error;
    });
    const { jobs, due } = await workWithin(database, settings, ready, startedAt, maxDurationMs);
    let followed = "nothing is due";
    if (due && next === undefined) followed = "no next handler is set";
    else if (due && depth + 1 >= maxDepth) followed = "the depth limit is reached";
    else if (due) {
      followed = await invokeNext(next, secrets[0]!, depth + 1).catch(
        ({ message }) => `could not invoke the next handler: ${message}`,
      );
    }
    return { depth, jobs, tookMs: Math.round(performance.now() - startedAt), next: followed };
  };

  return async (request, platform) => {
    if (request.method !== "POST" && request.method !== "GET")
      return errorResponse(405, "Use POST, or GET from a cron job");
    const token = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1] ?? "";
    if (!(await isOneOf(token, secrets)))
      return errorResponse(401, "Authorization: Bearer <secret> is missing or wrong");
    const depth = Number(request.headers.get(DEPTH) ?? "0");
    if (!Number.isInteger(depth) || depth < 0 || depth >= maxDepth) {
      return errorResponse(400, `${DEPTH} must be a whole number below ${maxDepth}`);
    }
    const working = work(depth);
    platform?.waitUntil?.(working.catch(() => {}));
    return respondWhile(working, depth);
  };
}

interface Prepared {
  pipelines: LoadedPipeline[];
  pools: string[];
}

async function prepare(database: Database, settings: WorkerSettings): Promise<Prepared> {
  await fs.mkdir(settings.scratchRoot, { recursive: true, mode: 0o700 });
  const runner = await createRunner(settings, "relay.", Number.POSITIVE_INFINITY);
  const pipelines = await runner.start();
  for (const { name, settings: policies, dependencies } of pipelines) {
    for (const dependency of dependencies) await registerDependency(database, dependency);
    await registerPipeline(database, name, policies);
  }
  const names = pipelines.map(({ name }) => name);
  const pools = await readPipelinePools(database, names, settings.pool);
  return { pipelines, pools: settings.pool === undefined ? [...pools.keys()] : [settings.pool] };
}

async function createRunner(settings: WorkerSettings, processTag: string, releaseAt: number): Promise<InProcessRunner> {
  const tracing = await loadTracing();
  return new InProcessRunner({ ...settings, env: settings.environment, tracing, processTag, releaseAt });
}

/** Works until the deadline, or until nothing is left. `due`: more jobs are due. */
async function workWithin(
  database: Database,
  settings: WorkerSettings,
  { pipelines, pools }: Prepared,
  startedAt: number,
  maxDurationMs: number,
): Promise<{ jobs: number; due: boolean }> {
  const deadline = startedAt + maxDurationMs;
  const worker = `relay-${newId()}`;
  const events = createWorkerEvents();
  const claimable = claimableBy(pools, pipelines);
  let jobs = 0;
  events.subscribe((event) => {
    if (event.kind === "attempt.started") jobs += 1;
  });
  const runner = await createRunner(settings, `${worker}.`, deadline);
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const stopClaiming = () => {
    keeper.retire();
    finish();
  };
  const keeper = new Keeper({
    ...settings,
    database,
    events,
    // A job that is released early, because of its pipeline's releaseAfter, may be claimed again by this invocation.
    runners: withReleaseHook(runner, () => performance.now() > deadline - maxDurationMs / 4 && stopClaiming()),
    tracing: await loadTracing(),
    pipelines,
    pools,
    worker,
    presence: () => null,
    hintsArrive: () => false,
    connectedForMs: () => 0,
    onBusy: () => {},
    onIdle: () =>
      void nextDueInMs(database, claimable).then(
        (inMs) => (inMs === null || inMs > DUE_SOON_MS) && finish(),
        () => finish(),
      ),
  });
  const leftMs = () => Math.max(0, deadline - performance.now());
  const deadlineTimer = setTimeout(stopClaiming, leftMs());
  const limitsTimer = setInterval(() => keeper.enforceLimits(performance.now(), 0), LIMITS_MS);
  keeper.start();
  await finished;
  clearTimeout(deadlineTimer);
  keeper.retire();
  // Jobs that can be released are released before the deadline; the others are stopped at it.
  const stopTimer = setTimeout(() => keeper.stopAll({ kind: "max_duration", afterMs: maxDurationMs }), leftMs());
  const allSettled = keeper.settled().then(() => true);
  const settled = await withTimeout(allSettled, leftMs() + settings.graceMs + SETTLE_MS, false);
  clearTimeout(stopTimer);
  clearInterval(limitsTimer);
  keeper.close();
  await runner.stop();
  if (settled) await sendWebhooks(database, worker, settings);
  const nextDue = () => nextDueInMs(database, claimable).catch(() => null);
  const inMs = settled ? await withTimeout(nextDue(), SETTLE_MS, null) : null;
  return { jobs, due: inMs !== null && inMs <= DUE_SOON_MS };
}

/** No other sender may be running. */
async function sendWebhooks(database: Database, name: string, { webhooks }: WorkerSettings): Promise<void> {
  if (!webhooks) return;
  const sender = new Sender({ database, name, onSent: () => {}, onError: () => {} }, webhooks);
  await withTimeout(
    sender.flush(WEBHOOKS_MS).catch(() => {}),
    WEBHOOKS_MS,
    undefined,
  );
  await sender.stop(SETTLE_MS);
}

/** Calls `onRelease` when a job is released: it is queued again, and this invocation must not claim it again. */
function withReleaseHook(runners: Runners, onRelease: () => void): Runners {
  return {
    start: () => runners.start(),
    stop: () => runners.stop(),
    run(assignment, port) {
      const run = runners.run(assignment, port);
      const outcome = run.outcome.then((result) => {
        if (result.kind === "released") onRelease();
        return result;
      });
      return { ...run, outcome };
    },
  };
}

/** The handler has accepted when its response starts; the body is ignored. Without a response it may still be running. */
async function invokeNext(next: RelayOptions["next"], secret: string, depth: number): Promise<string> {
  if (typeof next === "function") {
    await next({ depth });
    return "invoked";
  }
  for (let attempt = 1; ; attempt++) {
    try {
      const response = await fetch(next!, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, [DEPTH]: String(depth) },
        redirect: "error",
        signal: AbortSignal.timeout(ACCEPT_MS),
      });
      void response.body?.cancel().catch(() => {});
      if (response.ok) return "invoked";
      throw Object.assign(new Error(`it responded ${response.status}`), { busy: [429, 503].includes(response.status) });
    } catch (error) {
      const { name, cause, busy } = error as Error & { cause?: { code?: string }; busy?: boolean };
      if (name === "TimeoutError") return "invoked; no response yet";
      if (attempt === 3 || !(busy || notReached.has(cause?.code ?? ""))) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
    }
  }
}

/** The response starts at once, which lets the caller disconnect, and ends with the work. */
function respondWhile(working: Promise<Relayed>, depth: number): Response {
  const text = new TextEncoder();
  let cancelled = false;
  const body = new ReadableStream<Uint8Array>({
    start(stream) {
      stream.enqueue(text.encode(`${JSON.stringify({ depth, accepted: true })}\n`));
      const end = (last: object) => {
        if (cancelled) return;
        stream.enqueue(text.encode(`${JSON.stringify(last)}\n`));
        stream.close();
      };
      working.then(end, (error: Error) => end({ depth, error: (error as { code?: string }).code ?? error.name }));
    },
    // The caller has disconnected; the work continues.
    cancel() {
      cancelled = true;
    },
  });
  return new Response(body, { headers: { "content-type": "application/x-ndjson", "cache-control": "no-store" } });
}

function isHttpUrl(next: unknown): boolean {
  return URL.canParse(String(next)) && /^https?:$/.test(new URL(String(next)).protocol);
}

function errorResponse(status: number, error: string): Response {
  return Response.json({ error }, { status, headers: { "cache-control": "no-store" } });
}

/** In constant time: compares digests, with every secret. */
async function isOneOf(token: string, secrets: string[]): Promise<boolean> {
  const digest = async (value: string) =>
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(value)));
  const actual = await digest(token);
  let found = false;
  for (const secret of secrets) {
    const expected = await digest(secret);
    let difference = 0;
    for (const [index, byte] of expected.entries()) difference |= byte ^ actual[index]!;
    found = difference === 0 || found;
  }
  return found;
}
