// stillwake completion: what a shell needs to complete commands, their words and their flags. Made of the table, so that it is never behind it.
import { InvalidInput } from "../errors.ts";
import { nearest } from "../text/suggest.ts";
import { conflicts, jobStates, roles } from "./checks.ts";
import type { Call, Command } from "./command.ts";
import { type FlagName, takesValue } from "./flags.ts";

export async function completionCommand({ words: [shell = ""], screen, commands }: Call): Promise<number> {
  const make = { bash, zsh, fish }[shell];
  if (!make) {
    const near = nearest(shell, ["bash", "zsh", "fish"]);
    throw new InvalidInput(`There is no completion for "${shell}"`, {
      remedy: near ? `Did you mean ${near}?` : "There is bash, zsh and fish",
    });
  }
  screen.print(make(commands));
  return 0;
}

/** What may follow a flag, where that is a short list. */
const values: Partial<Record<FlagName, string>> = {
  state: jobStates.join(" "),
  role: roles.join(" "),
  "on-conflict": conflicts.join(" "),
  "log-level": "trace debug info warn error",
};
const files: readonly FlagName[] = ["pipelines", "config", "scratch"];

const names = (commands: readonly Command[]) => ["help", ...commands.map(({ name }) => name)].join(" ");
const flagsOf = ({ flags }: Command) => [...Object.keys(flags), "help"].map((name) => `--${name}`).join(" ");
const actsOf = ({ acts = [] }: Command) => acts.join(" ");
/** Without a value the next word is another. */
const valued = (commands: readonly Command[]) => [
  ...new Set(
    commands.flatMap(({ flags }) =>
      Object.entries(flags).flatMap(([name, about]) => (takesValue(name as FlagName, about) ? [name as FlagName] : [])),
    ),
  ),
];

function bash(commands: readonly Command[]): string {
  const lists = Object.entries(values).map(
    ([name, list]) => `    --${name}) COMPREPLY=($(compgen -W "${list}" -- "$word")); return ;;`,
  );
  const rest = valued(commands).filter((name) => !(name in values) && !files.includes(name));
  const cases = commands.map(
    (command) => `    ${command.name}) flags="${flagsOf(command)}"; acts="${actsOf(command)}" ;;`,
  );
  return `# bash completion for stillwake
_stillwake() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" command="" flags="" acts="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${COMP_WORDS[i]}" in -*) ;; *) command="\${COMP_WORDS[i]}"; break ;; esac
  done
  case "$before" in
${lists.join("\n")}
    ${files.map((name) => `--${name}`).join("|")}) COMPREPLY=($(compgen -f -- "$word")); return ;;
    ${rest.map((name) => `--${name}`).join("|")}) return ;;
  esac
  case "$command" in
    "") flags="--help --version"; acts="${names(commands)}" ;;
    help) acts="${names(commands)}" ;;
${cases.join("\n")}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "$acts" -- "$word")) ;;
  esac
}
complete -o default -F _stillwake stillwake`;
}

function zsh(commands: readonly Command[]): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  const inBrackets = (text: string) => text.replaceAll(/[[\]:\\]/g, "\\$&");
  const listed = commands.map(({ name, summary }) => quoted(`${name}:${summary.replaceAll(":", "\\:")}`));
  const cases = commands.map((command) => {
    const specs = Object.entries(command.flags).map(([flag, about]) => {
      const name = flag as FlagName;
      const again = name === "pipelines" || name === "origin" ? "*" : "";
      const value = takesValue(name, about)
        ? `:${name}:${values[name] ? `(${values[name]})` : files.includes(name) ? "_files" : ""}`
        : "";
      return quoted(`${again}--${name}[${inBrackets(about.replace(/^<[^>]+> /, ""))}]${value}`);
    });
    const acts = command.acts ? [quoted(`1:what:(${actsOf(command)})`)] : [];
    const all = [...specs, quoted("--help[how to use it]"), ...acts, quoted("*::words:_files")];
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
  const quoted = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines = ["# fish completion for stillwake", "complete -c stillwake -f"];
  for (const command of commands) {
    const { name, summary, flags, acts = [] } = command;
    lines.push(`complete -c stillwake -n __fish_use_subcommand -a ${name} -d ${quoted(summary)}`);
    const seen = `-n '__fish_seen_subcommand_from ${name}'`;
    for (const act of acts) lines.push(`complete -c stillwake ${seen} -a ${act}`);
    for (const [flag, about] of Object.entries(flags)) {
      const list = values[flag as FlagName];
      const wants = takesValue(flag as FlagName, about) ? (files.includes(flag as FlagName) ? " -r -F" : " -x") : "";
      const text = quoted(about.replace(/^<[^>]+> /, ""));
      lines.push(`complete -c stillwake ${seen} -l ${flag}${wants}${list ? ` -a '${list}'` : ""} -d ${text}`);
    }
  }
  return lines.join("\n");
}
