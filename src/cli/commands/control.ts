// What people do to jobs: cancel, retry, pause, resume, signal. Each says the state the job is in now.
import { InvalidInput } from "../../errors.ts";
import { inPath } from "../api-client.ts";
import { checkJobId } from "../checks.ts";
import type { Call, Runner } from "../command.ts";
import { jsonOf } from "../json-word.ts";
import { inert, inLine } from "../output/escape.ts";
import { colourOfState } from "../output/follow.ts";
import type { Screen } from "../output/screen.ts";

/** As many as one request takes. */
const AT_ONCE = 200;

export const cancelCommand: Runner = (call) => many(call, "cancel", { reason: call.flags.reason });

export const retryCommand: Runner = (call) => many(call, "retry", { fromStart: call.flags.fromStart });

export const pauseCommand: Runner = (call) => jobOrPool(call, "pause", { reason: call.flags.reason });

export const resumeCommand: Runner = (call) => jobOrPool(call, "resume", undefined);

export const signalCommand: Runner = async (call) => {
  const [id, event, data] = call.words;
  const body = { event, data: jsonOf(data, "data") };
  checkJobId(id!);
  return tell(call, await (await call.door()).call("POST", `${pathOf(id!)}/signal`, { body }));
};

interface Controlled {
  id: string;
  state?: string;
  problem?: { code: string; detail: string };
}

/** One is asked for by itself, so that what is refused is an error like any other. */
async function many(call: Call, act: "cancel" | "retry", body: Record<string, unknown>): Promise<number> {
  const { words, flags, screen } = call;
  for (const id of words) checkJobId(id);
  const api = await call.door();
  if (words.length === 1) return tell(call, await api.call("POST", `${pathOf(words[0]!)}/${act}`, { body }), act);
  const jobs: Controlled[] = [];
  for (let from = 0; from < words.length; from += AT_ONCE) {
    const ids = words.slice(from, from + AT_ONCE);
    jobs.push(...(await api.call("POST", `/v1/jobs/${act}`, { body: { ids, ...body } })).jobs);
  }
  if (flags.json) screen.json({ jobs });
  for (const { id, state, problem } of jobs) {
    if (problem) screen.say(inert(`${problem.code}: ${problem.detail}`));
    else if (!flags.json) printState(screen, { id, state: state! }, act);
  }
  return jobs.some(({ problem }) => problem) ? 1 : 0;
}

async function jobOrPool(call: Call, act: "pause" | "resume", body: unknown): Promise<number> {
  const { words, flags, screen } = call;
  if ((words.length === 1) === (flags.pool !== undefined)) {
    throw new InvalidInput(`${act} takes a job or a pool`, {
      remedy: `Write stillwake ${act} <id>, or stillwake ${act} --pool <name>`,
    });
  }
  if (flags.pool === undefined) checkJobId(words[0]!);
  const api = await call.door();
  if (flags.pool === undefined) return tell(call, await api.call("POST", `${pathOf(words[0]!)}/${act}`, { body }));
  const answer = await api.call("POST", `/v1/pools/${inPath(flags.pool)}/${act}`, { body });
  if (flags.json) screen.json(answer);
  else screen.print(inLine(`Pool ${flags.pool} is ${act === "pause" ? "paused; what runs goes on" : "open"}.`));
  return 0;
}

function tell({ flags, screen }: Call, answer: Controlled, act?: string): number {
  if (flags.json) screen.json(answer);
  else printState(screen, { id: answer.id, state: answer.state! }, act);
  return 0;
}

/** A job that runs is not stopped from here: it is told, and ends in its own time. */
function printState(screen: Screen, { id, state }: { id: string; state: string }, act?: string): void {
  const asked = act === "cancel" && state === "running" ? ", was asked to stop" : "";
  screen.print(`${id}  ${screen.paint(state, colourOfState[state])}${asked}`);
}

function pathOf(id: string): string {
  return `/v1/jobs/${inPath(id)}`;
}
