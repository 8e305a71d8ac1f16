#!/usr/bin/env bash
# From an image to two jobs of Cloud Run that the clock drains: accounts, secrets, jobs, and the entries of Cloud Scheduler. To run it again is safe: it makes what is
# missing, keeps what is there, and brings in another image or other times. schedulers.sh --help says what it takes.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
project=""
region="us-central1"
image=""
commits="*/5 * * * *"
users="0 */4 * * *"
dry=""

usage() {
  cat <<'TEXT'
Usage: schedulers.sh --project <id> [--image <image>] [--region us-central1] [--commits "*/5 * * * *"] [--users "0 */4 * * *"] [--dry-run]

Two jobs of Cloud Run from one image, commits.job.yaml and users.job.yaml. Each does what there is and ends; the clock starts them at these times.

--image is needed the first time, with a tag of its own: one that was built from deploy/Dockerfile and pushed. Later the jobs keep theirs without it.

Secrets come from the environment and are kept in Secret Manager. What is missing is asked for in a terminal; what is there is kept, unless it is given again.

  WORKER_DATABASE_URL        the workers' login, leaderboard_worker of login.sql
  CODE_DATABASE_URL          the pipelines' own login, leaderboard_code, with another password
  LEADERBOARD_GITHUB_TOKEN   a token of GitHub without any right, for 30 searches a minute instead of 10. The users' job alone can read it
  TIME_ZONE                  of the times: Etc/UTC

--dry-run asks Google what there is, changes nothing, and prints what would be done. Values of secrets are never printed, and never an argument of a program.
TEXT
}

refuse() {
  echo "schedulers.sh: $1" >&2
  exit "${2:-1}"
}

while (($# > 0)); do
  case "$1" in
    --project | --region | --image | --commits | --users)
      [[ -n "${2:-}" ]] || refuse "$1 needs a value; --help says more" 2
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --dry-run) dry=1; shift ;;
    --help | -h) usage; exit 0 ;;
    *) refuse "\"$1\" is not known; --help says what is" 2 ;;
  esac
done
[[ -n "$project" ]] || refuse "no project is named: --project <id>" 2
[[ "$project" =~ ^[a-z][a-z0-9-]{4,28}[a-z0-9]$ ]] || refuse "--project \"$project\": its id, of small letters, digits and -" 2
[[ "$region" =~ ^[a-z]+-[a-z]+[0-9]+$ ]] || refuse "--region \"$region\": such as us-central1" 2
if [[ -n "$image" ]]; then
  [[ "$image" =~ ^[a-z0-9][a-zA-Z0-9._/:-]*(:[a-zA-Z0-9._-]+|@sha256:[0-9a-f]{64})$ && "$image" != *:latest && "$image" == */* ]] ||
    refuse "--image \"$image\": a whole name with a tag of its own, such as $region-docker.pkg.dev/$project/leaderboard/leaderboard:v1" 2
fi
part='[0-9*][0-9*/,-]*'
for cron in "$commits" "$users"; do
  [[ "$cron" =~ ^$part\ $part\ $part\ $part\ $part$ ]] || refuse "\"$cron\" is no time: five parts, such as \"*/15 * * * *\"" 2
done

command -v gcloud >/dev/null || refuse "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
# Nobody is there to answer.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
account="$(gcloud auth list --filter status:ACTIVE --format 'value(account)' 2>/dev/null || true)"
[[ -n "$account" ]] || refuse "gcloud is not logged in: gcloud auth login"
gcloud projects describe "$project" >/dev/null 2>&1 ||
  refuse "$account does not see a project \"$project\": gcloud projects list says which there are, gcloud auth login changes who you are"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# What changes something goes through here.
change() {
  if [[ -n "$dry" ]]; then
    echo "  would run: gcloud $*"
  else
    gcloud "$@" --project "$project"
  fi
}

there() {
  gcloud "$@" --project "$project" >/dev/null 2>&1
}

make_account() {
  if there iam service-accounts describe "$1@$project.iam.gserviceaccount.com"; then
    echo "  $1 is there"
  else
    change iam service-accounts create "$1"
  fi
}

# allow <account> <what> <words of gcloud>. An account that was made a moment ago is not known everywhere at once.
allow() {
  local who="$1" what="$2" left=6
  shift 2
  until change "$@" --member "serviceAccount:$who@$project.iam.gserviceaccount.com" >"$work/told"; do
    ((--left > 0)) || refuse "$who was not given its right: what Google says is above"
    sleep "${POLL_SECONDS:-5}"
  done
  if [[ -n "$dry" ]]; then cat "$work/told"; else echo "  $who may use $what"; fi
}

missing=()

# Whether a value is there or given, before anything is made. Asked for in a terminal.
need() {
  local name="$1" from="$2" what="$3" value="${!2:-}"
  if [[ -z "$value" ]] && ! there secrets versions describe latest --secret "$name"; then
    if [[ -t 0 && -z "$dry" ]]; then
      read -rsp "  $from ($what): " value
      echo
      printf -v "$from" '%s' "$value"
    fi
    [[ -n "$value" ]] || missing+=("$from ($what)")
  fi
}

# set_secret <name> <variable> <accounts that may read it>
set_secret() {
  local name="$1" value="${!2:-}" who
  if [[ -n "$value" ]]; then
    there secrets describe "$name" || change secrets create "$name" --replication-policy automatic
    # A value that has not changed makes no new version.
    if [[ "$(gcloud secrets versions access latest --secret "$name" --project "$project" 2>/dev/null || true)" == "$value" ]]; then
      echo "  $name is the same"
    elif [[ -n "$dry" ]]; then
      echo "  would give $name a new value"
    else
      # Through a pipe: arguments can be read by everyone on this machine.
      printf '%s' "$value" | gcloud secrets versions add "$name" --data-file=- --project "$project"
    fi
  else
    echo "  $name is kept"
  fi
  for who in "${@:3}"; do
    allow "$who" "$name" secrets add-iam-policy-binding "$name" --role roles/secretmanager.secretAccessor
  done
}

# The file names neither project nor image; what Google is given does.
replace() {
  local name="leaderboard-$1"
  sed -e "s|PROJECT|$project|; s|image: IMAGE|image: $image|; /^#/d" "$here/$1.job.yaml" >"$work/$1.job.yaml"
  if [[ -n "$dry" ]]; then
    echo "  would make or change $name as $1.job.yaml says, with $image"
  else
    gcloud run jobs replace "$work/$1.job.yaml" --region "$region" --project "$project"
  fi
}

# Loads its pipeline once and makes it known to the database, from where and as whom the job runs: from then on its jobs are accepted. It does none of them.
try_once() {
  change run jobs execute "leaderboard-$1" --region "$region" --wait \
    "--args=dist/cli/index.js,register,--pipelines,pipelines/leaderboard/dist/$1/pipeline.js" ||
    refuse "leaderboard-$1 does not run, and the clock was left as it was. Why is in its log: gcloud run jobs executions list --job leaderboard-$1 --region $region --project $project"
}

# schedule <job> <cron>
schedule() {
  local act=create
  allow leaderboard-clock "$1" run jobs add-iam-policy-binding "$1" --region "$region" --role roles/run.invoker
  if there scheduler jobs describe "$1" --location "$region"; then act=update; fi
  change scheduler jobs "$act" http "$1" --location "$region" --schedule "$2" --time-zone "${TIME_ZONE:-Etc/UTC}" \
    --uri "https://run.googleapis.com/v2/projects/$project/locations/$region/jobs/$1:run" --http-method POST \
    --oauth-service-account-email "leaderboard-clock@$project.iam.gserviceaccount.com" --max-retry-attempts 0 --attempt-deadline 60s
}

if [[ -z "$image" ]]; then
  image="$(gcloud run jobs describe leaderboard-commits --region "$region" --project "$project" \
    --format 'value(spec.template.spec.template.spec.containers[0].image)' 2>/dev/null || true)"
  [[ -n "$image" ]] || missing+=("--image (there is no job yet that would have one)")
fi
need leaderboard-worker-database-url WORKER_DATABASE_URL "the login leaderboard_worker"
need leaderboard-code-database-url CODE_DATABASE_URL "the login leaderboard_code"
need leaderboard-github-token LEADERBOARD_GITHUB_TOKEN "a token of GitHub without any right"
if [[ -n "${WORKER_DATABASE_URL:-}" && "${WORKER_DATABASE_URL:-}" == "${CODE_DATABASE_URL:-}" ]]; then
  missing+=("CODE_DATABASE_URL (a login of its own: the workers' never reaches the pipelines' code)")
fi
if ((${#missing[@]} > 0)); then
  printf '  missing: %s\n' "${missing[@]}" >&2
  refuse "${#missing[@]} to be given, before anything is made; --help says what they are"
fi

echo "1. Accounts: one for each job, with no right but to read its secrets, and one for the clock"
change services enable run.googleapis.com secretmanager.googleapis.com cloudscheduler.googleapis.com iam.googleapis.com
make_account leaderboard-commits
make_account leaderboard-users
make_account leaderboard-clock

echo "2. Secrets"
set_secret leaderboard-worker-database-url WORKER_DATABASE_URL leaderboard-commits leaderboard-users
set_secret leaderboard-code-database-url CODE_DATABASE_URL leaderboard-commits leaderboard-users
set_secret leaderboard-github-token LEADERBOARD_GITHUB_TOKEN leaderboard-users

echo "3. The jobs, from $image"
replace commits
replace users

echo "4. Each once, to see that it runs"
try_once commits
try_once users

echo "5. The clock, which may start these two as they are and nothing else"
schedule leaderboard-commits "$commits"
schedule leaderboard-users "$users"

if [[ -n "$dry" ]]; then
  echo "Nothing was changed"
  exit 0
fi
echo "Done: commits at $commits, users at $users (${TIME_ZONE:-Etc/UTC})"
