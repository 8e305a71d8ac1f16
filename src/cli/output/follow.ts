// One job, live: its lines as they are written, a bar on the last line where somebody looks on, and at the end how it ended. The job does not notice.

import { inPath } from "../api-client.ts";
import type { Call } from "../command.ts";
import type { Told } from "../sse.ts";
import { cutTo, inLine } from "./escape.ts";
import { printLine } from "./log-line.ts";
import { clock, span } from "./moments.ts";
import { ProgressBar } from "./progress-bar.ts";
import type { Colour, Screen } from "./screen.ts";

export const colourOfState: Record<string, Colour | undefined> = {
  running: "blue",
  completed: "green",
  failed: "red",
  cancelled: "yellow",
  paused: "yellow",
};

const ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

/** Exits 0 when it completed, 1 when it failed or was cancelled, 130 after Ctrl-C. With `wait` only its end is told, in JSON together with that. */
export async function followJob(call: Call, id: string, wait?: object): Promise<number> {
  const door = await call.door();
  const leaving = new AbortController();
  let code = 1;
  const leave = (signal: NodeJS.Signals) => {
    code = signal === "SIGINT" ? 130 : 143;
    leaving.abort();
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, leave);
  const view = call.flags.json ? jsonView(call.screen, wait) : new PeopleView(call.screen, wait !== undefined);
  try {
    for await (const told of door.stream(`/v1/jobs/${inPath(id)}/stream`, { signal: leaving.signal })) {
      view.show(told);
      if (told.event === "end") code = told.data.state === "completed" ? 0 : 1;
    }
  } finally {
    view.close();
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, leave);
  }
  return code;
}

interface View {
  show(told: Told): void;
  close(): void;
}

/** One JSON on each line; who only waits gets one document. */
function jsonView(screen: Screen, wait: object | undefined): View {
  if (!wait) return { show: (told) => printEvent(screen, told), close: () => {} };
  let end = {};
  return {
    show: ({ event, data }) => {
      if (event === "end") end = data;
    },
    // Also when nobody waits for the end any more: the job is there.
    close: () => screen.json({ ...wait, ...end }),
  };
}

export function printEvent(screen: Screen, { event, id = "", data }: Told): void {
  screen.json({ event, id: id || null, data }, { lines: true });
}

class PeopleView implements View {
  readonly #screen: Screen;
  readonly #quiet: boolean;
  readonly #bar = new ProgressBar();
  readonly #timer: NodeJS.Timeout | undefined;
  #said = "";
  // biome-ignore lint/suspicious/noExplicitAny: the data of the last state event.
  #state: any;

  constructor(screen: Screen, quiet: boolean) {
    this.#screen = screen;
    this.#quiet = quiet;
    // The time left runs on between two messages.
    if (screen.live) this.#timer = setInterval(() => this.#draw(), 1000);
  }

  show({ event, data }: Told): void {
    if (event === "end") this.#end(data);
    else if (event === "state") {
      this.#state = data;
      this.#bar.tell(data.progress);
      const text = stateText(data);
      // A snapshot comes first after each reconnect; how it ended is said at the end.
      const news = text !== this.#said && !ENDED.has(data.state);
      // When it started is known of the first attempt alone.
      const at = data.state === "running" && data.attempt === 1 ? data.startedAt : null;
      if (news && !this.#quiet) this.#line(text, "dim", at);
      this.#said = text;
    } else if (event === "progress") {
      this.#bar.tell(data);
      if (!this.#screen.live && !this.#quiet && this.#bar.isNews()) this.#line(this.#bar.text(), "dim");
    } else if (this.#quiet) return;
    else if (event === "log") printLine(this.#screen, data);
    else if (event === "event") this.#line(eventText(data), "dim", data.at);
    else if (event === "gap") this.#line(`the lines between ${data.after} and ${data.next} are gone`, "yellow");
    if (event !== "end") this.#draw();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#screen.status("");
  }

  /** With the time it happened, never with that of looking. */
  #line(text: string, colour: Colour, at?: string | null): void {
    const when = at ? clock(at) : " ".repeat(8);
    this.#screen.print(this.#screen.paint(`${when}  · ${inLine(text)}`, colour));
  }

  #draw(): void {
    const running = this.#state?.state === "running";
    const text = running ? this.#bar.text() || since(this.#state.startedAt) : "";
    this.#screen.status(text && cutTo(inLine(text), (this.#screen.columns ?? 80) - 1));
  }

  // biome-ignore lint/suspicious/noExplicitAny: the data of the event.
  #end({ state, output, failure }: any): void {
    this.#screen.status("");
    const { startedAt, endedAt, missing } = this.#state ?? {};
    const took = startedAt && endedAt ? ` in ${span(Math.max(0, Date.parse(endedAt) - Date.parse(startedAt)))}` : "";
    const without = missing?.length > 0 ? `, without ${missing.join(", ")}` : "";
    const why = failure ? `: ${failureText(failure)}` : "";
    const text = state === null ? "it was forgotten" : `${state}${took}${without}${why}`;
    this.#screen.print(this.#screen.paint(inLine(text), colourOfState[state]));
    if (output !== null && output !== undefined) this.#screen.print(inLine(JSON.stringify(output)));
  }
}

// biome-ignore lint/suspicious/noExplicitAny: the data of the event.
function stateText({ state, waitingFor, attempt, maxAttempts, runAt }: any): string {
  if (state === "running") return `running, attempt ${attempt} of ${maxAttempts}`;
  if (state !== "queued") return state;
  const until = runAt && Date.parse(runAt) > Date.now() ? ` until ${clock(runAt)}` : "";
  return `queued, waits for ${reasonOf(waitingFor)}${until}`;
}

// biome-ignore lint/suspicious/noExplicitAny: the data of the event.
function eventText({ kind, data }: any): string {
  const { by, reason } = data ?? {};
  return `${String(kind).replaceAll("_", " ")}${by ? ` by ${by}` : ""}${reason ? `: ${reason}` : ""}`;
}

/** What a queued job waits for; one that could start now waits for somebody who does it. */
export function reasonOf(waitingFor: string | null): string {
  return waitingFor === null || waitingFor === "machine" ? "a worker" : waitingFor === "key" ? "its key" : waitingFor;
}

/** For the person who waits first, then for programs. */
export function failureText({
  sentence,
  message,
  code,
}: {
  sentence?: string;
  message?: string;
  code?: string;
}): string {
  const text = sentence ?? message ?? "it failed";
  return code ? `${text} (${code})` : text;
}

function since(moment: string | null): string {
  const ms = moment ? Date.now() - Date.parse(moment) : 0;
  return ms < 1000 ? "" : `running for ${ms < 10_000 ? `${Math.floor(ms / 1000)}s` : span(ms)}`;
}
