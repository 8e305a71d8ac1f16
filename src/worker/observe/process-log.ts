// The worker's own log: what it announces, as one line each, in words. JSON lines for machines; on a terminal, short lines for people.
// Lines of jobs do not pass here: they belong to the job and are stored with it.
import { type DestinationStream, type Logger, pino } from "pino";
import { inWords } from "../attempt/outcome.ts";
import { withoutPipeline } from "../runner/load-pipelines.ts";
import type { Announcer, EventOf, WorkerEvent } from "./events.ts";

export interface ProcessLogOptions {
  level?: string;
  destination?: DestinationStream;
  /** For people instead of machines; by default when stdout is a terminal and no destination is given. */
  pretty?: boolean;
}

export function createProcessLog({ level = "info", destination, pretty }: ProcessLogOptions = {}): Logger {
  const forPeople = pretty ?? (!destination && process.stdout.isTTY === true);
  const out = destination ?? pino.destination({ fd: 1, sync: true });
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: secretPaths, censor: "***" },
      hooks: { streamWrite: withoutCredentials },
    },
    forPeople ? { write: (line) => out.write(forReading(line)) } : out,
  );
}

/** Returns what ends the subscription. */
export function logAnnouncements(announcer: Announcer, logger: Logger): () => void {
  const lines = describeEvents();
  return announcer.subscribe((event) => {
    const line = lines[event.kind] as Line<WorkerEvent>;
    const level = typeof line.level === "string" ? line.level : line.level(event);
    // Asked first: at tens of thousands of attempts a second, a line nobody sees must not be written.
    if (!logger.isLevelEnabled(level)) return;
    const { kind, ...data } = event;
    logger[level]({ event: kind, ...data }, line.say(event));
  });
}

type Level = "trace" | "debug" | "info" | "warn" | "error";

interface Line<Event> {
  level: Level | ((event: Event) => Level);
  say: (event: Event) => string;
}

/** One table for each subscription, because a row of failed heartbeats is told once. */
function describeEvents(): { [Kind in WorkerEvent["kind"]]: Line<EventOf<Kind>> } {
  let beating = true;
  return {
    "worker.started": {
      level: "info",
      say: (e) =>
        `worker ${e.worker} started: ${count(e.slots, "slot")} in pool ${e.pool} for ${e.pipelines.join(", ")} (isolation ${e.isolation}, version ${e.version})`,
    },
    "worker.draining": {
      level: "info",
      say: (e) => `draining (${e.reason}): ${count(e.active, "job")} may take up to ${inWords(e.limitMs)}`,
    },
    "worker.stopped": {
      level: "info",
      say: (e) => `stopped (${e.reason}) after ${count(e.jobs, "job")}, the drain took ${inWords(e.tookMs)}`,
    },
    "database.lost": { level: "error", say: (e) => `the database cannot be reached: ${e.message}` },
    "database.back": { level: "info", say: (e) => `the database is back after ${inWords(e.awayMs)}` },
    "push.lost": {
      level: "warn",
      say: (e) => `the connection for pushes was lost, polling until it is back: ${e.message}`,
    },
    "push.ready": { level: "info", say: () => "pushes arrive" },
    "push.unavailable": { level: "warn", say: (e) => `no pushes, polling instead: ${e.why}` },
    claimed: { level: "debug", say: (e) => `claimed ${count(e.count, "job")} in ${inWords(e.tookMs)}` },
    "claim.empty": {
      level: (e) => (e.hinted ? "debug" : "trace"),
      say: (e) => (e.hinted ? "another worker was faster" : "nothing to claim"),
    },
    "claim.failed": { level: "error", say: (e) => `a claim failed, trying again: ${e.message}` },
    heartbeat: {
      level: () => {
        beating = true;
        return "trace";
      },
      say: (e) => `heartbeat for ${count(e.jobs, "job")} in ${inWords(e.tookMs)}`,
    },
    "heartbeat.failed": {
      level: () => {
        const level = beating ? "warn" : "debug";
        beating = false;
        return level;
      },
      say: (e) => `a heartbeat failed, trying again: ${e.message}`,
    },
    recovered: {
      level: "warn",
      say: (e) =>
        `recovered ${count(e.count, "job")}: ${e.reason === "stale" ? "the lease had run out" : "the worker was gone"}`,
    },
    "attempt.started": { level: "debug", say: (e) => `attempt ${e.attempt} of ${e.pipeline} started, job ${e.job}` },
    "attempt.ended": {
      level: (e) => (["failed", "lost", "replaced"].includes(e.outcome) ? "warn" : "debug"),
      say: (e) =>
        `${e.pipeline} ${e.outcome}${e.step ? ` in step ${e.step}` : ""}${e.code ? ` (${e.code})` : ""} after ${inWords(e.tookMs)}${e.retry ? ", will retry" : ""}, job ${e.job}`,
    },
    "step.started": { level: "debug", say: (e) => `step ${e.step} of ${e.pipeline} started, job ${e.job}` },
    "step.ended": {
      level: "debug",
      say: (e) =>
        `step ${e.step} of ${e.pipeline} ${e.outcome}${e.code ? ` (${e.code})` : ""} after ${inWords(e.tookMs)}, job ${e.job}`,
    },
    "write.refused": { level: "warn", say: (e) => `a late ${e.verb} was refused: job ${e.job} runs elsewhere` },
    "module.empty": { level: "warn", say: (e) => withoutPipeline(e.file) },
    "runner.started": { level: "debug", say: (e) => `runner ${e.runner} (pid ${e.pid}) ready in ${inWords(e.tookMs)}` },
    "runner.died": {
      level: (e) => (e.code === 0 && !e.job ? "debug" : "warn"),
      say: (e) =>
        `runner ${e.runner} (pid ${e.pid}) died: ${e.cause} (${e.signal ?? `exit code ${e.code}`})${e.job ? `, job ${e.job}` : ""}`,
    },
    "runner.output": {
      level: (e) => (e.stream === "stderr" ? "warn" : "info"),
      say: (e) => e.line,
    },
    "memory.high": {
      level: "warn",
      say: (e) =>
        `memory is nearly gone: ${Math.round(e.fraction * 100)} % of ${megabytes(e.limitBytes)} are used (${megabytes(e.usedBytes)})`,
    },
    demand: {
      level: "debug",
      say: (e) =>
        `pool ${e.pool}: ${e.claimable} claimable, ${e.running} running, the oldest waits ${e.oldestSeconds} s`,
    },
    webhook: {
      level: (e) => (e.state === "delivered" ? "debug" : "warn"),
      say: (e) =>
        `webhook ${e.id} to ${e.endpoint} ${e.state === "pending" ? "will be sent again" : e.state}, try ${e.attempt}: ${e.error ?? e.status}${e.error && e.status ? ` ${e.status}` : ""} after ${inWords(e.tookMs)}`,
    },
    "logs.dropped": { level: "warn", say: (e) => `dropped ${count(e.lines, "log line")} of job ${e.job}` },
  };
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

/** Messages of drivers may quote a connection string. The host and the user stay, what proves who one is goes. */
function withoutCredentials(line: string): string {
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

/** "12:03:44 warn  clip failed in step upload …". What is announced says all in its sentence; other lines show their fields. */
function forReading(line: string): string {
  const { level, time, msg = "", event, err, ...fields } = JSON.parse(line) as WrittenLine;
  const clock = new Date(time).toTimeString().slice(0, 8);
  const rest = event ? [] : Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const stack = err?.stack ? `\n${err.stack.split("\n").map(visible).join("\n  ")}` : "";
  return `${[clock, level.padEnd(5), visible(msg), ...rest].join(" ")}${stack}\n`;
}

/** A text from outside must not move the cursor or begin a line of its own. */
function visible(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
