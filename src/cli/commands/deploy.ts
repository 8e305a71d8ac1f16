// stillwake deploy: declaration; deploy/deploy.ts generates the files.
import { type Command, configHelp } from "../command.ts";

export const deployCommand: Command = {
  name: "deploy",
  group: "Get started",
  summary: "generate deployment files for Fly, Cloud Run or Kubernetes",
  usage: ["fly|cloud-run|kubernetes", "fly|cloud-run|kubernetes --print"],
  args: [1, 1],
  subcommands: ["fly", "cloud-run", "kubernetes"],
  flags: {
    print: "print the files instead of writing them",
    out: "<dir> output directory (default: deploy)",
    force: "overwrite files that have been edited",
    name: "<name> of the app (default: the name of the project)",
    pool: "<name> this pool only (default: the pools of stillwake.config)",
    region: "<region> of the machines, such as iad",
    size: "<size> of the machines: performance-8x on Fly, a number of CPUs elsewhere",
    memory: "<memory> such as 64gb",
    slots: "<n> concurrent jobs per machine (default: 1)",
    warm: "<n> machines that are created in advance and stopped; Fly only (default: 0)",
    max: "<n> concurrent machines (default: 5)",
    drain: '<cron> run on a schedule instead, such as "*/5 * * * *" or "users=0 */4 * * *"; Cloud Run only; repeatable',
    pipelines: "<path> for the worker, if stillwake.config has none; repeatable",
    project: "<id> the Google Cloud project",
    namespace: "<name> of Kubernetes (default: the name of the app)",
    image: "<image> to push to and to run; Cloud Run and Kubernetes",
    config: configHelp,
  },
  examples: [
    ["deploy fly --print", "preview only"],
    ["deploy fly --pool scan --size performance-8x --memory 64gb --region iad --warm 3 --max 5", ""],
    [
      'deploy cloud-run --project acme-prod --drain "commits=*/5 * * * *" --drain "users=0 */4 * * *"',
      "two pools that are drained on a schedule",
    ],
    ["deploy kubernetes --image registry.example.com/acme:v1", ""],
  ],
  run: async (context) => (await import("../deploy/deploy.ts")).writeDeployment(context),
};
