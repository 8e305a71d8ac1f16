// The table of all commands. The help, the completions and docs/reference/cli.md are generated from it.
import type { Command } from "./command.ts";
import { auditCommand, readTokenCommand, tokensCommand } from "./commands/access.ts";
import { cancelCommand, pauseCommand, resumeCommand, retryCommand, signalCommand } from "./commands/control.ts";
import { budgetCommand, costCommand } from "./commands/cost.ts";
import { doctorCommand, migrateCommand } from "./commands/database.ts";
import { deployCommand } from "./commands/deploy.ts";
import { devCommand } from "./commands/dev.ts";
import { enqueueCommand } from "./commands/enqueue.ts";
import { importCommand } from "./commands/import.ts";
import { initCommand } from "./commands/init.ts";
import { artifactCommand, jobCommand, jobsCommand } from "./commands/jobs.ts";
import { breakersCommand, limitsCommand } from "./commands/limits.ts";
import { fleetCommand, orchestratorCommand } from "./commands/orchestrator.ts";
import { machinesCommand, poolsCommand } from "./commands/pools.ts";
import { registerCommand } from "./commands/register.ts";
import { schedulesCommand } from "./commands/schedules.ts";
import { serverCommand } from "./commands/server.ts";
import { pipelinesCommand, statsCommand } from "./commands/stats.ts";
import { watchdogCommand } from "./commands/watchdog.ts";
import { webhooksCommand } from "./commands/webhooks.ts";
import { workerCommand } from "./commands/worker.ts";
import { completionCommand } from "./completion.ts";

/** In the order of the help. */
export const commands: readonly Command[] = [
  initCommand,
  devCommand,
  deployCommand,
  completionCommand,
  workerCommand,
  serverCommand,
  orchestratorCommand,
  fleetCommand,
  migrateCommand,
  registerCommand,
  importCommand,
  doctorCommand,
  watchdogCommand,
  enqueueCommand,
  jobsCommand,
  jobCommand,
  artifactCommand,
  cancelCommand,
  retryCommand,
  pauseCommand,
  resumeCommand,
  signalCommand,
  statsCommand,
  pipelinesCommand,
  poolsCommand,
  machinesCommand,
  costCommand,
  limitsCommand,
  breakersCommand,
  schedulesCommand,
  webhooksCommand,
  budgetCommand,
  tokensCommand,
  readTokenCommand,
  auditCommand,
];

export function findCommand(name: string): Command | undefined {
  return commands.find((command) => command.name === name);
}
