// The next steps for the operator, printed after the files were generated. On stderr, so that --print outputs only files.
import type { Deployment, Platform } from "./settings.ts";

const factory: Record<Platform, string> = { fly: "fly", "cloud-run": "cloudRun", kubernetes: "kubernetes" };

/** `settings`: lines with the missing pools for stillwake.config. */
export function nextSteps(deployment: Deployment, settings: readonly string[]): string[] {
  const { platform } = deployment;
  const configSteps =
    settings.length === 0
      ? []
      : [
          "",
          "Add these pools to stillwake.config:",
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
    ...configSteps,
    "",
    "Next, after reading the files:",
    "",
    ...steps[platform](deployment).map((line) => `  ${line}`),
    "",
    "docs/run/deploying.md lists what keeps running, what it costs, and the tokens.",
  ];
}

const steps: Record<Platform, (deployment: Deployment) => string[]> = {
  fly: ({ name, folder }) => [
    "fly auth login",
    `DATABASE_URL=postgres://… OWNER_DATABASE_URL=postgres://… ${folder}/deploy.sh`,
    "npx stillwake tokens create --name poke --role worker   # for clients that enqueue:",
    pokeExample(`https://${name}.fly.dev/v1/poke`),
  ],
  "cloud-run": ({ folder, pools, project }) => [
    ...(project === "PROJECT" ? ["generate the files again with --project <id>, which the scripts require"] : []),
    `DATABASE_URL=postgres://… OWNER_DATABASE_URL=postgres://… ${folder}/deploy.sh`,
    `${folder}/schedulers.sh`,
    ...(pools.some(({ drain }) => drain === undefined)
      ? [
          "npx stillwake tokens create --name poke --role worker   # for clients that enqueue:",
          pokeExample("https://<the service>/v1/poke"),
        ]
      : []),
  ],
  kubernetes: ({ folder, image, namespace }) => [
    `docker build -f ${folder}/Dockerfile -t ${image} . && docker push ${image}`,
    "STILLWAKE_DATABASE_URL=postgres://… npx stillwake migrate   # as the owner of the database",
    `kubectl apply -f ${folder}/namespace.yaml -f ${folder}/rbac.yaml`,
    `set up the two secrets, see ${folder}/secret.example.yaml`,
    `kubectl apply -f ${folder}/orchestrator.yaml -f ${folder}/watchdog.yaml      # or scaledjob.yaml, with KEDA`,
    `${pokeExample(`http://stillwake-orchestrator.${namespace}.svc:8080/v1/poke`)}   // in your application, with its STILLWAKE_TOKEN`,
  ],
};

/** A line for the application. */
function pokeExample(url: string): string {
  return `createStillwake({ url, poke: { url: "${url}", token } })`;
}
