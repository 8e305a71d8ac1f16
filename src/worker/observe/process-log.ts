// The log of a worker process: one line per worker event. JSON lines, or short readable lines on a terminal. Log lines
// of jobs are not written here: they are stored with the job.
import { type DestinationStream, type Logger, pino } from "pino";
import { formatMs } from "../attempt/outcome.ts";
import { formatEmptyModule } from "../runner/load-pipelines.ts";
import type { EventOf, WorkerEvent, WorkerEvents } from "./events.ts";

export interface ProcessLogOptions {
  level?: string;
  destination?: DestinationStream;
  /** Readable lines instead of JSON. Default: true when stdout is a terminal and no destination is set. */
  pretty?: boolean;
}

export function createProcessLog({ level = "info", destination, pretty }: ProcessLogOptions = {}): Logger {
  const readable = pretty ?? (!destination && process.stdout.isTTY === true);
  const out = destination ?? pino.destination({ fd: 1, sync: true });
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: secretPaths, censor: "***" },
      hooks: { streamWrite: redactCredentials },
    },
    readable ? { write: (line) => out.write(formatLine(line)) } : out,
  );
}

/** Returns a function that ends the subscription. */
export function logEvents(events: WorkerEvents, logger: Logger): () => void {
  const lines = describeEvents();
  return events.subscribe((event) => {
    const line = lines[event.kind] as Line<WorkerEvent>;
    const level = typeof line.level === "string" ? line.level : line.level(event);
    // Checked first: at tens of thousands of attempts per second, disabled lines must not be formatted.
    if (!logger.isLevelEnabled(level)) return;
    const { kind, ...data } = event;
    logger[level]({ event: kind, ...data }, line.format(event));
  });
}

type Level = "trace" | "debug" | "info" | "warn" | "error";

interface Line<Event> {
  level: Level | ((event: Event) => Level);
  format: (event: Event) => string;
}

/** One table per subscription, because of consecutive failed heartbeats only the first is a warning. */
function describeEvents(): { [Kind in WorkerEvent["kind"]]: Line<EventOf<Kind>> } {
  let heartbeatOk = true;
  return {
    "worker.started": {
      level: "info",
      format: (e) =>
        `worker ${e.worker} started: ${count(e.slots, "slot")} for ${formatPools(e.pools)}${Object.keys(e.notServed).length > 0 ? `; not served: ${formatPools(e.notServed)}` : ""} (isolation ${e.isolation}, version ${e.version})`,
    },
    "env.withheld": {
      level: "info",
      format: (e) => `pipeline code does not get ${e.names.join(", ")} (setting env)`,
    },
    "worker.draining": {
      level: "info",
      format: (e) => `draining (${e.reason}): ${count(e.active, "job")} may take up to ${formatMs(e.limitMs)}`,
    },
    "worker.stopped": {
      level: "info",
      format: (e) => `stopped (${e.reason}) after ${count(e.jobs, "job")}, the drain took ${formatMs(e.tookMs)}`,
    },
    "database.lost": { level: "error", format: (e) => `the database cannot be reached: ${e.message}` },
    "database.back": { level: "info", format: (e) => `the database is back after ${formatMs(e.awayMs)}` },
    "hints.lost": {
      level: "warn",
      format: (e) => `the connection for hints was lost, polling until it is back: ${e.message}`,
    },
    "hints.ready": { level: "info", format: () => "the connection for hints is ready" },
    "hints.unavailable": { level: "warn", format: (e) => `no hints, polling instead: ${e.why}` },
    claimed: { level: "debug", format: (e) => `claimed ${count(e.count, "job")} in ${formatMs(e.tookMs)}` },
    "claim.empty": {
      level: (e) => (e.hinted ? "debug" : "trace"),
      format: (e) => (e.hinted ? "another worker was faster" : "nothing to claim"),
    },
    "claim.failed": { level: "error", format: (e) => `claim failed, retrying: ${e.message}` },
    "settlement.rejected": {
      level: "error",
      format: (e) => `Postgres rejected the outcome of job ${e.job}: ${e.message}`,
    },
    heartbeat: {
      level: () => {
        heartbeatOk = true;
        return "trace";
      },
      format: (e) => `heartbeat for ${count(e.jobs, "job")} in ${formatMs(e.tookMs)}`,
    },
    "heartbeat.failed": {
      level: () => {
        const level = heartbeatOk ? "warn" : "debug";
        heartbeatOk = false;
        return level;
      },
      format: (e) => `heartbeat failed, retrying: ${e.message}`,
    },
    recovered: {
      level: "warn",
      format: (e) =>
        `recovered ${count(e.count, "job")}: ${e.reason === "stale" ? "the lease expired" : "the worker died"}`,
    },
    "attempt.started": { level: "debug", format: (e) => `attempt ${e.attempt} of ${e.pipeline} started, job ${e.job}` },
    "attempt.ended": {
      level: (e) => (["failed", "lost", "replaced"].includes(e.outcome) ? "warn" : "debug"),
      format: (e) =>
        `${e.pipeline} ${e.outcome}${e.step ? ` in step ${e.step}` : ""}${e.code ? ` (${e.code})` : ""} after ${formatMs(e.tookMs)}${e.retry ? ", will retry" : ""}, job ${e.job}`,
    },
    "step.started": { level: "debug", format: (e) => `step ${e.step} of ${e.pipeline} started, job ${e.job}` },
    "step.ended": {
      level: "debug",
      format: (e) =>
        `step ${e.step} of ${e.pipeline} ${e.outcome}${e.code ? ` (${e.code})` : ""} after ${formatMs(e.tookMs)}, job ${e.job}`,
    },
    "write.refused": {
      level: "warn",
      format: (e) => `a late ${e.verb} was refused: job ${e.job} has been replaced by another attempt`,
    },
    "module.empty": { level: "warn", format: (e) => formatEmptyModule(e.file) },
    "runner.started": {
      level: "debug",
      format: (e) => `runner ${e.runner} (pid ${e.pid}) ready in ${formatMs(e.tookMs)}`,
    },
    "runner.died": {
      level: (e) => (e.code === 0 && !e.job ? "debug" : "warn"),
      format: (e) =>
        `runner ${e.runner} (pid ${e.pid}) died: ${e.cause} (${e.signal ?? `exit code ${e.code}`})${e.job ? `, job ${e.job}` : ""}`,
    },
    "runner.output": {
      level: (e) => (e.stream === "stderr" ? "warn" : "info"),
      format: (e) => e.line,
    },
    "memory.high": {
      level: "warn",
      format: (e) =>
        `memory is nearly exhausted: ${Math.round(e.fraction * 100)} % of ${megabytes(e.limitBytes)} used (${megabytes(e.usedBytes)})`,
    },
    demand: {
      level: "debug",
      format: (e) =>
        `pool ${e.pool}: ${e.claimable} claimable, ${e.running} running, the oldest has waited ${e.oldestSeconds} s`,
    },
    webhook: {
      level: (e) => (e.state === "delivered" ? "debug" : "warn"),
      format: (e) =>
        `webhook ${e.id} to ${e.endpoint} ${e.state === "pending" ? "will be retried" : e.state}, attempt ${e.attempt}: ${e.error ?? e.status}${e.error && e.status ? ` ${e.status}` : ""} after ${formatMs(e.tookMs)}`,
    },
    "housekeeping.failed": { level: "warn", format: (e) => `housekeeping failed: ${e.message}` },
    "logs.dropped": { level: "warn", format: (e) => `dropped ${count(e.lines, "log line")} of job ${e.job}` },
  };
}

/** Such as "pool default (clip, report), pool scan (scan)". */
function formatPools(pools: Record<string, string[]>): string {
  const served = Object.entries(pools).map(([pool, names]) => `pool ${pool} (${names.join(", ") || "no pipeline"})`);
  return served.join(", ") || "no pool";
}

function count(amount: number, thing: string): string {
  return `${amount} ${thing}${amount === 1 ? "" : "s"}`;
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MB`;
}

const secretPaths = ["url", "databaseUrl", "password", "authorization", "token"].flatMap((name) => [
  name,
  `*.${name}`,
  `*.*.${name}`,
]);

/** Driver messages may quote a connection string. Keeps the host and the user, removes credentials. */
function redactCredentials(line: string): string {
  return line
    .replace(/(:\/\/[^\s:@/"]*):[^\s"]+@/g, "$1:***@")
    .replace(/([?&](?:password|token|authorization)=)[^\s"&]+/gi, "$1***");
}

interface WrittenLine {
  level: string;
  time: string;
  msg?: string;
  event?: string;
  err?: { stack?: string };
}

/** Such as "12:03:44 warn  clip failed in step upload …". Lines of events omit the fields, which the message contains. */
function formatLine(line: string): string {
  const { level, time, msg = "", event, err, ...fields } = JSON.parse(line) as WrittenLine;
  const clock = new Date(time).toTimeString().slice(0, 8);
  const rest = event ? [] : Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const stack = err?.stack ? `\n${err.stack.split("\n").map(escapeControls).join("\n  ")}` : "";
  return `${[clock, level.padEnd(5), escapeControls(msg), ...rest].join(" ")}${stack}\n`;
}

/** Untrusted text must not move the cursor or start a new line. */
function escapeControls(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
