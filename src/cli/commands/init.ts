// stillwake init: adds a starter in TypeScript to an empty directory or to an existing project, and installs the packages.
import path from "node:path";
import { escapeLine } from "../../text/escape.ts";
import type { Command } from "../command.ts";
import type { Change } from "../init/project.ts";

export const initCommand: Command = {
  name: "init",
  group: "Get started",
  summary: "add a first pipeline to a new or an existing project",
  usage: ["[dir]"],
  args: [0, 1],
  flags: {
    "dry-run": "show the changes and make none",
    "no-install": "do not install the packages",
  },
  examples: [
    ["init my-app", "a new project in TypeScript; then: cd my-app && npm start"],
    ["init", "in this directory; files, scripts and dependencies that exist are kept"],
    ["init --dry-run", "only show what would change"],
  ],
  async run({ args: [dir = "."], flags, config, screen }) {
    const [{ applyPlan, planProject }, { install }, { version }] = await Promise.all([
      import("../init/project.ts"),
      import("../init/packages.ts"),
      import("../../version.ts"),
    ]);
    const plan = planProject(path.resolve(dir), config.userAgent);
    const kind = plan.isExisting ? "an existing project; its files are kept" : "a new project";
    screen.print(`Stillwake ${version} in ${escapeLine(plan.dir)}: ${kind}\n`);
    screen.print(plan.changes.flatMap(formatChange).join("\n"));
    if (flags.dryRun) {
      screen.print("\nNothing was changed (--dry-run).");
    } else {
      applyPlan(plan);
      if (!flags.noInstall) {
        screen.print(`\nInstalling packages with ${plan.manager}; this can take a minute.`);
        await install(plan.dir, plan.manager);
      }
    }
    for (const note of plan.notes) screen.print(`\n${note.split("\n").map(escapeLine).join("\n")}`);
    const next = [
      ...changeDirectory(plan.dir),
      ...(flags.noInstall ? [`${plan.manager} install`] : []),
      plan.devCommand,
    ];
    if (!flags.dryRun) screen.print(`\nNext:\n\n${next.map((line) => `  ${line}`).join("\n")}`);
    return 0;
  },
};

function formatChange({ kind, file, details }: Change): string[] {
  const isShort = kind === "keep" && details.length > 0;
  const line = `  ${kind.padEnd(6)}  ${escapeLine(file)}${isShort ? ` (${details.join(", ")})` : ""}`;
  return [line, ...(isShort ? [] : details.map((detail) => `            ${escapeLine(detail)}`))];
}

function changeDirectory(dir: string): string[] {
  const relative = path.relative(process.cwd(), dir);
  const target = relative.startsWith("..") ? dir : relative;
  if (!target) return [];
  return [`cd ${/^[\w./-]+$/.test(target) ? target : `'${escapeLine(target).replaceAll("'", "'\\''")}'`}`];
}
