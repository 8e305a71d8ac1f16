// The files for Fly: two apps and a script. The workers have an app of their own, so that a token that may start and stop them may do nothing else (S40), and
// the token is a secret of the other app alone (S41).
import { imageFiles } from "./image.ts";
import { type Deployment, type Files, workerWords } from "./settings.ts";
import { memoryWords } from "./sizes.ts";

export function flyFiles(deployment: Deployment): Files {
  return {
    ...imageFiles(deployment),
    "fly.toml": api(deployment),
    "fly.worker.toml": workers(deployment),
    "deploy.sh": script(deployment),
  };
}

/** Without the image: fly() knows it from STILLWAKE_IMAGE, which deploy.sh sets. */
export function flyPools({ name, region, pools }: Deployment): string[] {
  return pools.map(
    (pool) =>
      `${JSON.stringify(pool.name)}: { provider: fly({ app: "${name}-workers", size: "${pool.size}", memoryMb: ${pool.memoryMb}, region: "${region}" }), slots: ${pool.slots}, warm: ${pool.warm}, max: ${pool.max} },`,
  );
}

function api({ name, region }: Deployment): string {
  return `# The app that is asked: the HTTP API with the dashboard and, because stillwake.config has pools, the orchestrator in the same process.
#
# It may sleep. A request wakes it, and the poke that enqueue() sends is one, so that a job that is enqueued finds its machine. While it sleeps nobody sees
# that a time has come (a schedule, a retry): the scheduled machine of deploy.sh looks every hour, and whatever calls POST /v1/watchdog more often looks
# more often. min_machines_running = 1 keeps it awake instead, for the price of this small machine; then everything is on time.
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

function workers(deployment: Deployment): string {
  const { name, region, pools } = deployment;
  const commands = pools.map(
    (pool) => `${pool.slug} = "${[...workerWords(deployment), "--pool", pool.name].join(" ")}"`,
  );
  const sizes = pools.map(
    (pool) => `[[vm]]
size = "${pool.size}"
memory = "${memoryWords(pool.memoryMb)}"
processes = ["${pool.slug}"]
`,
  );
  return `# The app of the workers: no HTTP service, nothing that is always on. Its machines are made, started and removed by the orchestrator, which names them after
# the fleet; they stop by themselves when there is nothing to do.
#
# deploy.sh builds the image with this file and deploys nothing of it. \`fly deploy\` or \`fly scale\` here would make machines beside those of the fleet, which
# do jobs like any worker but which nobody ends.
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

function script({ name, region, root, folder }: Deployment): string {
  return `#!/usr/bin/env bash
# From nothing to a pool that starts when there is work. To run it again is safe: it makes what is missing and rolls out the code as it is now.
#
#   DATABASE_URL=postgres://… ${folder}/deploy.sh
#
# DATABASE_URL          for the server and the orchestrator, a login with stillwake_app
# WORKER_DATABASE_URL   for the workers, a login with stillwake_worker; the same one without it
# OWNER_DATABASE_URL    to migrate with, as the owner; without it nothing is migrated
# FLY_ORG               the organization, "personal" without it
# TOKEN_EXPIRY          how long the orchestrator's token is good for, 2160h (90 days) without it; Fly's own default is 20 years
# NEW_TOKEN=1           makes a new token although there is one
set -euo pipefail

here="$(cd "$(dirname "\${BASH_SOURCE[0]}")" && pwd)"
cd "$here/${root}"

app="${name}"
workers="${name}-workers"
region="${region}"
label="v$(date -u +%Y%m%d-%H%M%S)"
image="registry.fly.io/$workers:$label"
: "\${DATABASE_URL:?is not set: the URL of the Postgres that all machines can reach}"

make_app() {
  fly status --app "$1" >/dev/null 2>&1 || fly apps create "$1" --org "\${FLY_ORG:-personal}"
}

has_secret() {
  local list
  list="$(fly secrets list --app "$1" --json)" || exit 1
  [[ "$list" == *"\\"$2\\""* ]]
}

# Through a pipe: arguments can be read by everyone on this machine.
set_secret() {
  printf '%s=%s\\n' "$2" "$3" | fly secrets import --app "$1" --stage
}

echo "1. Two apps: $app is asked, $workers works"
make_app "$app"
make_app "$workers"

echo "2. Secrets: each app has its own"
set_secret "$app" STILLWAKE_DATABASE_URL "$DATABASE_URL"
set_secret "$workers" STILLWAKE_DATABASE_URL "\${WORKER_DATABASE_URL:-$DATABASE_URL}"
if ! has_secret "$app" STILLWAKE_SECRET; then
  secret="$(openssl rand -base64 32)"
  set_secret "$app" STILLWAKE_SECRET "$secret"
fi
# The token can do anything to the workers' app and nothing to any other. It is kept in the app that is asked, and nowhere else.
if [[ "\${NEW_TOKEN:-}" == 1 ]] || ! has_secret "$app" FLY_API_TOKEN; then
  token="$(fly tokens create deploy --app "$workers" --name stillwake-orchestrator --expiry "\${TOKEN_EXPIRY:-2160h}")"
  set_secret "$app" FLY_API_TOKEN "$token"
  unset token
  echo "   a new token for $workers; list and revoke old ones: fly tokens list --app $workers"
fi

if [[ -n "\${OWNER_DATABASE_URL:-}" ]]; then
  echo "3. The schema"
  STILLWAKE_DATABASE_URL="$OWNER_DATABASE_URL" npx stillwake migrate
fi

echo "4. One image for both: $image"
fly deploy . --config "$here/fly.worker.toml" --dockerfile "$here/Dockerfile" --ignorefile "$here/Dockerfile.dockerignore" \\
  --build-only --push --image-label "$label"
# From the repository of the workers' app, whose token is to start machines with it. Whoever starts machines is told the image in the same words: machines of
# another one count as old, and are replaced while they are stopped.
fly deploy . --config "$here/fly.toml" --image "$image" --env "STILLWAKE_IMAGE=$image" --ha=false --yes

echo "5. The stopped machines of the pools, and the removal of those that were made from an older image"
fly machine run "$image" --app "$app" --region "$region" --rm --detach --vm-size shared-cpu-1x --vm-memory 512 \\
  --env "STILLWAKE_IMAGE=$image" -- stillwake orchestrator --once

echo "6. A look every hour, whatever sleeps"
old="$(fly machine list --app "$app" --json | node -pe 'JSON.parse(require("fs").readFileSync(0)).find((one) => one.name === process.argv[1])?.id ?? ""' "$app-watchdog")"
if [[ -n "$old" ]]; then
  fly machine destroy "$old" --app "$app" --force
fi
fly machine run "$image" --app "$app" --name "$app-watchdog" --region "$region" --schedule hourly --restart no --detach \\
  --vm-size shared-cpu-1x --vm-memory 512 --env "STILLWAKE_IMAGE=$image" -- sh -c "stillwake watchdog && stillwake orchestrator --once"

echo "Done. See that it works:"
echo "  DATABASE_URL=… npx stillwake machines"
echo "  fly logs --app $app"
`;
}
