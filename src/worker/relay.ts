// stillwake/relay: work where nothing may run for long. A fetch-style handler that each invocation of a serverless function answers with: it claims, works
// within its time, hands on what is not done, and invokes the next one itself while more is due.
//
//   invoked (by its predecessor, a cron, an enqueuer) -> claim and run until the time is nearly over or nothing is left
//     -> jobs hand themselves on between batches and steps; what does not is told to stop and goes back to the line, uncharged
//     -> more due? invoke the next, one deeper
//
// An invocation that dies costs its jobs the length of a lease, and the chain goes on with the next trigger: a cron that invokes it, too, is part of the
// design. Two at once do no harm: the claim decides, and at most one job of a key is active.
import fs from "node:fs/promises";
import { registerNeed } from "../db/calls/flow.ts";
import { registerPipeline } from "../db/calls/jobs.ts";
import { dueIn } from "../db/calls/worker.ts";
import { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { newId } from "../ids.ts";
import { type Duration, durationMs } from "../time.ts";
import { loadTracing } from "../tracing.ts";
import { Sender } from "../webhooks/sender.ts";
import type { AnyImplementation } from "./attempt/implement.ts";
import { Keeper } from "./keeper/keeper.ts";
import { createAnnouncer } from "./observe/events.ts";
import { readWorkerOptions, type WorkerOptions, type WorkerSettings } from "./options.ts";
import { OwnCrew } from "./runner/in-process.ts";
import type { Assignment, Crew, PipelineFacts, Port, Run } from "./runner/port.ts";

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
    | "env"
    | "webhooks"
  > {
  /** What implement() returned. */
  pipelines: readonly AnyImplementation[];
  /** How long an invocation works; leave some seconds of what the platform allows. */
  budget: Duration;
  /** Who knows it may invoke: `Authorization: Bearer …`, at least 16 characters. Several while one is replaced; the first is sent on. */
  secret: string | readonly string[];
  /** The address of this very handler, or a function that invokes it. Without it somebody else has to. */
  next?: string | URL | ((invocation: { depth: number }) => Promise<unknown>);
  /** Invocations that follow from one trigger, at most. Default 1000. */
  depth?: number;
}

/** What an invocation has done; the last line of its answer. */
export interface Relayed {
  depth: number;
  jobs: number;
  tookMs: number;
  /** "invoked" (with more words when nothing was heard of it yet), "nothing is due", "the chain is as long as it may be", "nobody to invoke", or why it could not be invoked. */
  next: string;
}

/** `platform`: what Cloudflare, Vercel and others hand over; work goes on after the answer where there is a waitUntil. */
export type Relay = (request: Request, platform?: { waitUntil?(work: Promise<unknown>): void }) => Promise<Response>;

const DEPTH = "stillwake-depth";
/** A job that is due this soon is waited for. */
const PATIENCE_MS = 500;
/** How long to wait for the first byte of the next invocation's answer. */
const ACCEPT_MS = 5000;
/** With Postgres away nothing can be settled; what is left then is left to the lease. */
const LAST_MS = 1000;
const WATCH_MS = 500;
/** How long an invocation sends what jobs have to tell, when its jobs are done. */
const TELL_MS = 5000;
/** It was not reached, or said that it did not begin. After anything else it may be at work, and a second one would go on besides. */
const notReached = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

export function relay(options: RelayOptions): Relay {
  const { budget, secret, next, depth: most = 1000, ...rest } = options;
  const budgetMs = durationMs(budget, "budget");
  const secrets = typeof secret === "string" ? [secret] : [...(secret ?? [])];
  if (secrets.length === 0 || secrets.some((one) => typeof one !== "string" || one.length < 16)) {
    throw new InvalidInput("A relay needs a secret of at least 16 characters", {
      field: "secret",
      remedy: "Make one with: openssl rand -hex 32",
    });
  }
  if (!Number.isInteger(most) || most < 1) {
    throw new InvalidInput(`depth must be a whole number from 1, not ${String(most)}`, {
      field: "depth",
      remedy: "Choose how many invocations may follow from one trigger",
    });
  }
  if (next !== undefined && typeof next !== "function" && !isAddress(next)) {
    throw new InvalidInput("next is neither a function nor the whole address of this handler", {
      field: "next",
      remedy: 'Write it as "https://example.org/work"',
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
  const database = new Database({ ...settings.database, patience: `${budgetMs}ms` });
  let prepared: Promise<PipelineFacts[]> | undefined;

  const work = async (depth: number): Promise<Relayed> => {
    const began = performance.now();
    prepared ??= prepare(database, settings);
    const pipelines = await prepared.catch((error) => {
      prepared = undefined;
      throw error;
    });
    const { jobs, due } = await workWithin(database, settings, pipelines, began, budgetMs);
    let followed = "nothing is due";
    if (due && next === undefined) followed = "nobody to invoke";
    else if (due && depth + 1 >= most) followed = "the chain is as long as it may be";
    else if (due) followed = await invokeNext(next, secrets[0]!, depth + 1).catch(inWords);
    return { depth, jobs, tookMs: Math.round(performance.now() - began), next: followed };
  };

  return async (request, platform) => {
    if (request.method !== "POST" && request.method !== "GET") return refusal(405, "Use POST, or GET from a cron");
    const given = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1] ?? "";
    if (!(await isOneOf(given, secrets))) return refusal(401, "Authorization: Bearer <secret> is missing or wrong");
    const depth = Number(request.headers.get(DEPTH) ?? "0");
    if (!Number.isInteger(depth) || depth < 0 || depth >= most) {
      return refusal(400, `${DEPTH} must be a whole number below ${most}`);
    }
    const working = work(depth);
    platform?.waitUntil?.(working.catch(() => {}));
    return answerWhile(working, depth);
  };
}

async function prepare(database: Database, settings: WorkerSettings): Promise<PipelineFacts[]> {
  await fs.mkdir(settings.scratchRoot, { recursive: true, mode: 0o700 });
  const crew = await ownCrew(settings, "relay.", Number.POSITIVE_INFINITY);
  const pipelines = await crew.start();
  for (const { name, settings: policies, needs } of pipelines) {
    for (const need of needs) await registerNeed(database, need);
    await registerPipeline(database, name, policies);
  }
  return pipelines;
}

async function ownCrew(settings: WorkerSettings, mark: string, handOnAt: number): Promise<OwnCrew> {
  const { implementations, pool, graceMs, env } = settings;
  return new OwnCrew({ implementations, tracing: await loadTracing(), pool, mark, graceMs, env, handOnAt });
}

/** Works until the time is over or nothing is left. `due`: something is. */
async function workWithin(
  database: Database,
  settings: WorkerSettings,
  pipelines: PipelineFacts[],
  began: number,
  budgetMs: number,
): Promise<{ jobs: number; due: boolean }> {
  const until = began + budgetMs;
  const worker = `relay-${newId()}`;
  const announcer = createAnnouncer();
  const question = {
    pool: settings.pool,
    pipelines: pipelines.map(({ name }) => name),
    versions: pipelines.map(({ version }) => version),
    oldest: pipelines.map(({ version, onOlder }) => (onOlder === "wait" ? version : 1)),
  };
  let jobs = 0;
  announcer.subscribe((event) => {
    if (event.kind === "attempt.started") jobs += 1;
  });
  const inner = await ownCrew(settings, `${worker}.`, until);
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const tired = () => {
    keeper.retire();
    finish();
  };
  const keeper = new Keeper({
    ...settings,
    database,
    announcer,
    // One that hands itself on early, by its own budget, may be taken up once more.
    crew: new TiringCrew(inner, () => performance.now() > until - budgetMs / 4 && tired()),
    tracing: await loadTracing(),
    pipelines,
    worker,
    presence: () => null,
    pushed: () => false,
    onBusy: () => {},
    onIdle: () =>
      void dueIn(database, question).then(
        (inMs) => (inMs === null || inMs > PATIENCE_MS) && finish(),
        () => finish(),
      ),
  });
  const leftMs = () => Math.max(0, until - performance.now());
  const over = setTimeout(tired, leftMs());
  const watching = setInterval(() => keeper.watch(performance.now(), 0), WATCH_MS);
  keeper.start();
  await finished;
  clearTimeout(over);
  keeper.retire();
  // Those that hand themselves on do it by the end of their time; the others are told to stop then.
  const late = setTimeout(() => keeper.stopAll({ kind: "budget", afterMs: budgetMs }), leftMs());
  const settled = await within(leftMs() + settings.graceMs + LAST_MS, keeper.quiet().then(isTrue), false);
  clearTimeout(late);
  clearInterval(watching);
  keeper.close();
  await inner.stop();
  if (settled) await tell(database, worker, settings);
  const inMs = settled ? await within(LAST_MS, dueIn(database, question), null) : null;
  return { jobs, due: inMs !== null && inMs <= PATIENCE_MS };
}

const isTrue = () => true;

/** Nobody else may be here to send webhooks. */
async function tell(database: Database, name: string, { webhooks }: WorkerSettings): Promise<void> {
  if (!webhooks) return;
  const sender = new Sender({ database, name, onSent: () => {}, onTrouble: () => {} }, webhooks);
  await within(TELL_MS, sender.flush(TELL_MS), undefined);
  await sender.stop(LAST_MS);
}

async function within<T>(ms: number, answer: Promise<T>, otherwise: T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(otherwise), ms);
  });
  return Promise.race([answer.catch(() => otherwise), over]).finally(() => clearTimeout(timer));
}

/** Says so when a job hands itself on: it is in line again, and this invocation must not take it up once more. */
class TiringCrew implements Crew {
  readonly #inner: Crew;
  readonly #onTired: () => void;

  constructor(inner: Crew, onTired: () => void) {
    this.#inner = inner;
    this.#onTired = onTired;
  }

  start(): Promise<PipelineFacts[]> {
    return this.#inner.start();
  }

  run(assignment: Assignment, port: Port): Run {
    const run = this.#inner.run(assignment, port);
    const outcome = run.outcome.then((reached) => {
      if (reached.kind === "released") this.#onTired();
      return reached;
    });
    return { ...run, outcome };
  }

  stop(): Promise<void> {
    return this.#inner.stop();
  }
}

/** Accepted means that its answer has begun. What it has to say is of no interest here. Where nothing is heard it may be at work all the same. */
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
      throw Object.assign(new Error(`it answered ${response.status}`), { busy: [429, 503].includes(response.status) });
    } catch (error) {
      const { name, cause, busy } = error as Error & { cause?: { code?: string }; busy?: boolean };
      if (name === "TimeoutError") return "invoked; its answer has not begun yet";
      if (attempt === 3 || !(busy || notReached.has(cause?.code ?? ""))) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
    }
  }
}

/** The answer begins at once, which tells the invoker that it may go, and ends with the work. */
function answerWhile(working: Promise<Relayed>, depth: number): Response {
  const text = new TextEncoder();
  let gone = false;
  const body = new ReadableStream<Uint8Array>({
    start(stream) {
      stream.enqueue(text.encode(`${JSON.stringify({ depth, accepted: true })}\n`));
      const end = (last: object) => {
        if (gone) return;
        stream.enqueue(text.encode(`${JSON.stringify(last)}\n`));
        stream.close();
      };
      working.then(end, (error: Error) => end({ depth, error: (error as { code?: string }).code ?? error.name }));
    },
    // Whoever asked does not listen any more; the work goes on.
    cancel() {
      gone = true;
    },
  });
  return new Response(body, { headers: { "content-type": "application/x-ndjson", "cache-control": "no-store" } });
}

function isAddress(next: unknown): boolean {
  return URL.canParse(String(next)) && /^https?:$/.test(new URL(String(next)).protocol);
}

function inWords(error: Error): string {
  return `the next could not be invoked: ${error.message}`;
}

function refusal(status: number, words: string): Response {
  return Response.json({ error: words }, { status, headers: { "cache-control": "no-store" } });
}

/** In the same time whatever is given: digests are compared, and all of them. */
async function isOneOf(given: string, secrets: string[]): Promise<boolean> {
  const digest = async (value: string) =>
    new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(value)));
  const asked = await digest(given);
  let known = false;
  for (const secret of secrets) {
    const right = await digest(secret);
    let difference = 0;
    for (const [place, byte] of right.entries()) difference |= byte ^ asked[place]!;
    known = difference === 0 || known;
  }
  return known;
}
