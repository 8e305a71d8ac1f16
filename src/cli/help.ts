// The help, made of the table of commands.
import { type Command, doorFlags } from "./command.ts";
import { commands } from "./commands.ts";
import { type FlagName, shortOf, takesValue } from "./flags.ts";

const headings: Record<Command["group"], string> = {
  Start: "Begin",
  Run: "Run",
  Jobs: "Jobs",
  Look: "Look",
  Steer: "Steer",
  Access: "Who may come in",
};

/** What `stillwake --help` says. */
export function overview(): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const groups = Object.entries(headings).map(([group, heading]) => {
    const lines = commands
      .filter((command) => command.group === group)
      .map(({ name, summary }) => `  stillwake ${name.padEnd(width)}  ${summary}`);
    return [heading, ...lines].join("\n");
  });
  return `stillwake: durable pipelines on Postgres

${groups.join("\n\n")}

Everywhere
  --url <url>        the database (default: STILLWAKE_DATABASE_URL or DATABASE_URL)
  --schema <name>    the schema (default: STILLWAKE_SCHEMA or "stillwake")
  --server <url>     a Stillwake server instead (default: STILLWAKE_SERVER), with the token in STILLWAKE_TOKEN
  --json             for programs
  --help, --version

Examples
  stillwake init my-pipelines
  stillwake migrate --url postgres://owner@localhost/app
  stillwake worker --pipelines ./pipelines
  stillwake enqueue extraction '{"repo":"acme/site"}' --follow
  stillwake jobs --state failed --since 2h

stillwake <command> --help has the options of a command and more examples.`;
}

/** What `stillwake <command> --help` says; `brief` leaves out the options that it shares with most others. */
export function helpOf(command: Command, { brief = false } = {}): string {
  const { name, summary, usage, examples, flags } = command;
  const calls = usage.map((line) => `  stillwake ${name}${line && ` ${line}`}`);
  const shared = Object.keys(doorFlags).every((flag) => flag in flags) ? Object.keys(doorFlags) : [];
  const lines = flagLines(command);
  const width = Math.max(0, ...lines.map(({ written }) => written.length));
  const section = (title: string, those: typeof lines) =>
    those.length > 0 ? ["", title, ...those.map(({ written, about }) => `  ${written.padEnd(width)}  ${about}`)] : [];
  return [
    `stillwake ${name}  ${summary}`,
    "",
    ...calls,
    ...section(
      "Options",
      lines.filter((line) => !shared.includes(line.flag)),
    ),
    ...(brief
      ? []
      : section(
          "Whom it asks, and how it answers",
          lines.filter((line) => shared.includes(line.flag)),
        )),
    "",
    "Examples",
    ...examples.flatMap(([args, does]) => (does ? [`  # ${does}`, `  stillwake ${args}`] : [`  stillwake ${args}`])),
  ].join("\n");
}

/** As they are written, and what they are about. */
function flagLines({ flags }: Command): { flag: string; written: string; about: string }[] {
  return Object.entries(flags).map(([name, help]) => {
    const flag = name as FlagName;
    const short = shortOf(flag);
    const [, value = "", about = help] = takesValue(flag, help) ? (/^(<[^>]+>) (.*)$/s.exec(help) ?? []) : [];
    return { flag, written: `${short ? `-${short}, ` : ""}--${name}${value && ` ${value}`}`, about };
  });
}
