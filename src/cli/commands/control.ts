// stillwake cancel, retry, pause, resume and signal. Each prints the state of the job afterwards.
import { InvalidInput } from "../../errors.ts";
import { escapeControls, escapeLine } from "../../text/escape.ts";
import { checkJobId, parseJson, pathSegment } from "../arguments.ts";
import { apiFlags, type Command, type CommandContext } from "../command.ts";
import { stateColours } from "../output/job-text.ts";
import type { Screen } from "../output/screen.ts";

const EXAMPLE_ID = "01a1e107-2508-7182-ae66-db7bbe9aa49e";
/** The maximum of one request. */
const BATCH = 200;

export const cancelCommand: Command = {
  name: "cancel",
  group: "Jobs",
  summary: "cancel jobs; a running job is cancelled when its attempt settles",
  usage: ["<id> [<id> …]"],
  args: [1, 1000],
  flags: { reason: "<text> recorded with the job", ...apiFlags },
  examples: [
    [`cancel ${EXAMPLE_ID} --reason "no longer needed"`, ""],
    ["cancel $(stillwake jobs --state queued --all --json | jq -r '.jobs[].id')", "many"],
  ],
  run: (context) => controlJobs(context, "cancel", { reason: context.flags.reason }),
};

export const retryCommand: Command = {
  name: "retry",
  group: "Jobs",
  summary: "run failed or cancelled jobs again, from their checkpoints",
  usage: ["<id> [<id> …]"],
  args: [1, 1000],
  flags: { "from-start": "discard the checkpoints", ...apiFlags },
  examples: [
    [`retry ${EXAMPLE_ID}`, "resumes at the first step without a checkpoint"],
    [`retry ${EXAMPLE_ID} --from-start`, "runs every step again"],
  ],
  run: (context) => controlJobs(context, "retry", { fromStart: context.flags.fromStart }),
};

export const pauseCommand: Command = {
  name: "pause",
  group: "Jobs",
  summary: "pause a job or a pool",
  usage: ["<id>", "--pool <name>"],
  args: [0, 1],
  flags: {
    pool: "<name> pause this pool: no job starts; running jobs finish",
    reason: "<text> recorded with the pause",
    ...apiFlags,
  },
  examples: [
    [`pause ${EXAMPLE_ID}`, ""],
    ['pause --pool scan --reason "maintenance until noon"', ""],
  ],
  run: (context) => controlJobOrPool(context, "pause", { reason: context.flags.reason }),
};

export const resumeCommand: Command = {
  name: "resume",
  group: "Jobs",
  summary: "resume a paused job or pool",
  usage: ["<id>", "--pool <name>"],
  args: [0, 1],
  flags: { pool: "<name> resume this pool", ...apiFlags },
  examples: [
    [`resume ${EXAMPLE_ID}`, ""],
    ["resume --pool scan", ""],
  ],
  run: (context) => controlJobOrPool(context, "resume", undefined),
};

export const signalCommand: Command = {
  name: "signal",
  group: "Jobs",
  summary: "send an event to a job that waits for it",
  usage: ["<id> <event> [json|@file|-]"],
  args: [2, 3],
  flags: { ...apiFlags },
  examples: [
    [`signal ${EXAMPLE_ID} approved '{"by":"ann"}'`, 'what job.waitFor("approved") returns'],
    [`signal ${EXAMPLE_ID} photo @photo.json`, "with data from a file"],
  ],
  async run(context) {
    const [id, event, data] = context.args;
    const body = { event, data: parseJson(data, "data") };
    checkJobId(id!);
    const result = await (await context.api()).call("POST", `${jobPath(id!)}/signal`, { body });
    printResult(context, result);
    if (!context.flags.json && result.awaitedEvent !== event) {
      const other = result.awaitedEvent ? `; it waits for "${result.awaitedEvent}"` : "";
      context.screen.print(escapeLine(`No step of this job waits for "${event}" now${other}. The signal is kept.`));
    }
    return 0;
  },
};

interface ControlledJob {
  id: string;
  state?: string;
  problem?: { code: string; detail: string };
}

/** A single job has its own request: a refusal is then an error like any other. */
async function controlJobs(
  context: CommandContext,
  action: "cancel" | "retry",
  body: Record<string, unknown>,
): Promise<number> {
  const { args, flags, screen } = context;
  for (const id of args) checkJobId(id);
  const api = await context.api();
  if (args.length === 1)
    return printResult(context, await api.call("POST", `${jobPath(args[0]!)}/${action}`, { body }), action);
  const jobs: ControlledJob[] = [];
  for (let from = 0; from < args.length; from += BATCH) {
    const ids = args.slice(from, from + BATCH);
    jobs.push(...(await api.call("POST", `/v1/jobs/${action}`, { body: { ids, ...body } })).jobs);
  }
  if (flags.json) screen.json({ jobs });
  for (const { id, state, problem } of jobs) {
    if (problem) screen.printStderr(escapeControls(`${problem.code}: ${problem.detail}`));
    else if (!flags.json) printState(screen, { id, state: state! }, action);
  }
  return jobs.some(({ problem }) => problem) ? 1 : 0;
}

async function controlJobOrPool(context: CommandContext, action: "pause" | "resume", body: unknown): Promise<number> {
  const { args, flags, screen } = context;
  if ((args.length === 1) === (flags.pool !== undefined)) {
    throw new InvalidInput(`${action} takes a job or a pool`, {
      remedy: `Write stillwake ${action} <id>, or stillwake ${action} --pool <name>`,
    });
  }
  if (flags.pool === undefined) checkJobId(args[0]!);
  const api = await context.api();
  if (flags.pool === undefined)
    return printResult(context, await api.call("POST", `${jobPath(args[0]!)}/${action}`, { body }));
  const result = await api.call("POST", `/v1/pools/${pathSegment(flags.pool)}/${action}`, { body });
  if (flags.json) screen.json(result);
  else
    screen.print(
      escapeLine(`Pool ${flags.pool} is ${action === "pause" ? "paused; running jobs finish" : "resumed"}.`),
    );
  return 0;
}

function printResult({ flags, screen }: CommandContext, job: ControlledJob, action?: string): number {
  if (flags.json) screen.json(job);
  else printState(screen, { id: job.id, state: job.state! }, action);
  return 0;
}

/** A running job is cancelled when its attempt settles. */
function printState(screen: Screen, { id, state }: { id: string; state: string }, action?: string): void {
  const note = action === "cancel" && state === "running" ? ", cancel requested" : "";
  screen.print(`${id}  ${screen.paint(state, stateColours[state])}${note}`);
}

function jobPath(id: string): string {
  return `/v1/jobs/${pathSegment(id)}`;
}
