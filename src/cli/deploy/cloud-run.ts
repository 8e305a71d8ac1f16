// The files for Cloud Run: a job resource per pool, and a service with the API and the orchestrator, or a schedule, that runs those jobs.
//
// The jobs are YAML of Google's v1 API for `gcloud run jobs replace`: unlike a command line of flags, a file defines the whole resource and
// can be kept with the code. The orchestrator only gets the job's name, so it needs no right to change it.
import { imageFiles } from "./image.ts";
import { type DeployedPool, type Deployment, type Files, workerCommand } from "./settings.ts";
import { memoryQuantity } from "./sizes.ts";

export function cloudRunFiles(deployment: Deployment): Files {
  const hasService = deployment.pools.some(({ drain }) => drain === undefined);
  return {
    ...imageFiles(deployment),
    ...Object.fromEntries(deployment.pools.map((pool) => [`job.${pool.slug}.yaml`, job(deployment, pool)])),
    "job.watchdog.yaml": watchdog(deployment, hasService),
    ...(hasService && { "service.yaml": service(deployment) }),
    "deploy.sh": deployScript(deployment, hasService),
    "schedulers.sh": schedulers(deployment),
  };
}

/** Pools that are drained on a schedule need no orchestrator. */
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

/** A job resource, up to the variables of its container. */
function jobHead(
  deployment: Deployment,
  job: { name: string; account: string; timeoutSeconds: number; args: string },
): string {
  const { name, image } = deployment;
  return `apiVersion: run.googleapis.com/v1
kind: Job
metadata:
  name: ${name}-${job.name}
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
          timeoutSeconds: "${job.timeoutSeconds}"
          serviceAccountName: ${account(deployment, `${name}-${job.account}`)}
          containers:
            - image: ${image}:latest
              args: ${job.args}
              env:`;
}

function job(deployment: Deployment, pool: DeployedPool): string {
  const { name } = deployment;
  const args = [...workerCommand(deployment), ...(pool.drain === undefined ? [] : ["--drain"])];
  const head =
    pool.drain === undefined
      ? `# The machines of pool ${pool.name}: each execution is one machine. The orchestrator starts them and passes their names; one
# started by hand runs the waiting jobs and exits after five seconds without a job.`
      : `# Pool ${pool.name}, drained on a schedule (schedulers.sh, ${pool.drain}): it runs the waiting jobs and exits.`;
  const idle =
    pool.drain === undefined
      ? `
                - name: STILLWAKE_IDLE_EXIT
                  value: 5s`
      : "";
  return `${head}
# maxRetries is 0: Stillwake retries the job of a lost machine on another one. Google bills at least one minute.
${jobHead(deployment, { name: pool.slug, account: "worker", timeoutSeconds: 86_400, args: flow(args) })}
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

function watchdog(deployment: Deployment, hasService: boolean): string {
  const { name } = deployment;
  const command = hasService ? "stillwake watchdog && stillwake orchestrator --once" : "stillwake watchdog";
  return `# Covers lost pokes, and schedules and retries that become due while the service sleeps: ${command}.
# schedulers.sh runs it every 15 minutes: 2,880 executions in 30 days, each billed for at least a minute of one vCPU, are
# 172,800 vCPU-seconds; the free tier is 240,000 a month.
${jobHead(deployment, { name: "watchdog", account: "orchestrator", timeoutSeconds: 300, args: `[sh, -c, "${command}"]` })}
                ${fromSecret("STILLWAKE_DATABASE_URL", `${name}-database-url`, "                ")}
              resources:
                limits:
                  cpu: "1"
                  memory: 512Mi
`;
}

function service(deployment: Deployment): string {
  const { name, image } = deployment;
  return `# The HTTP API with the dashboard and, because stillwake.config has pools, the orchestrator in the same process. It may sleep:
# any request wakes it, including the poke that enqueue() sends. cpu-throttling is off, because machines are started after the
# response to the poke; so it is billed while it is awake, up to 15 minutes after the last request. It is publicly reachable
# and protected by Stillwake's tokens.
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
  echo "No Google Cloud project is set: generate these files again with --project <id>" >&2
  exit 2
fi
`;

function deployScript(deployment: Deployment, hasService: boolean): string {
  const { image, folder, pools } = deployment;
  const jobs = pools.map(({ slug }) => slug);
  const orchestrated = pools.filter(({ drain }) => drain === undefined).map(({ slug }) => slug);
  return `#!/usr/bin/env bash
# Creates all resources and deploys the current code. Safe to run again: it creates what is missing and rolls out the code.
#
#   DATABASE_URL=postgres://… ${folder}/deploy.sh
#
# DATABASE_URL          for the server, the orchestrator and the watchdog, a login with stillwake_app
# WORKER_DATABASE_URL   for the workers, a login with stillwake_worker; default: DATABASE_URL
# OWNER_DATABASE_URL    for migrations, as the owner; without it migrations are skipped
# DOCKER                the program that builds and pushes; default: docker
${preamble(deployment)}label="v$(date -u +%Y%m%d-%H%M%S)"
repository="${image}"
image="$repository:$label"
: "\${DATABASE_URL:?is not set. Set it to the URL of a Postgres that Cloud Run can reach}"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

create_account() {
  gcloud iam service-accounts describe "$1@$project.iam.gserviceaccount.com" --project "$project" >/dev/null 2>&1 ||
    gcloud iam service-accounts create "$1" --project "$project"
}

# Through a pipe: every user of this host can read arguments. An unchanged value creates no new version.
set_secret() {
  gcloud secrets describe "$1" --project "$project" >/dev/null 2>&1 ||
    gcloud secrets create "$1" --project "$project" --replication-policy automatic
  if [[ "$(gcloud secrets versions access latest --secret "$1" --project "$project" 2>/dev/null || true)" != "$2" ]]; then
    printf '%s' "$2" | gcloud secrets versions add "$1" --project "$project" --data-file=-
  fi
  gcloud secrets add-iam-policy-binding "$1" --project "$project" --role roles/secretmanager.secretAccessor \\
    --member "serviceAccount:$3@$project.iam.gserviceaccount.com" >/dev/null
}

# Replaces the tag "latest" of the files with the tag of this image.
replace() {
  sed "s|$repository:latest|$image|" "$here/$2" >"$work/$2"
  gcloud run "$1" replace "$work/$2" --region "$region" --project "$project"
}

echo "1. Create the service accounts of workers (no rights) and orchestrator (may run the jobs)"
gcloud services enable run.googleapis.com secretmanager.googleapis.com artifactregistry.googleapis.com --project "$project"
create_account "$name-worker"
create_account "$name-orchestrator"

echo "2. Set the secrets"
set_secret "$name-database-url" "$DATABASE_URL" "$name-orchestrator"
set_secret "$name-worker-database-url" "\${WORKER_DATABASE_URL:-$DATABASE_URL}" "$name-worker"
if ! gcloud secrets describe "$name-secret" --project "$project" >/dev/null 2>&1; then
  secret="$(openssl rand -base64 32)"
  set_secret "$name-secret" "$secret" "$name-orchestrator"
fi

if [[ -n "\${OWNER_DATABASE_URL:-}" ]]; then
  echo "3. Migrate the database"
  STILLWAKE_DATABASE_URL="$OWNER_DATABASE_URL" npx stillwake migrate
fi

echo "4. Build and push the image $image"
if [[ "$repository" == *-docker.pkg.dev/* ]]; then
  gcloud artifacts repositories describe "$name" --location "$region" --project "$project" >/dev/null 2>&1 ||
    gcloud artifacts repositories create "$name" --repository-format docker --location "$region" --project "$project"
  gcloud auth configure-docker "$region-docker.pkg.dev" --quiet
fi
"\${DOCKER:-docker}" build --platform linux/amd64 -f "$here/Dockerfile" -t "$image" .
"\${DOCKER:-docker}" push "$image"

echo "5. Create or update the jobs"
for job in ${[...jobs, "watchdog"].join(" ")}; do
  replace jobs "job.$job.yaml"
done
${hasService ? orchestratorSteps(orchestrated) : ""}
echo "Done. Create the schedules with $here/schedulers.sh"
echo "Check that it works:  DATABASE_URL=… npx stillwake machines"
`;
}

/** A role with exactly the permissions the orchestrator needs, granted on the jobs of its pools only. */
function orchestratorSteps(jobs: readonly string[]): string {
  return `
echo "6. Allow the orchestrator to run these jobs and to read and cancel their executions"
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

echo "7. Deploy the service, which is protected by Stillwake's tokens"
replace services service.yaml
gcloud run services add-iam-policy-binding "$name" --region "$region" --project "$project" --member allUsers --role roles/run.invoker >/dev/null
gcloud run services describe "$name" --region "$region" --project "$project" --format 'value(status.url)'
`;
}

function schedulers(deployment: Deployment): string {
  const { folder, pools } = deployment;
  const drains = pools.filter(({ drain }) => drain !== undefined);
  return `#!/usr/bin/env bash
# Creates the Cloud Scheduler entries that run the Cloud Run jobs. Safe to run again: it updates changed times.
#   ${folder}/schedulers.sh
# TIME_ZONE   default: Etc/UTC
${preamble(deployment)}
# A service account that may only start these jobs.
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

function flow(items: readonly string[]): string {
  return JSON.stringify(items).replaceAll(",", ", ");
}
