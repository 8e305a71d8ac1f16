// stillwake jobs lists jobs; stillwake job shows or follows one; stillwake artifact downloads one of its artifacts.
import fs from "node:fs";
import path from "node:path";
import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { escapeLine } from "../../text/escape.ts";
import { formatBytes, formatMoney } from "../../text/format.ts";
import { toFraction } from "../../text/progress-rate.ts";
import type { ApiClient } from "../api-client.ts";
import { checkJobId, checkOneOf, jobStates, parseInteger, pathSegment } from "../arguments.ts";
import { apiFlags, type Command, storeHelp } from "../command.ts";
import { followJob } from "../output/follow.ts";
import { formatFailure, formatWaitReason, printLogLine, stateColours } from "../output/job-text.ts";
import type { Screen } from "../output/screen.ts";
import { type Column, printFacts, printTable } from "../output/table.ts";
import { formatAgo, formatDuration, formatElapsed, parseMoment } from "../output/time.ts";

const MAX_PAGE = 200;
const LOG_PAGE = 1000;
const EXAMPLE_ID = "01a1e107-2508-7182-ae66-db7bbe9aa49e";

export const jobsCommand: Command = {
  name: "jobs",
  group: "Jobs",
  summary: "list jobs, newest first",
  usage: [""],
  args: [0, 0],
  flags: {
    pipeline: "<name> of this pipeline",
    pool: "<name> of this pool",
    state: "<state> queued, running, paused, completed, failed, cancelled",
    key: "<key> with this key",
    tenant: "<tenant> of this tenant",
    parent: "<id> spawned by this job",
    since: "<when> created at or after: 2h (ago) or 2030-01-31T12:00:00Z",
    until: "<when> created before",
    text: "<text> contained in id, key, tenant, worker, input or failure",
    limit: "<n> the maximum number (default: 50)",
    cursor: "<cursor> continue after the previous page",
    all: "read all pages, up to --limit",
    ...apiFlags,
  },
  examples: [
    ["jobs --state failed --since 2h", "recent failures"],
    ["jobs --pipeline extraction --text acme", "search"],
    [`jobs --parent ${EXAMPLE_ID} --state failed`, "the children that failed"],
    ["jobs --all --json | jq -r '.jobs[].id'", "every id"],
  ],
  async run(context) {
    const { flags, screen } = context;
    const { pipeline, pool, state, key, tenant, text } = flags;
    checkOneOf(state, jobStates, "state");
    const parent = flags.parent === undefined ? undefined : checkJobId(flags.parent);
    const [since, until] = [parseMoment(flags.since, "since"), parseMoment(flags.until, "until")];
    const limit = parseInteger(flags.limit, "limit") ?? (flags.all ? Number.POSITIVE_INFINITY : 50);
    if (limit < 1) throw new InvalidInput("--limit is less than 1", { field: "limit", remedy: "Write --limit 10" });
    const api = await context.api();
    const jobs: apiTypes.Job[] = [];
    let cursor: string | null | undefined = flags.cursor;
    do {
      const query = { pipeline, pool, state, key, tenant, parent, text, since, until, cursor: cursor ?? undefined };
      const page: apiTypes.JobPage = await api.call("GET", "/v1/jobs", {
        query: { ...query, limit: Math.min(MAX_PAGE, limit - jobs.length) },
      });
      jobs.push(...page.jobs);
      cursor = page.cursor ?? null;
      // A page may be short, or even empty, although there are more. Without --all one page with jobs is enough.
    } while (cursor !== null && jobs.length < limit && (flags.all || limit > MAX_PAGE || jobs.length === 0));
    if (flags.json) {
      screen.json({ jobs, cursor });
      return 0;
    }
    printTable(screen, jobs, listColumns, "No jobs match.");
    if (cursor !== null) screen.printStderr(`There are more: pass --all, or --cursor ${cursor}`);
    return 0;
  },
};

const listColumns: readonly Column<apiTypes.Job>[] = [
  { title: "JOB", value: ({ id }) => id },
  { title: "PIPELINE", value: ({ pipeline }) => pipeline, elastic: true },
  { title: "STATE", value: ({ state }) => state, colour: ({ state }) => stateColours[state] },
  { title: "ATTEMPT", value: ({ attempt, maxAttempts }) => `${attempt}/${maxAttempts}`, right: true, optional: true },
  { title: "CREATED", value: ({ createdAt }) => formatAgo(createdAt), right: true },
  { title: "TOOK", value: ({ startedAt, endedAt }) => formatElapsed(startedAt, endedAt), right: true, optional: true },
  { title: "KEY", value: ({ key }) => key, elastic: true, optional: true },
  { title: "TENANT", value: ({ tenant }) => tenant, elastic: true, optional: true },
  { title: "NOTE", value: formatNote, elastic: true },
];

/** The failure, the wait reason, the pause reason or the progress. */
function formatNote({ state, waitingFor, awaitedEvent, failure, progress, pause }: apiTypes.Job): string {
  if (failure && (state === "failed" || waitingFor === "retry")) return formatFailure(failure);
  if (state === "queued") return `waits for ${formatWaitReason({ waitingFor, awaitedEvent })}`;
  if (state === "paused") return pause?.reason ?? "";
  if (state !== "running" || !progress) return "";
  const fraction = toFraction(progress);
  return [fraction === undefined ? "" : `${Math.floor(fraction * 100)}%`, progress.sentence].filter(Boolean).join(" ");
}

export const jobCommand: Command = {
  name: "job",
  group: "Jobs",
  summary: "show one job, or follow it live",
  usage: ["<id>", "<id> --follow"],
  args: [1, 1],
  flags: {
    follow: "print log lines as they arrive, to the end; exits 0 when it completed, 1 when it failed or was cancelled",
    logs: "print its log lines",
    steps: "print its steps",
    attempts: "print its attempts",
    artifacts: "print its artifacts",
    ...apiFlags,
  },
  examples: [
    [`job ${EXAMPLE_ID}`, "state and details"],
    [`job ${EXAMPLE_ID} --follow`, "live; Ctrl-C does not stop the job"],
    [`job ${EXAMPLE_ID} --logs --steps`, "log lines and steps"],
  ],
  async run(context) {
    const { flags, args, screen } = context;
    const id = checkJobId(args[0]!);
    if (flags.follow) return followJob(context, id);
    const api = await context.api();
    const path = `/v1/jobs/${pathSegment(id)}`;
    const job = await api.call("GET", path);
    const parts: Record<string, unknown> = {};
    if (flags.attempts) Object.assign(parts, await api.call("GET", `${path}/attempts`));
    if (flags.steps) Object.assign(parts, await api.call("GET", `${path}/steps`));
    if (flags.artifacts) Object.assign(parts, await api.call("GET", `${path}/artifacts`));
    if (flags.logs) parts.lines = await readLogLines(api, path);
    if (!flags.json) markWaits(job, parts);
    if (flags.json) {
      screen.json(Object.keys(parts).length === 0 ? job : { job, ...parts });
      return 0;
    }
    // With --logs alone only the log lines are printed.
    const onlyLogs = flags.logs && Object.keys(parts).length === 1;
    if (!onlyLogs) {
      // A read token may not see the cost, and a server of an earlier version does not serve it.
      const cost = job.startedAt ? await api.call("GET", `${path}/cost`).catch(() => undefined) : undefined;
      printJob(screen, job, cost);
    }
    for (const [name, print] of Object.entries(sections)) {
      if (parts[name] === undefined) continue;
      if (!onlyLogs) screen.print("");
      print(screen, parts[name] as never[]);
    }
    return 0;
  },
};

/** The wait in progress of a job is neither a saved step nor a sleep. */
function markWaits(
  { state, waitingFor, awaitedEvent }: apiTypes.Job,
  { steps, attempts }: { steps?: unknown; attempts?: unknown },
): void {
  for (const step of (steps ?? []) as (apiTypes.Step & { waits?: boolean })[]) {
    step.waits = Boolean(awaitedEvent) && step.name === awaitedEvent && step.tookMs === 0;
  }
  const last = ((attempts ?? []) as { outcome: string | null }[]).at(-1);
  if (state !== "queued" || last?.outcome !== "slept") return;
  if (waitingFor === "event" || waitingFor === "children")
    last.outcome = `waits for ${formatWaitReason({ waitingFor, awaitedEvent })}`;
}

async function readLogLines(api: ApiClient, path: string): Promise<unknown[]> {
  const lines: unknown[] = [];
  for (let after = "0"; ; ) {
    const page = await api.call("GET", `${path}/logs`, { query: { after, limit: LOG_PAGE } });
    lines.push(...page.lines);
    if (page.lines.length < LOG_PAGE) return lines;
    after = page.next;
  }
}

function printJob(screen: Screen, job: apiTypes.Job, cost: apiTypes.JobCost | undefined): void {
  const when = (at: string | null) => (at ? `${at} (${formatAgo(at)})` : null);
  const { schedule, parent, children, progress, failure, cancel, pause } = job;
  const byWhom = (request: apiTypes.Job["cancel"]) =>
    request && ([request.by && `by ${request.by}`, request.reason].filter(Boolean).join(": ") || "yes");
  printFacts(screen, [
    ["job", job.id, "bold"],
    ["pipeline", job.pipeline],
    ["pool", job.pool],
    [
      "state",
      job.state +
        (job.state === "queued"
          ? `, waits for ${formatWaitReason(job, `a worker of pool ${job.pool} that runs ${job.pipeline}`)}`
          : ""),
      stateColours[job.state],
    ],
    ["attempt", `${job.attempt} of ${job.maxAttempts}${job.crashes > 0 ? `, ${job.crashes} crashed` : ""}`],
    ["priority", job.priority || null],
    ["key", job.key],
    ["tenant", job.tenant],
    ["idempotency", job.idempotencyKey],
    ["created", when(job.createdAt)],
    ["due", job.state === "queued" || job.state === "paused" ? when(job.runAt) : null],
    ["started", when(job.startedAt)],
    ["ended", when(job.endedAt)],
    ["took", formatElapsed(job.startedAt, job.endedAt)],
    ["worker", job.worker],
    ["cost", cost && cost.parts.length > 0 ? formatCost(cost) : null],
    ["schedule", schedule && `${schedule.name}, occurrence ${schedule.occurrence}`],
    ["parent", parent && `${parent.id}, ${parent.spawn}[${parent.index}]`],
    [
      "children",
      children &&
        `${children.completed} completed, ${children.failed} failed, ${children.cancelled} cancelled of ${children.total}`,
    ],
    ["progress", progress],
    ["cancelled", byWhom(cancel), "yellow"],
    ["paused", byWhom(pause), "yellow"],
    ["missing", job.missing.join(", "), "yellow"],
    ["failure", failure && formatFailure(failure), "red"],
    ["input", job.input],
    ["output", job.output],
  ]);
}

/** "$0.0639 on sw-1a2b-scan-m0 (performance-8x in iad): 5m of work, 1m 10s of start-up and idle time, prices …". */
function formatCost({ amount, provisional, parts }: apiTypes.JobCost): string {
  const last = parts.at(-1)!;
  const size = [last.size, last.region && `in ${last.region}`].filter(Boolean).join(" ");
  const sum = (field: "workedSeconds" | "idleSeconds") =>
    formatDuration(parts.reduce((total, part) => total + part[field], 0) * 1000);
  const machines = parts.length > 1 ? `${parts.length} machines, the last ` : "";
  const prices = last.prices ? `, prices ${last.prices}` : "";
  return `${formatMoney(amount)}${provisional ? " so far" : ""} on ${machines}${last.machine}${size && ` (${size})`}: ${sum("workedSeconds")} of work, ${sum("idleSeconds")} of start-up and idle time${prices}`;
}

// biome-ignore lint/suspicious/noExplicitAny: rows of the API.
const sections: Record<string, (screen: Screen, rows: any[]) => void> = {
  attempts: (screen, rows) =>
    printTable(
      screen,
      rows,
      [
        { title: "ATTEMPT", value: ({ attempt }) => attempt, right: true },
        {
          title: "OUTCOME",
          value: ({ outcome }) => outcome ?? "running",
          colour: ({ outcome }) => stateColours[outcome],
        },
        { title: "STARTED", value: ({ claimedAt }) => formatAgo(claimedAt), right: true },
        { title: "TOOK", value: ({ claimedAt, endedAt }) => formatElapsed(claimedAt, endedAt), right: true },
        { title: "WORKER", value: ({ worker }) => worker, elastic: true },
        { title: "FAILURE", value: ({ failure }) => failure && formatFailure(failure), elastic: true },
      ],
      "No attempts yet.",
    ),
  steps: (screen, rows) =>
    printTable(
      screen,
      rows,
      [
        { title: "STEP", value: ({ name }) => name, elastic: true },
        { title: "SAVED", value: ({ savedAt, waits }) => (waits ? "waiting" : formatAgo(savedAt)), right: true },
        {
          title: "TOOK",
          value: ({ tookMs, waits }) => (waits || tookMs === null ? "" : formatDuration(tookMs)),
          right: true,
        },
        { title: "EPOCH", value: ({ epoch }) => epoch, right: true },
      ],
      "No steps yet.",
    ),
  artifacts: (screen, rows) =>
    printTable(
      screen,
      rows,
      [
        { title: "ARTIFACT", value: ({ name }) => name, elastic: true },
        { title: "BYTES", value: ({ size }) => size, right: true },
        { title: "TYPE", value: ({ contentType }) => contentType },
        { title: "SAVED", value: ({ savedAt }) => formatAgo(savedAt), right: true },
        { title: "SHA-256", value: ({ sha256 }) => sha256, elastic: true },
      ],
      "No artifacts yet.",
    ),
  lines: (screen, rows) => {
    for (const row of rows) printLogLine(screen, row);
    if (rows.length === 0) screen.printStderr("No log lines yet.");
  },
};

export const artifactCommand: Command = {
  name: "artifact",
  group: "Jobs",
  summary: "download an artifact of a job",
  usage: ["<id> <name>", "<id> <name> --out <file>"],
  args: [2, 2],
  flags: {
    out: "<file> write to this file; - prints even on a terminal (default: stdout, unless it is a terminal)",
    store: storeHelp,
    ...apiFlags,
  },
  examples: [
    [`artifact ${EXAMPLE_ID} report.pdf -o report.pdf`, "to a file"],
    [`artifact ${EXAMPLE_ID} result.json | jq .`, "to another program"],
  ],
  async run({ flags, args, screen, api }) {
    const id = checkJobId(args[0]!);
    const name = args[1]!;
    // The content may contain control sequences, which a terminal would execute.
    if (flags.out === undefined && screen.columns !== undefined) {
      throw new InvalidInput("The content of an artifact is not printed on a terminal", {
        field: "out",
        remedy: `Write it to a file: -o ${path.basename(name)}; or print it with -o -`,
      });
    }
    const [{ Readable }, { pipeline }] = await Promise.all([import("node:stream"), import("node:stream/promises")]);
    const segments = name.split("/").map(pathSegment).join("/");
    const content = Readable.fromWeb(await (await api()).download(`/v1/jobs/${id}/artifacts/${segments}`));
    if (flags.out === undefined || flags.out === "-") {
      await pipeline(content, screen.stdout, { end: false });
      return 0;
    }
    // Renamed into place: an aborted download leaves no partial file under the name.
    const temporary = `${flags.out}.${process.pid}.part`;
    try {
      await pipeline(content, fs.createWriteStream(temporary));
      await fs.promises.rename(temporary, flags.out);
    } finally {
      await fs.promises.rm(temporary, { force: true });
    }
    const { size } = await fs.promises.stat(flags.out);
    screen.printStderr(`Wrote ${formatBytes(size)} to ${escapeLine(flags.out)}.`);
    return 0;
  },
};
