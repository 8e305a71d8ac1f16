#!/usr/bin/env bash
# Deploys the extraction to Fly: two apps, their secrets, one image, a pool of stopped machines. Running it again is safe:
# it creates what is missing, keeps what exists, and rolls out the current code. See setup.sh --help.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
# shellcheck source=../../kit/deploy/prologue.sh
source "$root/pipelines/kit/deploy/prologue.sh"
app="extraction"
org="personal"
region="iad"
warm=3
max=5
label="v$(date -u +%Y%m%d-%H%M%S)"

usage() {
  cat <<'TEXT'
Usage: setup.sh [--app extraction] [--org personal] [--region iad] [--warm 3] [--max 5] [--dry-run]

Creates two Fly apps: <app> serves the page, the API and the orchestrator; <app>-workers runs the workers.
The pool has <warm> stopped machines and at most <max> machines in all.

Secrets come from the environment. In a terminal the script asks for missing ones. An app keeps the secrets it has
unless you set them again.

  DATABASE_URL            login extraction_server of login.sql, for the API
  WORKER_DATABASE_URL     login extraction_worker, for the workers
  CODE_DATABASE_URL       login extraction_code, for the pipeline code
  STORE                   where reports are stored, such as s3://bucket/extraction?region=us-east-1
  STORE_ACCESS_KEY_ID, STORE_SECRET_ACCESS_KEY   credentials of the store
  API_TOKEN               token that API clients send; create one with `openssl rand -base64 32`
  POKE_TOKEN              token of the hourly check: stillwake tokens create --name hourly --role worker. Without it
                          there is no hourly check
  GITHUB_APP_ID, GITHUB_APP_KEY_FILE   GitHub App for private repositories. Without them only public ones work
  SEAL_KEYS               keys that seal credentials in jobs. Generated once unless set
  OWNER_DATABASE_URL      login of the database's owner, to migrate the tables. Without it they are not migrated
  TOKEN_EXPIRY            lifetime of the orchestrator's Fly token: 2160h (90 days). NEW_TOKEN=1 creates a new token
  BUILD_ARGS              build arguments of the image, such as "GITLEAKS_VERSION=… GITLEAKS_SHA256=…"; see scanners.sh
  WAIT_SECONDS            how long to wait for the pool: 300

--dry-run queries Fly, changes nothing, and prints what would be done. Secret values are never printed and never passed
as arguments of a program.
TEXT
}

read_flags "app org region warm max" "$@"
[[ "$app" =~ ^[a-z][a-z0-9-]{1,40}[a-z0-9]$ ]] ||
  refuse "--app \"$app\": use 3 to 42 lowercase letters, digits and hyphens, starting with a letter" 2
[[ "$region" =~ ^[a-z]{3}$ ]] || refuse "--region \"$region\": use three letters, such as iad" 2
[[ "$warm" =~ ^[0-9]{1,3}$ && "$max" =~ ^[1-9][0-9]{0,2}$ ]] || refuse "--warm and --max must be numbers" 2
((warm <= max)) || refuse "--warm $warm is more than --max $max" 2
workers="$app-workers"
image="registry.fly.io/$workers:$label"

fly="$(command -v fly || command -v flyctl || true)"
[[ -n "$fly" ]] || refuse "flyctl is not installed: https://fly.io/docs/flyctl/install"
"$fly" auth whoami >/dev/null 2>&1 || refuse "flyctl is not logged in: fly auth login, or set FLY_API_TOKEN"
command -v openssl >/dev/null || refuse "openssl is not installed; it generates the secrets"

# Every change goes through this function, so that --dry-run prints it instead.
change() {
  if [[ -n "$dry" ]]; then
    echo "  would run: fly $*"
  else
    "$fly" "$@"
  fi
}

has_app() {
  "$fly" status --app "$1" >/dev/null 2>&1
}

create_app() {
  if has_app "$1"; then echo "  $1 exists"; else change apps create "$1" --org "$org"; fi
}

# Lists the names of an app's secrets. A missing app has none; a failed request is an error, not an empty list.
secret_names() {
  if has_app "$1"; then "$fly" secrets list --app "$1" --json || refuse "cannot list the secrets of $1"; fi
}

new_app=""
new_workers=""

# secret <app> <secret> <variable> <description>: takes the value from the environment, keeps the app's, or asks for it.
# An empty description marks an optional secret.
secret() {
  local names="$names_app"
  if [[ "$1" == "$workers" ]]; then names="$names_workers"; fi
  # `ask` sets the variable, so a secret that both apps need is asked for once.
  if [[ -z "${!3:-}" && "$names" != *"\"$2\""* && -n "$4" ]]; then ask "$3" "$4"; fi
  add "$1" "$2" "${!3:-}"
}

add() {
  [[ "$3" != *$'\n'* ]] || refuse "$2 must be a single line"
  [[ -n "$3" ]] || return 0
  if [[ "$1" == "$workers" ]]; then new_workers+="$2=$3"$'\n'; else new_app+="$2=$3"$'\n'; fi
}

# Through a pipe: every user of this machine can read arguments.
import_secrets() {
  if [[ -z "$2" ]]; then
    echo "  $1: no changes"
    return
  fi
  echo "  $1: $(printf '%s' "$2" | cut -d= -f1 | paste -sd ' ' -)"
  if [[ -z "$dry" ]]; then printf '%s' "$2" | "$fly" secrets import --app "$1" --stage; fi
}

echo "1. Apps: $app (page, API, orchestrator) and $workers (workers)"
names_app="$(secret_names "$app")"
names_workers="$(secret_names "$workers")"

if [[ -n "${GITHUB_APP_KEY_FILE:-}" ]]; then
  [[ -r "$GITHUB_APP_KEY_FILE" ]] || refuse "GITHUB_APP_KEY_FILE: cannot read \"$GITHUB_APP_KEY_FILE\""
  # Secrets must be a single line; the worker accepts base64.
  github_app_key="$(base64 <"$GITHUB_APP_KEY_FILE" | tr -d '\n')"
fi
if [[ -n "${github_app_key:-}" && -z "${GITHUB_APP_ID:-}" && "$names_workers" != *'"EXTRACTION_GITHUB_APP_ID"'* ]]; then
  missing+=("GITHUB_APP_ID (the key needs it)")
fi
secret "$app" STILLWAKE_DATABASE_URL DATABASE_URL "the login extraction_server"
secret "$workers" STILLWAKE_DATABASE_URL WORKER_DATABASE_URL "the login extraction_worker"
secret "$workers" EXTRACTION_DATABASE_URL CODE_DATABASE_URL "the login extraction_code"
for of in "$app" "$workers"; do
  secret "$of" STILLWAKE_STORE STORE "where reports are stored"
  secret "$of" STILLWAKE_STORE_ACCESS_KEY_ID STORE_ACCESS_KEY_ID "credential of the store"
  secret "$of" STILLWAKE_STORE_SECRET_ACCESS_KEY STORE_SECRET_ACCESS_KEY "credential of the store"
done
secret "$app" EXTRACTION_API_TOKEN API_TOKEN "token that API clients send"
secret "$app" STILLWAKE_TOKEN POKE_TOKEN ""
secret "$workers" EXTRACTION_GITHUB_APP_ID GITHUB_APP_ID ""
secret "$workers" EXTRACTION_GITHUB_APP_KEY github_app_key ""
# Both apps need the same keys, and they cannot be read back. If only one app has them, a new key would leave sealed jobs
# that no worker can open.
if [[ -z "${SEAL_KEYS:-}" ]]; then
  case "$names_app$names_workers" in
    *'"STILLWAKE_SEAL_KEYS"'*'"STILLWAKE_SEAL_KEYS"'*) ;;
    *'"STILLWAKE_SEAL_KEYS"'*) missing+=("SEAL_KEYS (only one of the apps has it, and both need the same)") ;;
    *) SEAL_KEYS="k1:$(openssl rand -base64 32)" ;;
  esac
fi
secret "$app" STILLWAKE_SEAL_KEYS SEAL_KEYS ""
secret "$workers" STILLWAKE_SEAL_KEYS SEAL_KEYS ""
[[ "$names_app" == *'"STILLWAKE_SECRET"'* ]] || add "$app" STILLWAKE_SECRET "$(openssl rand -base64 32)"

if [[ -n "${API_TOKEN:-}" ]] && ((${#API_TOKEN} < 20)); then missing+=("API_TOKEN (at least 20 characters)"); fi
refuse_if_missing
create_app "$app"
create_app "$workers"

echo "2. Secrets"
# The token has full access to the workers' app and to no other app. It is stored only in the API's app.
if [[ "${NEW_TOKEN:-}" == 1 || "$names_app" != *'"FLY_API_TOKEN"'* ]]; then
  if [[ -n "$dry" ]]; then
    echo "  would create a token for $workers"
  else
    token="$("$fly" tokens create deploy --app "$workers" --name stillwake-orchestrator --expiry "${TOKEN_EXPIRY:-2160h}")"
    add "$app" FLY_API_TOKEN "$token"
    unset token
    echo "  created the orchestrator's token; list and revoke old ones with: fly tokens list --app $workers"
  fi
fi
import_secrets "$app" "$new_app"
import_secrets "$workers" "$new_workers"

echo "3. Tables"
if [[ -z "${OWNER_DATABASE_URL:-}" ]]; then
  echo "  not migrated: OWNER_DATABASE_URL is not set"
elif [[ -n "$dry" ]]; then
  echo "  would migrate them"
else
  (
    cd "$root"
    npm run build
    export STILLWAKE_DATABASE_URL="$OWNER_DATABASE_URL"
    node dist/cli/index.js migrate
    node pipelines/extraction/dist/server.js --migrate
  )
fi

echo "4. Image for both apps: $image"
build_args=()
for arg in ${BUILD_ARGS:-}; do build_args+=(--build-arg "$arg"); done
change deploy "$root" --config "$here/fly.toml" --app "$workers" --dockerfile "$root/pipelines/Dockerfile" \
  --ignorefile "$root/pipelines/Dockerfile.dockerignore" --build-target extraction \
  ${build_args[@]+"${build_args[@]}"} --build-only --push --image-label "$label"
# The image is in the registry of the workers' app, because the orchestrator's token has access only to that app. The
# orchestrator replaces stopped machines whose image differs from EXTRACTION_FLY_IMAGE.
change deploy "$root" --config "$here/fly.api.toml" --app "$app" --primary-region "$region" --image "$image" --ha=false --yes \
  --env "EXTRACTION_FLY_IMAGE=$image" --env "EXTRACTION_FLY_APP=$workers" --env "EXTRACTION_FLY_REGION=$region" \
  --env "EXTRACTION_WARM_MACHINES=$warm" --env "EXTRACTION_MAX_MACHINES=$max"

echo "5. Pool of $warm stopped machines"
# The orchestrator creates them, because it manages only machines that it has named. Each starts, finds no job, and stops.
stopped() {
  "$fly" machine list --app "$workers" --json | node -e '
    const machines = JSON.parse(require("fs").readFileSync(0, "utf8") || "[]");
    const ours = machines.filter(({ name }) => /^sw-[a-z0-9]+-scan-/.test(name));
    console.log(ours.filter(({ state, image_ref }) => state === "stopped" && (!image_ref?.tag || image_ref.tag === process.argv[1])).length);
  ' "$label"
}
if [[ -n "$dry" ]]; then
  echo "  would wait until the orchestrator of $app has created them"
else
  until=$((SECONDS + ${WAIT_SECONDS:-300}))
  while count="$(stopped)" && ((count < warm)); do
    if ((SECONDS >= until)); then
      refuse "the pool has $count of $warm machines after ${WAIT_SECONDS:-300} s; see the log of the orchestrator: fly logs --app $app"
    fi
    sleep "${POLL_SECONDS:-5}"
  done
  echo "  $count stopped machines are ready"
fi

echo "6. Hourly check for retries and failed starts while the API is stopped"
if [[ -z "${POKE_TOKEN:-}" && "$names_app" != *'"STILLWAKE_TOKEN"'* ]]; then
  echo "  none: POKE_TOKEN is not set. A retry or a failed start waits for the next request"
else
  old=""
  if has_app "$app"; then
    old="$("$fly" machine list --app "$app" --json | node -e '
      const machines = JSON.parse(require("fs").readFileSync(0, "utf8") || "[]");
      console.log(machines.find(({ name }) => name === process.argv[1])?.id ?? "");
    ' "$app-hourly")"
  fi
  [[ -z "$old" ]] || change machine destroy "$old" --app "$app" --force
  change machine run "$image" --app "$app" --name "$app-hourly" --region "$region" --schedule hourly --restart no --detach \
    --vm-size shared-cpu-1x --vm-memory 512 --env "STILLWAKE_POKE_URL=https://$app.fly.dev/stillwake/v1/poke" -- dist/cli/index.js watchdog
fi

echo "Done: https://$app.fly.dev"
