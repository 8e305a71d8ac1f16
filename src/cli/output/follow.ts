// Follows one job: prints its log lines as they arrive, a progress bar on a terminal, and the outcome.
import { escapeLine } from "../../text/escape.ts";
import { formatDueTime, formatTime } from "../../text/format.ts";
import type { SseEvent } from "../../text/sse.ts";
import { pathSegment } from "../arguments.ts";
import type { CommandContext } from "../command.ts";
import { formatFailure, formatWaitReason, printLogLine, stateColours } from "./job-text.ts";
import { ProgressBar } from "./progress-bar.ts";
import type { Colour, Screen } from "./screen.ts";
import { truncate } from "./table.ts";
import { formatDuration, formatElapsed } from "./time.ts";

const TERMINAL_STATES: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

/**
 * Returns 0 when the job completed, 1 when it failed or was cancelled, 130 after Ctrl-C. With `enqueued`, the result of
 * the enqueue call, only the outcome is printed; in JSON as one document together with that result.
 */
export async function followJob(context: CommandContext, id: string, enqueued?: object): Promise<number> {
  const api = await context.api();
  const stop = new AbortController();
  let code = 1;
  const onSignal = (signal: NodeJS.Signals) => {
    code = signal === "SIGINT" ? 130 : 143;
    stop.abort();
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, onSignal);
  const { flags, screen } = context;
  const view = flags.json ? createJsonView(screen, enqueued) : new TextView(screen, enqueued !== undefined);
  try {
    for await (const event of api.stream(`/v1/jobs/${pathSegment(id)}/stream`, { signal: stop.signal })) {
      view.show(event);
      if (event.event === "end") code = event.data.state === "completed" ? 0 : 1;
    }
  } finally {
    view.close();
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, onSignal);
  }
  return code;
}

interface View {
  show(event: SseEvent): void;
  close(): void;
}

/** One JSON document per line, or, with `enqueued`, one document at the end. */
function createJsonView(screen: Screen, enqueued: object | undefined): View {
  if (!enqueued) return { show: (event) => printEvent(screen, event), close: () => {} };
  let outcome = {};
  return {
    show: ({ event, data }) => {
      if (event === "end") outcome = data;
    },
    // Also printed after Ctrl-C: the job exists.
    close: () => screen.json({ ...enqueued, ...outcome }),
  };
}

export function printEvent(screen: Screen, { event, id = "", data }: SseEvent): void {
  screen.json({ event, id: id || null, data }, { lines: true });
}

class TextView implements View {
  readonly #screen: Screen;
  readonly #outcomeOnly: boolean;
  readonly #bar = new ProgressBar();
  readonly #timer: NodeJS.Timeout | undefined;
  #stateText = "";
  // biome-ignore lint/suspicious/noExplicitAny: the data of the last state event.
  #state: any;

  constructor(screen: Screen, outcomeOnly: boolean) {
    this.#screen = screen;
    this.#outcomeOnly = outcomeOnly;
    // The remaining time counts down between two events.
    if (screen.interactive) this.#timer = setInterval(() => this.#draw(), 1000);
  }

  show({ event, data }: SseEvent): void {
    if (event === "end") this.#printOutcome(data);
    else if (event === "state") {
      this.#state = data;
      this.#bar.update(data.progress);
      const text = formatState(data);
      // Each reconnect starts with a snapshot of the state; the outcome is printed at the end.
      const isNew = text !== this.#stateText && !TERMINAL_STATES.has(data.state);
      // startedAt is the start of the first attempt.
      const at = data.state === "running" && data.attempt === 1 ? data.startedAt : null;
      if (isNew && !this.#outcomeOnly) this.#printNote(text, "dim", at);
      this.#stateText = text;
    } else if (event === "progress") {
      this.#bar.update(data);
      if (!this.#screen.interactive && !this.#outcomeOnly && this.#bar.isNews())
        this.#printNote(this.#bar.text(), "dim");
    } else if (this.#outcomeOnly) return;
    else if (event === "log") printLogLine(this.#screen, data);
    else if (event === "event") this.#printNote(formatEvent(data), "dim", data.at);
    else if (event === "gap")
      this.#printNote(`lines between ${data.after} and ${data.next} are no longer stored`, "yellow");
    if (event !== "end") this.#draw();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#screen.status("");
  }

  /** With the time of the event, never with the current time. */
  #printNote(text: string, colour: Colour, at?: string | null): void {
    const time = at ? formatTime(at) : " ".repeat(8);
    this.#screen.print(this.#screen.paint(`${time}  · ${escapeLine(text)}`, colour));
  }

  #draw(): void {
    const isRunning = this.#state?.state === "running";
    const text = isRunning ? this.#bar.text() || formatRunningFor(this.#state.startedAt) : "";
    this.#screen.status(text && truncate(escapeLine(text), (this.#screen.columns ?? 80) - 1));
  }

  // biome-ignore lint/suspicious/noExplicitAny: the data of the event.
  #printOutcome({ state, output, failure }: any): void {
    this.#screen.status("");
    const { startedAt = null, endedAt = null, missing } = this.#state ?? {};
    const elapsed = formatElapsed(startedAt, endedAt);
    const without = missing?.length > 0 ? `, without ${missing.join(", ")}` : "";
    const reason = failure ? `: ${formatFailure(failure)}` : "";
    const text = state === null ? "the job was pruned" : `${state}${elapsed && ` in ${elapsed}`}${without}${reason}`;
    this.#screen.print(this.#screen.paint(escapeLine(text), stateColours[state]));
    if (output !== null && output !== undefined) this.#screen.print(escapeLine(JSON.stringify(output)));
  }
}

// biome-ignore lint/suspicious/noExplicitAny: the data of the event.
function formatState({ state, waitingFor, awaitedEvent, attempt, maxAttempts, runAt }: any): string {
  if (state === "running") return `running, attempt ${attempt} of ${maxAttempts}`;
  if (state !== "queued") return state;
  const until = runAt && Date.parse(runAt) > Date.now() ? ` until ${formatDueTime(runAt)}` : "";
  return `queued, waits for ${formatWaitReason({ waitingFor, awaitedEvent })}${until}`;
}

// biome-ignore lint/suspicious/noExplicitAny: the data of the event.
function formatEvent({ kind, data }: any): string {
  const { by, reason, waiting_for: waitingFor, awaits } = data ?? {};
  if (kind === "slept" && waitingFor) {
    return `waits for ${formatWaitReason({ waitingFor, awaitedEvent: waitingFor === "event" ? awaits : null })}`;
  }
  return `${String(kind).replaceAll("_", " ")}${by ? ` by ${by}` : ""}${reason ? `: ${reason}` : ""}`;
}

function formatRunningFor(startedAt: string | null): string {
  const ms = startedAt ? Date.now() - Date.parse(startedAt) : 0;
  return ms < 1000 ? "" : `running for ${ms < 10_000 ? `${Math.floor(ms / 1000)}s` : formatDuration(ms)}`;
}
