// What is left to do for a person, said after the files were made. It goes to the standard error output, so that --print stays a stream of files.
import type { Deployment, Platform } from "./settings.ts";

const factory: Record<Platform, string> = { fly: "fly", "cloud-run": "cloudRun", kubernetes: "kubernetes" };

/** `settings`: the pools for stillwake.config, empty where it has them. */
export function nextSteps(deployment: Deployment, settings: readonly string[]): string[] {
  const { platform } = deployment;
  const described =
    settings.length === 0
      ? []
      : [
          "",
          "stillwake.config needs these pools, beside its pipelines:",
          "",
          `  import { ${factory[platform]} } from ${JSON.stringify("stillwake/orchestrator")};`,
          "  export default defineConfig({",
          '    pipelines: "./pipelines",',
          "    pools: {",
          ...settings.map((line) => `      ${line}`),
          "    },",
          "  });",
        ];
  return [
    ...described,
    "",
    "Next, after reading the files:",
    "",
    ...steps[platform](deployment).map((line) => `  ${line}`),
    "",
    "The documentation, under deploying, tells what stays on, what it costs and which tokens there are.",
  ];
}

const steps: Record<Platform, (of: Deployment) => string[]> = {
  fly: ({ name, folder }) => [
    "fly auth login",
    `DATABASE_URL=postgres://… OWNER_DATABASE_URL=postgres://… ${folder}/deploy.sh`,
    "npx stillwake tokens create --name poke --role worker   # for those who enqueue:",
    poking(`https://${name}.fly.dev/v1/poke`),
  ],
  "cloud-run": ({ folder, pools, project }) => [
    ...(project === "PROJECT" ? ["make the files again with --project <id>: without it the scripts stop"] : []),
    `DATABASE_URL=postgres://… OWNER_DATABASE_URL=postgres://… ${folder}/deploy.sh`,
    `${folder}/schedulers.sh`,
    ...(pools.some(({ drain }) => drain === undefined)
      ? [
          "npx stillwake tokens create --name poke --role worker   # for those who enqueue:",
          poking("https://<the service>/v1/poke"),
        ]
      : []),
  ],
  kubernetes: ({ folder, image, namespace }) => [
    `docker build -f ${folder}/Dockerfile -t ${image} . && docker push ${image}`,
    "STILLWAKE_DATABASE_URL=postgres://… npx stillwake migrate   # as the owner of the database",
    `kubectl apply -f ${folder}/namespace.yaml -f ${folder}/rbac.yaml`,
    `the two secrets, as ${folder}/secret.example.yaml says`,
    `kubectl apply -f ${folder}/orchestrator.yaml -f ${folder}/watchdog.yaml      # or scaledjob.yaml, with KEDA`,
    `${poking(`http://stillwake-orchestrator.${namespace}.svc:8080/v1/poke`)}   // where you enqueue; its STILLWAKE_TOKEN`,
  ],
};

/** For the code of the application. */
function poking(url: string): string {
  return `createStillwake({ url, poke: { url: "${url}", token } })`;
}
