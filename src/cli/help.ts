// The texts of --help, generated from the table of commands.
import { apiFlags, type Command } from "./command.ts";
import { commands } from "./commands.ts";
import { type FlagName, shortFlag, takesValue } from "./flags.ts";

const GROUPS: readonly Command["group"][] = ["Get started", "Run", "Jobs", "Inspect", "Control", "Access"];

/** The text of `stillwake --help`. */
export function overview(): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const groups = GROUPS.map((group) => {
    const lines = commands
      .filter((command) => command.group === group)
      .map(({ name, summary }) => `  stillwake ${name.padEnd(width)}  ${summary}`);
    return [group, ...lines].join("\n");
  });
  return `stillwake: durable pipelines on Postgres

${groups.join("\n\n")}

Common options
  --url <url>        the database (default: STILLWAKE_DATABASE_URL or DATABASE_URL)
  --schema <name>    the schema (default: STILLWAKE_SCHEMA or "stillwake")
  --server <url>     a Stillwake server instead (default: STILLWAKE_SERVER), with the token in STILLWAKE_TOKEN
  --json             print JSON
  --help, --version

Examples
  stillwake init my-app
  stillwake migrate --url postgres://owner@localhost/app
  stillwake worker --pipelines ./pipelines
  stillwake enqueue extraction '{"repo":"acme/site"}' --follow
  stillwake jobs --state failed --since 2h

Run stillwake <command> --help for the options of a command and more examples.`;
}

/** The text of `stillwake <command> --help`; `brief` leaves out the options that most commands share. */
export function commandHelp(command: Command, { brief = false } = {}): string {
  const { name, summary, usage, examples, flags } = command;
  const calls = usage.map((line) => `  stillwake ${name}${line && ` ${line}`}`);
  const shared = Object.keys(apiFlags).every((flag) => flag in flags) ? Object.keys(apiFlags) : [];
  const lines = flagLines(command);
  const width = Math.max(0, ...lines.map(({ usage }) => usage.length));
  const section = (title: string, rows: typeof lines) =>
    rows.length > 0 ? ["", title, ...rows.map(({ usage, about }) => `  ${usage.padEnd(width)}  ${about}`)] : [];
  return [
    `stillwake ${name}  ${summary}`,
    "",
    ...calls,
    ...section(
      "Options",
      lines.filter(({ flag }) => !shared.includes(flag)),
    ),
    ...(brief
      ? []
      : section(
          "Connection and output",
          lines.filter(({ flag }) => shared.includes(flag)),
        )),
    "",
    "Examples",
    ...examples.flatMap(([args, explanation]) =>
      explanation ? [`  # ${explanation}`, `  stillwake ${args}`] : [`  stillwake ${args}`],
    ),
  ].join("\n");
}

function flagLines({ flags }: Command): { flag: string; usage: string; about: string }[] {
  return Object.entries(flags).map(([name, help]) => {
    const flag = name as FlagName;
    const short = shortFlag(flag);
    const [, value = "", about = help] = takesValue(flag, help) ? (/^(<[^>]+>) (.*)$/s.exec(help) ?? []) : [];
    return { flag, usage: `${short ? `-${short}, ` : ""}--${name}${value && ` ${value}`}`, about };
  });
}
