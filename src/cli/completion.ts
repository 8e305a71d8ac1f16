// stillwake completion: scripts that complete commands, subcommands and flags in a shell, generated from the table.
import { InvalidInput } from "../errors.ts";
import { findClosest } from "../text/suggest.ts";
import { conflictPolicies, jobStates, roles } from "./arguments.ts";
import type { Command } from "./command.ts";
import { type FlagName, takesValue } from "./flags.ts";

export const completionCommand: Command = {
  name: "completion",
  group: "Get started",
  summary: "print a completion script for your shell",
  usage: ["bash|zsh|fish"],
  args: [1, 1],
  subcommands: ["bash", "zsh", "fish"],
  flags: {},
  examples: [
    ["completion bash > ~/.local/share/bash-completion/completions/stillwake", "for bash"],
    ['completion zsh > "$fpath[1]/_stillwake"', "for zsh"],
    ["completion fish > ~/.config/fish/completions/stillwake.fish", "for fish"],
  ],
  async run({ args: [shell = ""], screen, commands }) {
    const generate = { bash, zsh, fish }[shell];
    if (!generate) {
      const closest = findClosest(shell, ["bash", "zsh", "fish"]);
      throw new InvalidInput(`There is no completion for "${shell}"`, {
        remedy: closest ? `Did you mean ${closest}?` : "Use bash, zsh or fish",
      });
    }
    screen.print(generate(commands));
    return 0;
  },
};

/** The allowed values of a flag, where there are only a few. */
const VALUES: Partial<Record<FlagName, string>> = {
  state: jobStates.join(" "),
  role: roles.join(" "),
  "on-conflict": conflictPolicies.join(" "),
  "log-level": "trace debug info warn error",
};
const FILE_FLAGS: readonly FlagName[] = ["pipelines", "config", "scratch"];

const commandNames = (commands: readonly Command[]) => ["help", ...commands.map(({ name }) => name)].join(" ");
const flagNames = ({ flags }: Command) => [...Object.keys(flags), "help"].map((name) => `--${name}`).join(" ");
const flagsWithValue = (commands: readonly Command[]) => [
  ...new Set(
    commands.flatMap(({ flags }) =>
      Object.entries(flags).flatMap(([name, help]) => (takesValue(name as FlagName, help) ? [name as FlagName] : [])),
    ),
  ),
];

function bash(commands: readonly Command[]): string {
  const lists = Object.entries(VALUES).map(
    ([name, list]) => `    --${name}) COMPREPLY=($(compgen -W "${list}" -- "$word")); return ;;`,
  );
  const others = flagsWithValue(commands).filter((name) => !(name in VALUES) && !FILE_FLAGS.includes(name));
  const cases = commands.map(
    (command) =>
      `    ${command.name}) flags="${flagNames(command)}"; subcommands="${(command.subcommands ?? []).join(" ")}" ;;`,
  );
  return `# bash completion for stillwake
_stillwake() {
  local word="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" command="" flags="" subcommands="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${COMP_WORDS[i]}" in -*) ;; *) command="\${COMP_WORDS[i]}"; break ;; esac
  done
  case "$previous" in
${lists.join("\n")}
    ${FILE_FLAGS.map((name) => `--${name}`).join("|")}) COMPREPLY=($(compgen -f -- "$word")); return ;;
    ${others.map((name) => `--${name}`).join("|")}) return ;;
  esac
  case "$command" in
    "") flags="--help --version"; subcommands="${commandNames(commands)}" ;;
    help) subcommands="${commandNames(commands)}" ;;
${cases.join("\n")}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "$subcommands" -- "$word")) ;;
  esac
}
complete -o default -F _stillwake stillwake`;
}

function zsh(commands: readonly Command[]): string {
  const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const escapeBrackets = (text: string) => text.replaceAll(/[[\]:\\]/g, "\\$&");
  const listed = commands.map(({ name, summary }) => quote(`${name}:${summary.replaceAll(":", "\\:")}`));
  const cases = commands.map((command) => {
    const specs = Object.entries(command.flags).map(([flag, help]) => {
      const name = flag as FlagName;
      const repeatable = name === "pipelines" || name === "origin" ? "*" : "";
      const value = takesValue(name, help)
        ? `:${name}:${VALUES[name] ? `(${VALUES[name]})` : FILE_FLAGS.includes(name) ? "_files" : ""}`
        : "";
      return quote(`${repeatable}--${name}[${escapeBrackets(help.replace(/^<[^>]+> /, ""))}]${value}`);
    });
    const subcommands = command.subcommands ? [quote(`1:subcommand:(${command.subcommands.join(" ")})`)] : [];
    const all = [...specs, quote("--help[show the help]"), ...subcommands, quote("*::arguments:_files")];
    return `    ${command.name}) _arguments \\\n      ${all.join(" \\\n      ")} ;;`;
  });
  return `#compdef stillwake
# zsh completion for stillwake
_stillwake() {
  local -a listed
  listed=(
    ${listed.join("\n    ")}
  )
  if (( CURRENT == 2 )); then
    _describe command listed
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
${cases.join("\n")}
  esac
}
if [ "$funcstack[1]" = "_stillwake" ]; then _stillwake "$@"; else compdef _stillwake stillwake; fi`;
}

function fish(commands: readonly Command[]): string {
  const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines = ["# fish completion for stillwake", "complete -c stillwake -f"];
  for (const { name, summary, flags, subcommands = [] } of commands) {
    lines.push(`complete -c stillwake -n __fish_use_subcommand -a ${name} -d ${quote(summary)}`);
    const condition = `-n '__fish_seen_subcommand_from ${name}'`;
    for (const subcommand of subcommands) lines.push(`complete -c stillwake ${condition} -a ${subcommand}`);
    for (const [flag, help] of Object.entries(flags)) {
      const list = VALUES[flag as FlagName];
      const value = takesValue(flag as FlagName, help)
        ? FILE_FLAGS.includes(flag as FlagName)
          ? " -r -F"
          : " -x"
        : "";
      const text = quote(help.replace(/^<[^>]+> /, ""));
      lines.push(`complete -c stillwake ${condition} -l ${flag}${value}${list ? ` -a '${list}'` : ""} -d ${text}`);
    }
  }
  return lines.join("\n");
}
