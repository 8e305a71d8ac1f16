// The files for Fly: two apps and a script. The workers have a separate app, so that the orchestrator's token is
// limited to their machines; only the other app has that token as a secret.
import { imageFiles } from "./image.ts";
import { type Deployment, type Files, workerCommand } from "./settings.ts";
import { formatMemory } from "./sizes.ts";

export function flyFiles(deployment: Deployment): Files {
  return {
    ...imageFiles(deployment),
    "fly.toml": apiToml(deployment),
    "fly.worker.toml": workerToml(deployment),
    "deploy.sh": deployScript(deployment),
  };
}

/** Without the image: fly() reads STILLWAKE_IMAGE, which deploy.sh sets. */
export function flyPools({ name, region, pools }: Deployment): string[] {
  return pools.map(
    (pool) =>
      `${JSON.stringify(pool.name)}: { provider: fly({ app: "${name}-workers", size: "${pool.size}", memoryMb: ${pool.memoryMb}, region: "${region}" }), slots: ${pool.slots}, warm: ${pool.warm}, max: ${pool.max} },`,
  );
}

function apiToml({ name, region }: Deployment): string {
  return `# The API app: the HTTP API with the dashboard and, because stillwake.config has pools, the orchestrator in the same process.
#
# It may sleep. Any request wakes it, including the poke that enqueue() sends. While it sleeps, schedules and retries are not
# noticed: the scheduled machine of deploy.sh checks every hour; call POST /v1/watchdog to check more often. With
# min_machines_running = 1 it stays awake for the price of this small machine, and everything runs on time.
app = "${name}"
primary_region = "${region}"
kill_signal = "SIGTERM"
kill_timeout = "30s"

[env]
STILLWAKE_HOST = "0.0.0.0"
STILLWAKE_PORT = "8080"

[processes]
api = "stillwake server"

[http_service]
internal_port = 8080
force_https = true
auto_stop_machines = "stop"
auto_start_machines = true
min_machines_running = 0
processes = ["api"]

[[http_service.checks]]
method = "GET"
path = "/health"
interval = "30s"
timeout = "5s"
grace_period = "10s"

[[vm]]
size = "shared-cpu-1x"
memory = "512mb"
processes = ["api"]
`;
}

function workerToml(deployment: Deployment): string {
  const { name, region, pools } = deployment;
  const commands = pools.map(
    (pool) => `${pool.slug} = "${[...workerCommand(deployment), "--pool", pool.name].join(" ")}"`,
  );
  const sizes = pools.map(
    (pool) => `[[vm]]
size = "${pool.size}"
memory = "${formatMemory(pool.memoryMb)}"
processes = ["${pool.slug}"]
`,
  );
  return `# The workers' app: no HTTP service, nothing that is always on. The orchestrator creates, starts and removes its machines and
# names them after the fleet; they stop by themselves when there is no job.
#
# deploy.sh only builds the image with this file. Do not run \`fly deploy\` or \`fly scale\` here: it would create machines
# outside the fleet that run jobs but are never stopped.
app = "${name}-workers"
primary_region = "${region}"
kill_signal = "SIGTERM"
kill_timeout = "${pools[0]!.grace}"

[build]
dockerfile = "Dockerfile"
ignorefile = "Dockerfile.dockerignore"

[processes]
${commands.join("\n")}

${sizes.join("\n")}`;
}

function deployScript({ name, region, root, folder }: Deployment): string {
  return `#!/usr/bin/env bash
# Creates the apps and deploys the current code. Safe to run again: it creates what is missing and rolls out the code.
#
#   DATABASE_URL=postgres://… ${folder}/deploy.sh
#
# DATABASE_URL          for the server and the orchestrator, a login with stillwake_app
# WORKER_DATABASE_URL   for the workers, a login with stillwake_worker; default: DATABASE_URL
# OWNER_DATABASE_URL    for migrations, as the owner; without it migrations are skipped
# FLY_ORG               the organization; default: personal
# TOKEN_EXPIRY          lifetime of the orchestrator's token; default: 2160h (90 days). Fly's default is 20 years
# NEW_TOKEN=1           creates a new token even if there is one
set -euo pipefail

here="$(cd "$(dirname "\${BASH_SOURCE[0]}")" && pwd)"
cd "$here/${root}"

app="${name}"
workers="${name}-workers"
region="${region}"
label="v$(date -u +%Y%m%d-%H%M%S)"
image="registry.fly.io/$workers:$label"
: "\${DATABASE_URL:?is not set. Set it to the URL of a Postgres that all machines can reach}"

create_app() {
  fly status --app "$1" >/dev/null 2>&1 || fly apps create "$1" --org "\${FLY_ORG:-personal}"
}

has_secret() {
  local list
  list="$(fly secrets list --app "$1" --json)" || exit 1
  [[ "$list" == *"\\"$2\\""* ]]
}

# Through a pipe: every user of this host can read arguments.
set_secret() {
  printf '%s=%s\\n' "$2" "$3" | fly secrets import --app "$1" --stage
}

echo "1. Create the apps $app (API) and $workers (workers)"
create_app "$app"
create_app "$workers"

echo "2. Set the secrets of each app"
set_secret "$app" STILLWAKE_DATABASE_URL "$DATABASE_URL"
set_secret "$workers" STILLWAKE_DATABASE_URL "\${WORKER_DATABASE_URL:-$DATABASE_URL}"
if ! has_secret "$app" STILLWAKE_SECRET; then
  secret="$(openssl rand -base64 32)"
  set_secret "$app" STILLWAKE_SECRET "$secret"
fi
# The token is limited to the workers' app. It is stored in the API app only.
if [[ "\${NEW_TOKEN:-}" == 1 ]] || ! has_secret "$app" FLY_API_TOKEN; then
  token="$(fly tokens create deploy --app "$workers" --name stillwake-orchestrator --expiry "\${TOKEN_EXPIRY:-2160h}")"
  set_secret "$app" FLY_API_TOKEN "$token"
  unset token
  echo "   created a token for $workers; list and revoke old ones: fly tokens list --app $workers"
fi

if [[ -n "\${OWNER_DATABASE_URL:-}" ]]; then
  echo "3. Migrate the database"
  STILLWAKE_DATABASE_URL="$OWNER_DATABASE_URL" npx stillwake migrate
fi

echo "4. Build and deploy the image $image"
fly deploy . --config "$here/fly.worker.toml" --dockerfile "$here/Dockerfile" --ignorefile "$here/Dockerfile.dockerignore" \\
  --build-only --push --image-label "$label"
# The image is in the repository of the workers' app, where the token can use it. STILLWAKE_IMAGE has to be the same string
# everywhere: machines of another image count as outdated and are replaced while they are stopped.
fly deploy . --config "$here/fly.toml" --image "$image" --env "STILLWAKE_IMAGE=$image" --ha=false --yes

echo "5. Create the warm machines of the pools and remove those of older images"
fly machine run "$image" --app "$app" --region "$region" --rm --detach --vm-size shared-cpu-1x --vm-memory 512 \\
  --env "STILLWAKE_IMAGE=$image" -- stillwake orchestrator --once

echo "6. Create the hourly watchdog machine"
old="$(fly machine list --app "$app" --json | node -pe 'JSON.parse(require("fs").readFileSync(0)).find((machine) => machine.name === process.argv[1])?.id ?? ""' "$app-watchdog")"
if [[ -n "$old" ]]; then
  fly machine destroy "$old" --app "$app" --force
fi
fly machine run "$image" --app "$app" --name "$app-watchdog" --region "$region" --schedule hourly --restart no --detach \\
  --vm-size shared-cpu-1x --vm-memory 512 --env "STILLWAKE_IMAGE=$image" -- sh -c "stillwake watchdog && stillwake orchestrator --once"

echo "Done. Check that it works:"
echo "  DATABASE_URL=… npx stillwake machines"
echo "  fly logs --app $app"
`;
}
