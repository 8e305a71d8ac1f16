// stillwake job <id>: where one job stands, what it did, or its lines as they are written.
import type { nouns } from "../../server/index.ts";
import { inPath } from "../api-client.ts";
import { checkJobId } from "../checks.ts";
import type { Call } from "../command.ts";
import { colourOfState, failureText, followJob, reasonOf } from "../output/follow.ts";
import { printLine } from "../output/log-line.ts";
import { ago, between, span } from "../output/moments.ts";
import { money } from "../output/money.ts";
import type { Screen } from "../output/screen.ts";
import { printFacts, printTable } from "../output/table.ts";

const LINES_AT_ONCE = 1000;

export async function jobCommand(call: Call): Promise<number> {
  const { flags, words, screen } = call;
  const id = checkJobId(words[0]!);
  if (flags.follow) return followJob(call, id);
  const api = await call.door();
  const path = `/v1/jobs/${inPath(id)}`;
  const job = await api.call("GET", path);
  const parts: Record<string, unknown> = {};
  if (flags.attempts) Object.assign(parts, await api.call("GET", `${path}/attempts`));
  if (flags.steps) Object.assign(parts, await api.call("GET", `${path}/steps`));
  if (flags.artifacts) Object.assign(parts, await api.call("GET", `${path}/artifacts`));
  if (flags.logs) parts.lines = await allLines(call, path);
  if (flags.json) {
    screen.json(Object.keys(parts).length === 0 ? job : { job, ...parts });
    return 0;
  }
  // Somebody who wants the lines wants the lines.
  if (!flags.logs || Object.keys(parts).length > 1) {
    // Not told to who may see this job alone, nor by a server of an earlier version.
    const cost = job.startedAt ? await api.call("GET", `${path}/cost`).catch(() => undefined) : undefined;
    printJob(screen, job, cost);
  }
  for (const [name, print] of Object.entries(sections)) {
    if (parts[name] === undefined) continue;
    if (name !== "lines" || Object.keys(parts).length > 1) screen.print("");
    print(screen, parts[name] as never[]);
  }
  return 0;
}

async function allLines(call: Call, path: string): Promise<unknown[]> {
  const api = await call.door();
  const lines: unknown[] = [];
  for (let after = "0"; ; ) {
    const page = await api.call("GET", `${path}/logs`, { query: { after, limit: LINES_AT_ONCE } });
    lines.push(...page.lines);
    if (page.lines.length < LINES_AT_ONCE) return lines;
    after = page.next;
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a Job of the API.
function printJob(screen: Screen, job: any, cost: nouns.JobCost | undefined): void {
  const when = (moment: string | null) => (moment ? `${moment} (${ago(moment)})` : null);
  const { schedule, parent, children, progress, failure, cancel, pause } = job;
  const by = (told: { by?: string; reason?: string } | null) =>
    told && ([told.by && `by ${told.by}`, told.reason].filter(Boolean).join(": ") || "yes");
  printFacts(screen, [
    ["job", job.id, "bold"],
    ["pipeline", job.pipeline],
    ["pool", job.pool],
    [
      "state",
      job.state + (job.state === "queued" ? `, waits for ${reasonOf(job.waitingFor)}` : ""),
      colourOfState[job.state],
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
    ["took", between(job.startedAt, job.endedAt)],
    ["worker", job.worker],
    ["cost", cost && cost.parts.length > 0 ? costOf(cost) : null],
    ["schedule", schedule && `${schedule.name}, slot ${schedule.slot}`],
    ["parent", parent && `${parent.id}, ${parent.spawn}[${parent.index}]`],
    [
      "children",
      children &&
        `${children.completed} completed, ${children.failed} failed, ${children.cancelled} cancelled of ${children.total}`,
    ],
    ["progress", progress],
    ["cancelled", by(cancel), "yellow"],
    ["paused", by(pause), "yellow"],
    ["missing", job.missing.join(", "), "yellow"],
    ["failure", failure && failureText(failure), "red"],
    ["input", job.input],
    ["output", job.output],
  ]);
}

/** "$0.0639 on sw-1a2b3c4d-scan-m0 (performance-8x in iad): 5m 0s of work, 1m 10s of start-up and idle time, prices fly 2026-10-01". */
function costOf({ amount, provisional, parts }: nouns.JobCost): string {
  const last = parts.at(-1)!;
  const where = [last.size, last.region && `in ${last.region}`].filter(Boolean).join(" ");
  const sum = (of: "workedSeconds" | "idleSeconds") => span(parts.reduce((all, part) => all + part[of], 0) * 1000);
  const machines = parts.length > 1 ? `${parts.length} machines, the last ` : "";
  const prices = last.prices ? `, prices ${last.prices}` : "";
  return `${money(amount)}${provisional ? " so far" : ""} on ${machines}${last.machine}${where && ` (${where})`}: ${sum("workedSeconds")} of work, ${sum("idleSeconds")} of start-up and idle time${prices}`;
}

// biome-ignore lint/suspicious/noExplicitAny: what the API answers.
const sections: Record<string, (screen: Screen, rows: any[]) => void> = {
  attempts: (screen, rows) =>
    printTable(
      screen,
      rows,
      [
        { title: "ATTEMPT", of: ({ attempt }) => attempt, right: true },
        {
          title: "OUTCOME",
          of: ({ outcome }) => outcome ?? "running",
          colour: ({ outcome }) => colourOfState[outcome],
        },
        { title: "BEGAN", of: ({ claimedAt }) => ago(claimedAt), right: true },
        { title: "TOOK", of: ({ claimedAt, endedAt }) => between(claimedAt, endedAt), right: true },
        { title: "WORKER", of: ({ worker }) => worker, elastic: true },
        { title: "FAILURE", of: ({ failure }) => failure && failureText(failure), elastic: true },
      ],
      "It has no attempts yet.",
    ),
  steps: (screen, rows) =>
    printTable(
      screen,
      rows,
      [
        { title: "STEP", of: ({ name }) => name, elastic: true },
        { title: "SAVED", of: ({ savedAt }) => ago(savedAt), right: true },
        { title: "TOOK", of: ({ tookMs }) => (tookMs === null ? "" : span(tookMs)), right: true },
        { title: "EPOCH", of: ({ epoch }) => epoch, right: true },
      ],
      "It has no steps yet.",
    ),
  artifacts: (screen, rows) =>
    printTable(
      screen,
      rows,
      [
        { title: "ARTIFACT", of: ({ name }) => name, elastic: true },
        { title: "BYTES", of: ({ size }) => size, right: true },
        { title: "TYPE", of: ({ contentType }) => contentType },
        { title: "SAVED", of: ({ savedAt }) => ago(savedAt), right: true },
        { title: "SHA-256", of: ({ sha256 }) => sha256, elastic: true },
      ],
      "It has no artifacts yet.",
    ),
  lines: (screen, rows) => {
    for (const row of rows) printLine(screen, row);
    if (rows.length === 0) screen.say("It has written nothing yet.");
  },
};
