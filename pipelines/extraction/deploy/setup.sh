#!/usr/bin/env bash
# From nothing to a page that extracts repositories on machines that exist only while they work. To run it again is safe: it makes what is missing, keeps what
# is there, and rolls out the code as it is now. setup.sh --help says what it takes.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
app="extraction"
org="personal"
region="iad"
warm=3
max=5
dry=""
label="v$(date -u +%Y%m%d-%H%M%S)"

usage() {
  cat <<'TEXT'
Usage: setup.sh [--app extraction] [--org personal] [--region iad] [--warm 3] [--max 5] [--dry-run]

Two apps on Fly: <app> is asked (page, API, orchestrator), <app>-workers works. The pool is <warm> stopped machines, and at most <max> at once.

Secrets come from the environment. What is missing is asked for in a terminal; what an app already has is kept, unless it is given again.

  DATABASE_URL            the API's login, extraction_server of login.sql
  WORKER_DATABASE_URL     the workers' login, extraction_worker
  CODE_DATABASE_URL       the pipeline's own login, extraction_code
  STORE                   where reports are kept, such as s3://bucket/extraction?region=us-east-1
  STORE_ACCESS_KEY_ID, STORE_SECRET_ACCESS_KEY
  API_TOKEN               what callers of the API send along; `openssl rand -base64 32` makes one
  POKE_TOKEN              for the hourly look: stillwake tokens create --name hourly --role worker. Without it there is none
  GITHUB_APP_ID, GITHUB_APP_KEY_FILE   of the GitHub App, for private repositories. Without them only public ones
  SEAL_KEYS               seals credentials in jobs; made once, unless given
  OWNER_DATABASE_URL      to bring the tables up to date with. Without it they are left as they are
  TOKEN_EXPIRY            how long the orchestrator's token is good for: 2160h, which is 90 days. NEW_TOKEN=1 makes a new one
  BUILD_ARGS              for the image, such as "GITLEAKS_VERSION=… GITLEAKS_SHA256=…"; see scanners.sh
  WAIT_SECONDS            how long to wait for the pool: 300

--dry-run asks Fly what there is, changes nothing, and prints what would be done. Values of secrets are never printed, and never an argument of a program.
TEXT
}

refuse() {
  echo "setup.sh: $1" >&2
  exit "${2:-1}"
}

while (($# > 0)); do
  case "$1" in
    --app | --org | --region | --warm | --max)
      [[ -n "${2:-}" ]] || refuse "$1 needs a value; --help says more" 2
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --dry-run) dry=1; shift ;;
    --help | -h) usage; exit 0 ;;
    *) refuse "\"$1\" is not known; --help says what is" 2 ;;
  esac
done
[[ "$app" =~ ^[a-z][a-z0-9-]{1,40}[a-z0-9]$ ]] || refuse "--app \"$app\": use small letters, digits and -, from 3 to 42" 2
[[ "$region" =~ ^[a-z]{3}$ ]] || refuse "--region \"$region\": three letters, such as iad" 2
[[ "$warm" =~ ^[0-9]{1,3}$ && "$max" =~ ^[1-9][0-9]{0,2}$ ]] || refuse "--warm and --max are numbers" 2
((warm <= max)) || refuse "--warm $warm is more than --max $max" 2
workers="$app-workers"
image="registry.fly.io/$workers:$label"

fly="$(command -v fly || command -v flyctl || true)"
[[ -n "$fly" ]] || refuse "flyctl is not installed: https://fly.io/docs/flyctl/install"
"$fly" auth whoami >/dev/null 2>&1 || refuse "flyctl is not logged in: fly auth login, or set FLY_API_TOKEN"
command -v openssl >/dev/null || refuse "openssl is not installed: secrets are made with it"

# What changes something goes through here.
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

make_app() {
  if has_app "$1"; then echo "  $1 is there"; else change apps create "$1" --org "$org"; fi
}

# The names of an app's secrets, read once. An app that is still to be made has none; an answer that does not come is not the same as none.
names_of() {
  if has_app "$1"; then "$fly" secrets list --app "$1" --json || refuse "the secrets of $1 could not be listed"; fi
}

given_app=""
given_workers=""
missing=()

# Which value an app gets under a name: from the environment, or kept, or asked for. The last word says what it is, and is empty for one that can be done without.
secret() {
  local of="$1" name="$2" from="$3" needed="$4" value="${!3:-}" known="$there_app"
  if [[ "$of" == "$workers" ]]; then known="$there_workers"; fi
  if [[ -z "$value" && "$known" != *"\"$name\""* && -n "$needed" ]]; then
    if [[ -t 0 && -z "$dry" ]]; then
      read -rsp "  $from ($needed): " value
      echo
      # Both apps may want it: it is asked for once.
      printf -v "$from" '%s' "$value"
    fi
    [[ -n "$value" ]] || missing+=("$from ($needed)")
  fi
  add "$of" "$name" "$value"
}

add() {
  [[ "$3" != *$'\n'* ]] || refuse "$2 has more than one line"
  [[ -n "$3" ]] || return 0
  if [[ "$1" == "$workers" ]]; then given_workers+="$2=$3"$'\n'; else given_app+="$2=$3"$'\n'; fi
}

# Through a pipe: arguments can be read by everyone on this machine.
import_secrets() {
  if [[ -z "$2" ]]; then
    echo "  $1: all kept"
    return
  fi
  echo "  $1: $(printf '%s' "$2" | cut -d= -f1 | paste -sd ' ' -)"
  if [[ -z "$dry" ]]; then printf '%s' "$2" | "$fly" secrets import --app "$1" --stage; fi
}

echo "1. Two apps: $app is asked, $workers works"
there_app="$(names_of "$app")"
there_workers="$(names_of "$workers")"

if [[ -n "${GITHUB_APP_KEY_FILE:-}" ]]; then
  [[ -r "$GITHUB_APP_KEY_FILE" ]] || refuse "GITHUB_APP_KEY_FILE: \"$GITHUB_APP_KEY_FILE\" cannot be read"
  # On one line, as secrets have to be; the worker takes it so.
  github_app_key="$(base64 <"$GITHUB_APP_KEY_FILE" | tr -d '\n')"
fi
if [[ -n "${github_app_key:-}" && -z "${GITHUB_APP_ID:-}" && "$there_workers" != *'"EXTRACTION_GITHUB_APP_ID"'* ]]; then
  missing+=("GITHUB_APP_ID (the key alone is of no use)")
fi
secret "$app" STILLWAKE_DATABASE_URL DATABASE_URL "the login extraction_server"
secret "$workers" STILLWAKE_DATABASE_URL WORKER_DATABASE_URL "the login extraction_worker"
secret "$workers" EXTRACTION_DATABASE_URL CODE_DATABASE_URL "the login extraction_code"
for of in "$app" "$workers"; do
  secret "$of" STILLWAKE_STORE STORE "where reports are kept"
  secret "$of" STILLWAKE_STORE_ACCESS_KEY_ID STORE_ACCESS_KEY_ID "of the store"
  secret "$of" STILLWAKE_STORE_SECRET_ACCESS_KEY STORE_SECRET_ACCESS_KEY "of the store"
done
secret "$app" EXTRACTION_API_TOKEN API_TOKEN "what callers of the API send along"
secret "$app" STILLWAKE_TOKEN POKE_TOKEN ""
secret "$workers" EXTRACTION_GITHUB_APP_ID GITHUB_APP_ID ""
secret "$workers" EXTRACTION_GITHUB_APP_KEY github_app_key ""
# The same for both, and it cannot be read back: where one has it and the other has not, a new one would leave jobs that nobody can open.
if [[ -z "${SEAL_KEYS:-}" ]]; then
  case "$there_app$there_workers" in
    *'"STILLWAKE_SEAL_KEYS"'*'"STILLWAKE_SEAL_KEYS"'*) ;;
    *'"STILLWAKE_SEAL_KEYS"'*) missing+=("SEAL_KEYS (one of the apps has it, and both need the same)") ;;
    *) SEAL_KEYS="k1:$(openssl rand -base64 32)" ;;
  esac
fi
secret "$app" STILLWAKE_SEAL_KEYS SEAL_KEYS ""
secret "$workers" STILLWAKE_SEAL_KEYS SEAL_KEYS ""
[[ "$there_app" == *'"STILLWAKE_SECRET"'* ]] || add "$app" STILLWAKE_SECRET "$(openssl rand -base64 32)"

if [[ -n "${API_TOKEN:-}" ]] && ((${#API_TOKEN} < 20)); then missing+=("API_TOKEN (20 characters at least)"); fi
if ((${#missing[@]} > 0)); then
  printf '  missing: %s\n' "${missing[@]}" >&2
  refuse "${#missing[@]} to be set in the environment, before anything is made; --help says what they are"
fi
make_app "$app"
make_app "$workers"

echo "2. Secrets: each app has its own"
# The token can do anything to the workers' app and nothing to any other. It is kept in the app that is asked, and nowhere else.
if [[ "${NEW_TOKEN:-}" == 1 || "$there_app" != *'"FLY_API_TOKEN"'* ]]; then
  if [[ -n "$dry" ]]; then
    echo "  would make a token for $workers"
  else
    token="$("$fly" tokens create deploy --app "$workers" --name stillwake-orchestrator --expiry "${TOKEN_EXPIRY:-2160h}")"
    add "$app" FLY_API_TOKEN "$token"
    unset token
    echo "  a new token for $workers; list and revoke old ones: fly tokens list --app $workers"
  fi
fi
import_secrets "$app" "$given_app"
import_secrets "$workers" "$given_workers"

echo "3. The tables"
if [[ -z "${OWNER_DATABASE_URL:-}" ]]; then
  echo "  left as they are: OWNER_DATABASE_URL is not set"
elif [[ -n "$dry" ]]; then
  echo "  would bring them up to date"
else
  (
    cd "$root"
    npm run build
    export STILLWAKE_DATABASE_URL="$OWNER_DATABASE_URL"
    node dist/cli/index.js migrate
    node pipelines/extraction/dist/server.js --migrate
  )
fi

echo "4. One image for both: $image"
build_args=()
for word in ${BUILD_ARGS:-}; do build_args+=(--build-arg "$word"); done
change deploy "$root" --config "$here/fly.toml" --app "$workers" --dockerfile "$here/Dockerfile" --ignorefile "$here/Dockerfile.dockerignore" \
  ${build_args[@]+"${build_args[@]}"} --build-only --push --image-label "$label"
# From the repository of the workers' app, whose token is to start machines with it. The orchestrator is told the image in the same words: machines of another
# one count as old, and are replaced while they are stopped.
change deploy "$root" --config "$here/fly.api.toml" --app "$app" --primary-region "$region" --image "$image" --ha=false --yes \
  --env "EXTRACTION_FLY_IMAGE=$image" --env "EXTRACTION_FLY_APP=$workers" --env "EXTRACTION_FLY_REGION=$region" \
  --env "EXTRACTION_WARM_MACHINES=$warm" --env "EXTRACTION_MAX_MACHINES=$max"

echo "5. The pool: $warm stopped machines"
# The orchestrator makes them, because only machines that it has named are its own. Each runs for a moment, finds nothing to do, and stops by itself.
stopped() {
  "$fly" machine list --app "$workers" --json | node -e '
    const machines = JSON.parse(require("fs").readFileSync(0, "utf8") || "[]");
    const ours = machines.filter(({ name }) => /^sw-[a-z0-9]+-scan-/.test(name));
    console.log(ours.filter(({ state, image_ref }) => state === "stopped" && (!image_ref?.tag || image_ref.tag === process.argv[1])).length);
  ' "$label"
}
if [[ -n "$dry" ]]; then
  echo "  would wait until the orchestrator of $app has made them"
else
  until=$((SECONDS + ${WAIT_SECONDS:-300}))
  while count="$(stopped)" && ((count < warm)); do
    if ((SECONDS >= until)); then
      refuse "$count of $warm machines are there after ${WAIT_SECONDS:-300} s. Why is in the log of the orchestrator: fly logs --app $app"
    fi
    sleep "${POLL_SECONDS:-5}"
  done
  echo "  $count are there, stopped"
fi

echo "6. A look every hour, whatever sleeps"
if [[ -z "${POKE_TOKEN:-}" && "$there_app" != *'"STILLWAKE_TOKEN"'* ]]; then
  echo "  none: POKE_TOKEN is not set. A retry, or a start that failed, then waits for the next request"
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
