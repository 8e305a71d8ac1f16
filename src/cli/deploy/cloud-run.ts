// The files for Cloud Run: a job resource for each pool, and a service that answers the API and runs those jobs when there is work, or a clock that does.
//
// The jobs are YAML of Google's v1 API, which `gcloud run jobs replace` makes or changes to what the file says: one file can be read, compared and kept with the
// code, where a line of flags tells nothing about what was set before. The orchestrator is given the job's name, so that it needs no right to change it.
import { imageFiles } from "./image.ts";
import { type DeployedPool, type Deployment, type Files, workerWords } from "./settings.ts";
import { memoryQuantity } from "./sizes.ts";

export function cloudRunFiles(deployment: Deployment): Files {
  const served = deployment.pools.some(({ drain }) => drain === undefined);
  return {
    ...imageFiles(deployment),
    ...Object.fromEntries(deployment.pools.map((pool) => [`job.${pool.slug}.yaml`, job(deployment, pool)])),
    "job.watchdog.yaml": watchdog(deployment, served),
    ...(served && { "service.yaml": service(deployment) }),
    "deploy.sh": script(deployment, served),
    "schedulers.sh": schedulers(deployment),
  };
}

/** Those that the clock drains need no orchestrator. */
export function cloudRunPools({ name, project, region, pools }: Deployment): string[] {
  return pools
    .filter(({ drain }) => drain === undefined)
    .map(
      (pool) =>
        `${JSON.stringify(pool.name)}: { provider: cloudRun({ project: "${project}", region: "${region}", job: "${name}-${pool.slug}", cpu: ${pool.size}, memoryMb: ${pool.memoryMb} }), slots: ${pool.slots}, max: ${pool.max}, grace: "8s" },`,
    );
}

const account = ({ project }: Deployment, name: string) => `${name}@${project}.iam.gserviceaccount.com`;

const fromSecret = (variable: string, secret: string, indent: string) =>
  [`- name: ${variable}`, "  valueFrom:", "    secretKeyRef:", `      name: ${secret}`, "      key: latest"].join(
    `\n${indent}`,
  );

function job(deployment: Deployment, pool: DeployedPool): string {
  const { name, image } = deployment;
  const words = [...workerWords(deployment), ...(pool.drain === undefined ? [] : ["--drain"])];
  const head =
    pool.drain === undefined
      ? `# The machines of pool ${pool.name}: each execution is one. The orchestrator starts them and tells each who it is; one that somebody starts by hand
# does what there is and ends after five seconds without a job.`
      : `# Pool ${pool.name}, drained by the clock (schedulers.sh, ${pool.drain}): it does what there is and ends.`;
  const idle =
    pool.drain === undefined
      ? `
                - name: STILLWAKE_IDLE_EXIT
                  value: 5s`
      : "";
  return `${head}
# maxRetries is 0: a job whose machine died goes on under another lease. Google bills a minute at least.
apiVersion: run.googleapis.com/v1
kind: Job
metadata:
  name: ${name}-${pool.slug}
  labels:
    app: "${name}"
spec:
  template:
    spec:
      taskCount: 1
      parallelism: 1
      template:
        spec:
          maxRetries: 0
          timeoutSeconds: "86400"
          serviceAccountName: ${account(deployment, `${name}-worker`)}
          containers:
            - image: ${image}:latest
              args: ${flow(words)}
              env:
                - name: STILLWAKE_POOL
                  value: ${JSON.stringify(pool.name)}
                - name: STILLWAKE_SLOTS
                  value: "${pool.slots}"${idle}
                # A cancelled execution has about ten seconds.
                - name: STILLWAKE_GRACE
                  value: 8s
                ${fromSecret("STILLWAKE_DATABASE_URL", `${name}-worker-database-url`, "                ")}
              resources:
                limits:
                  cpu: "${pool.size}"
                  memory: ${memoryQuantity(pool.memoryMb)}
`;
}

function watchdog(deployment: Deployment, served: boolean): string {
  const { name, image } = deployment;
  const command = served ? "stillwake watchdog && stillwake orchestrator --once" : "stillwake watchdog";
  return `# What covers every lost poke and every time that comes while nothing is awake: ${command}. schedulers.sh runs it every 15 minutes, which
# is 2,880 executions in 30 days of at least a minute of one vCPU each: 172,800 vCPU-seconds, of which Google gives 240,000 a month for nothing.
apiVersion: run.googleapis.com/v1
kind: Job
metadata:
  name: ${name}-watchdog
  labels:
    app: "${name}"
spec:
  template:
    spec:
      taskCount: 1
      parallelism: 1
      template:
        spec:
          maxRetries: 0
          timeoutSeconds: "300"
          serviceAccountName: ${account(deployment, `${name}-orchestrator`)}
          containers:
            - image: ${image}:latest
              args: [sh, -c, "${command}"]
              env:
                ${fromSecret("STILLWAKE_DATABASE_URL", `${name}-database-url`, "                ")}
              resources:
                limits:
                  cpu: "1"
                  memory: 512Mi
`;
}

function service(deployment: Deployment): string {
  const { name, image } = deployment;
  return `# The HTTP API with the dashboard and, because stillwake.config has pools, the orchestrator in the same process. It may sleep: a request wakes it, and the poke
# that enqueue() sends is one. cpu-throttling is off, since a machine is started after the poke has been answered; so it is billed while it is awake, which is up
# to 15 minutes after its last request. Anybody may reach it: the server's own tokens say who may come in.
apiVersion: serving.knative.dev/v1
kind: Service
metadata:
  name: "${name}"
  labels:
    app: "${name}"
  annotations:
    run.googleapis.com/ingress: all
spec:
  template:
    metadata:
      annotations:
        autoscaling.knative.dev/minScale: "0"
        autoscaling.knative.dev/maxScale: "1"
        run.googleapis.com/cpu-throttling: "false"
    spec:
      serviceAccountName: ${account(deployment, `${name}-orchestrator`)}
      containerConcurrency: 80
      timeoutSeconds: 3600
      containers:
        - image: ${image}:latest
          args: [stillwake, server, --host, 0.0.0.0, --port, "8080"]
          ports:
            - containerPort: 8080
          env:
            ${fromSecret("STILLWAKE_DATABASE_URL", `${name}-database-url`, "            ")}
            ${fromSecret("STILLWAKE_SECRET", `${name}-secret`, "            ")}
          startupProbe:
            httpGet:
              path: /health
              port: 8080
          resources:
            limits:
              cpu: "1"
              memory: 512Mi
`;
}

const preamble = ({ name, project, region, root }: Deployment) => `set -euo pipefail

here="$(cd "$(dirname "\${BASH_SOURCE[0]}")" && pwd)"
cd "$here/${root}"

name="${name}"
project="${project}"
region="${region}"
if [[ "$project" == PROJECT ]]; then
  echo "No project is named: make these files again with --project <id>" >&2
  exit 2
fi
`;

function script(deployment: Deployment, served: boolean): string {
  const { image, folder, pools } = deployment;
  const jobs = pools.map(({ slug }) => slug);
  const orchestrated = pools.filter(({ drain }) => drain === undefined).map(({ slug }) => slug);
  return `#!/usr/bin/env bash
# From nothing to pools that run when there is work. To run it again is safe: it makes what is missing and rolls out the code as it is now.
#
#   DATABASE_URL=postgres://… ${folder}/deploy.sh
#
# DATABASE_URL          for the server, the orchestrator and the watchdog, a login with stillwake_app
# WORKER_DATABASE_URL   for the workers, a login with stillwake_worker; the same one without it
# OWNER_DATABASE_URL    to migrate with, as the owner; without it nothing is migrated
# DOCKER                what builds and pushes, "docker" without it
${preamble(deployment)}label="v$(date -u +%Y%m%d-%H%M%S)"
repository="${image}"
image="$repository:$label"
: "\${DATABASE_URL:?is not set: the URL of the Postgres that Cloud Run can reach}"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

make_account() {
  gcloud iam service-accounts describe "$1@$project.iam.gserviceaccount.com" --project "$project" >/dev/null 2>&1 ||
    gcloud iam service-accounts create "$1" --project "$project"
}

# From a file and not as an argument, which everyone on this machine can read. A value that has not changed makes no new version.
set_secret() {
  gcloud secrets describe "$1" --project "$project" >/dev/null 2>&1 ||
    gcloud secrets create "$1" --project "$project" --replication-policy automatic
  if [[ "$(gcloud secrets versions access latest --secret "$1" --project "$project" 2>/dev/null || true)" != "$2" ]]; then
    printf '%s' "$2" | gcloud secrets versions add "$1" --project "$project" --data-file=-
  fi
  gcloud secrets add-iam-policy-binding "$1" --project "$project" --role roles/secretmanager.secretAccessor \\
    --member "serviceAccount:$3@$project.iam.gserviceaccount.com" >/dev/null
}

# The files name the image as "latest"; what is deployed names it as it is.
replace() {
  sed "s|$repository:latest|$image|" "$here/$2" >"$work/$2"
  gcloud run "$1" replace "$work/$2" --region "$region" --project "$project"
}

echo "1. Accounts: the workers' has no right at all, the orchestrator's may run their jobs"
gcloud services enable run.googleapis.com secretmanager.googleapis.com artifactregistry.googleapis.com --project "$project"
make_account "$name-worker"
make_account "$name-orchestrator"

echo "2. Secrets"
set_secret "$name-database-url" "$DATABASE_URL" "$name-orchestrator"
set_secret "$name-worker-database-url" "\${WORKER_DATABASE_URL:-$DATABASE_URL}" "$name-worker"
if ! gcloud secrets describe "$name-secret" --project "$project" >/dev/null 2>&1; then
  secret="$(openssl rand -base64 32)"
  set_secret "$name-secret" "$secret" "$name-orchestrator"
fi

if [[ -n "\${OWNER_DATABASE_URL:-}" ]]; then
  echo "3. The schema"
  STILLWAKE_DATABASE_URL="$OWNER_DATABASE_URL" npx stillwake migrate
fi

echo "4. One image for all: $image"
if [[ "$repository" == *-docker.pkg.dev/* ]]; then
  gcloud artifacts repositories describe "$name" --location "$region" --project "$project" >/dev/null 2>&1 ||
    gcloud artifacts repositories create "$name" --repository-format docker --location "$region" --project "$project"
  gcloud auth configure-docker "$region-docker.pkg.dev" --quiet
fi
"\${DOCKER:-docker}" build --platform linux/amd64 -f "$here/Dockerfile" -t "$image" .
"\${DOCKER:-docker}" push "$image"

echo "5. The jobs"
for one in ${[...jobs, "watchdog"].join(" ")}; do
  replace jobs "job.$one.yaml"
done
${served ? orchestrating(orchestrated) : ""}
echo "Done. The clock that runs them: $here/schedulers.sh"
echo "See that it works:  DATABASE_URL=… npx stillwake machines"
`;
}

/** S42: one role of exactly what the orchestrator does, given on the jobs of its pools and on nothing else. */
function orchestrating(jobs: readonly string[]): string {
  return `
echo "6. What the orchestrator may do: run these jobs, see and cancel their executions"
permissions="run.jobs.get,run.jobs.run,run.jobs.runWithOverrides,run.executions.get,run.executions.list,run.executions.cancel,run.tasks.get,run.tasks.list"
if gcloud iam roles describe stillwakeOrchestrator --project "$project" >/dev/null 2>&1; then
  gcloud iam roles update stillwakeOrchestrator --project "$project" --permissions "$permissions" --quiet >/dev/null
else
  gcloud iam roles create stillwakeOrchestrator --project "$project" --title "Stillwake orchestrator" --permissions "$permissions"
fi
allow() {
  gcloud run jobs add-iam-policy-binding "$1" --region "$region" --project "$project" \\
    --member "serviceAccount:$name-orchestrator@$project.iam.gserviceaccount.com" --role "projects/$project/roles/stillwakeOrchestrator" >/dev/null
}
${jobs.map((slug) => `allow "$name-${slug}"`).join("\n")}

echo "7. The service, which the tokens of Stillwake guard"
replace services service.yaml
gcloud run services add-iam-policy-binding "$name" --region "$region" --project "$project" --member allUsers --role roles/run.invoker >/dev/null
gcloud run services describe "$name" --region "$region" --project "$project" --format 'value(status.url)'
`;
}

function schedulers(deployment: Deployment): string {
  const { folder, pools } = deployment;
  const drains = pools.filter(({ drain }) => drain !== undefined);
  return `#!/usr/bin/env bash
# The clock: entries of Cloud Scheduler that run jobs of Cloud Run. To run it again is safe, and brings changed times in.
#   ${folder}/schedulers.sh
# TIME_ZONE   of the times, Etc/UTC without it
${preamble(deployment)}
# An account that may start these jobs as they are and nothing else.
clock="$name-clock@$project.iam.gserviceaccount.com"
gcloud services enable cloudscheduler.googleapis.com --project "$project"
gcloud iam service-accounts describe "$clock" --project "$project" >/dev/null 2>&1 ||
  gcloud iam service-accounts create "$name-clock" --project "$project"

# schedule <job> <cron>
schedule() {
  gcloud run jobs add-iam-policy-binding "$1" --region "$region" --project "$project" \\
    --member "serviceAccount:$clock" --role roles/run.invoker >/dev/null
  local act=create
  if gcloud scheduler jobs describe "$1" --location "$region" --project "$project" >/dev/null 2>&1; then
    act=update
  fi
  gcloud scheduler jobs "$act" http "$1" --location "$region" --project "$project" --schedule "$2" --time-zone "\${TIME_ZONE:-Etc/UTC}" \\
    --uri "https://run.googleapis.com/v2/projects/$project/locations/$region/jobs/$1:run" --http-method POST \\
    --oauth-service-account-email "$clock" --max-retry-attempts 0 --attempt-deadline 60s
}

${drains
  .map(({ slug, drain }) => `schedule "$name-${slug}" "${drain}"`)
  .concat(`schedule "$name-watchdog" "*/15 * * * *"`)
  .join("\n")}
`;
}

function flow(words: readonly string[]): string {
  return JSON.stringify(words).replaceAll(",", ", ");
}
