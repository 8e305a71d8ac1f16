#!/usr/bin/env bash
# Creates the leaderboard's two Cloud Run jobs with their service accounts and secrets, and their Cloud Scheduler entries.
# Running it again is safe: it creates what is missing, keeps what exists, and applies a new image or new times.
# See schedulers.sh --help.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=../../kit/deploy/prologue.sh
source "$here/../../kit/deploy/prologue.sh"
project=""
region="us-central1"
image=""
commits="*/5 * * * *"
users="0 */4 * * *"

usage() {
  cat <<'TEXT'
Usage: schedulers.sh --project <id> [--image <image>] [--region us-central1] [--commits "*/5 * * * *"] [--users "0 */4 * * *"] [--dry-run]

Creates two Cloud Run jobs from one image, commits.job.yaml and users.job.yaml. Each drains its pool and exits.
Cloud Scheduler starts them at the given times.

--image is required the first time: an image built from pipelines/Dockerfile and pushed, with a unique tag. Later runs
keep the current image without it.

Secrets come from the environment and are stored in Secret Manager. In a terminal the script asks for missing ones.
Stored secrets are kept unless you set them again.

  WORKER_DATABASE_URL        login leaderboard_worker of login.sql, for the workers
  CODE_DATABASE_URL          login leaderboard_code, for the pipeline code; it must be another login
  LEADERBOARD_GITHUB_TOKEN   GitHub token without any permission: 30 searches a minute instead of 10. Only the users job
                             can read it
  TIME_ZONE                  time zone of the schedules: Etc/UTC

--dry-run queries Google Cloud, changes nothing, and prints what would be done. Secret values are never printed and never
passed as arguments of a program.
TEXT
}

read_flags "project region image commits users" "$@"
[[ -n "$project" ]] || refuse "--project <id> is required" 2
[[ "$project" =~ ^[a-z][a-z0-9-]{4,28}[a-z0-9]$ ]] || refuse "--project \"$project\": use the project id (lowercase letters, digits and hyphens)" 2
[[ "$region" =~ ^[a-z]+-[a-z]+[0-9]+$ ]] || refuse "--region \"$region\": use a region such as us-central1" 2
if [[ -n "$image" ]]; then
  [[ "$image" =~ ^[a-z0-9][a-zA-Z0-9._/:-]*(:[a-zA-Z0-9._-]+|@sha256:[0-9a-f]{64})$ && "$image" != *:latest && "$image" == */* ]] ||
    refuse "--image \"$image\": use a full name with a unique tag, such as $region-docker.pkg.dev/$project/leaderboard/leaderboard:v1" 2
fi
field='[0-9*][0-9*/,-]*'
for cron in "$commits" "$users"; do
  [[ "$cron" =~ ^$field\ $field\ $field\ $field\ $field$ ]] || refuse "\"$cron\" is not a schedule; use five cron fields, such as \"*/15 * * * *\"" 2
done

command -v gcloud >/dev/null || refuse "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
account="$(gcloud auth list --filter status:ACTIVE --format 'value(account)' 2>/dev/null || true)"
[[ -n "$account" ]] || refuse "gcloud is not logged in: gcloud auth login"
gcloud projects describe "$project" >/dev/null 2>&1 ||
  refuse "$account has no access to the project \"$project\": see gcloud projects list, or change the account with gcloud auth login"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Every change goes through this function, so that --dry-run prints it instead.
change() {
  if [[ -n "$dry" ]]; then
    echo "  would run: gcloud $*"
  else
    gcloud "$@" --project "$project"
  fi
}

exists() {
  gcloud "$@" --project "$project" >/dev/null 2>&1
}

create_account() {
  if exists iam service-accounts describe "$1@$project.iam.gserviceaccount.com"; then
    echo "  $1 exists"
  else
    change iam service-accounts create "$1"
  fi
}

# allow <account> <resource> <gcloud arguments>. Retries, because Google needs some seconds to know a new account.
allow() {
  local account="$1" resource="$2" attempts=6
  shift 2
  until change "$@" --member "serviceAccount:$account@$project.iam.gserviceaccount.com" >"$work/output"; do
    ((--attempts > 0)) || refuse "cannot grant $account access to $resource; Google's message is above"
    sleep "${POLL_SECONDS:-5}"
  done
  if [[ -n "$dry" ]]; then cat "$work/output"; else echo "  $account may use $resource"; fi
}

# need <secret> <variable> <description>: asks for a value that is neither in the environment nor in Secret Manager.
need() {
  if [[ -z "${!2:-}" ]] && ! exists secrets versions describe latest --secret "$1"; then ask "$2" "$3"; fi
}

# set_secret <name> <variable> <accounts that may read it>
set_secret() {
  local name="$1" value="${!2:-}" account
  if [[ -n "$value" ]]; then
    exists secrets describe "$name" || change secrets create "$name" --replication-policy automatic
    # An unchanged value creates no new version.
    if [[ "$(gcloud secrets versions access latest --secret "$name" --project "$project" 2>/dev/null || true)" == "$value" ]]; then
      echo "  $name is unchanged"
    elif [[ -n "$dry" ]]; then
      echo "  would set $name to a new value"
    else
      # Through a pipe: every user of this machine can read arguments.
      printf '%s' "$value" | gcloud secrets versions add "$name" --data-file=- --project "$project"
    fi
  else
    echo "  $name is kept"
  fi
  for account in "${@:3}"; do
    allow "$account" "$name" secrets add-iam-policy-binding "$name" --role roles/secretmanager.secretAccessor
  done
}

# Fills in the placeholders PROJECT and IMAGE of the job file.
replace() {
  local name="leaderboard-$1"
  sed -e "s|PROJECT|$project|; s|image: IMAGE|image: $image|; /^#/d" "$here/$1.job.yaml" >"$work/$1.job.yaml"
  if [[ -n "$dry" ]]; then
    echo "  would create or update $name from $1.job.yaml with $image"
  else
    gcloud run jobs replace "$work/$1.job.yaml" --region "$region" --project "$project"
  fi
}

# Runs `stillwake register` in the job's own image and with its own account: it loads the pipeline and registers it in the
# database, which accepts its jobs from then on. It runs no job.
register() {
  change run jobs execute "leaderboard-$1" --region "$region" --wait \
    "--args=dist/cli/index.js,register,--pipelines,pipelines/leaderboard/dist/$1/pipeline.js" ||
    refuse "leaderboard-$1 fails to start; the schedules were not changed. See its log: gcloud run jobs executions list --job leaderboard-$1 --region $region --project $project"
}

# schedule <job> <cron>
schedule() {
  local action=create
  allow leaderboard-clock "$1" run jobs add-iam-policy-binding "$1" --region "$region" --role roles/run.invoker
  if exists scheduler jobs describe "$1" --location "$region"; then action=update; fi
  change scheduler jobs "$action" http "$1" --location "$region" --schedule "$2" --time-zone "${TIME_ZONE:-Etc/UTC}" \
    --uri "https://run.googleapis.com/v2/projects/$project/locations/$region/jobs/$1:run" --http-method POST \
    --oauth-service-account-email "leaderboard-clock@$project.iam.gserviceaccount.com" --max-retry-attempts 0 --attempt-deadline 60s
}

if [[ -z "$image" ]]; then
  image="$(gcloud run jobs describe leaderboard-commits --region "$region" --project "$project" \
    --format 'value(spec.template.spec.template.spec.containers[0].image)' 2>/dev/null || true)"
  [[ -n "$image" ]] || missing+=("--image (required until the jobs exist)")
fi
need leaderboard-worker-database-url WORKER_DATABASE_URL "the login leaderboard_worker"
need leaderboard-code-database-url CODE_DATABASE_URL "the login leaderboard_code"
need leaderboard-github-token LEADERBOARD_GITHUB_TOKEN "a GitHub token without any permission"
if [[ -n "${WORKER_DATABASE_URL:-}" && "${WORKER_DATABASE_URL:-}" == "${CODE_DATABASE_URL:-}" ]]; then
  missing+=("CODE_DATABASE_URL (must differ from WORKER_DATABASE_URL: pipeline code never gets the workers' login)")
fi
refuse_if_missing

echo "1. Service accounts: one per job, which can only read its secrets, and one for Cloud Scheduler"
change services enable run.googleapis.com secretmanager.googleapis.com cloudscheduler.googleapis.com iam.googleapis.com
create_account leaderboard-commits
create_account leaderboard-users
create_account leaderboard-clock

echo "2. Secrets"
set_secret leaderboard-worker-database-url WORKER_DATABASE_URL leaderboard-commits leaderboard-users
set_secret leaderboard-code-database-url CODE_DATABASE_URL leaderboard-commits leaderboard-users
set_secret leaderboard-github-token LEADERBOARD_GITHUB_TOKEN leaderboard-users

echo "3. Jobs, from $image"
replace commits
replace users

echo "4. Registration of each pipeline, which also verifies that the job starts"
register commits
register users

echo "5. Schedules; their account can start these two jobs and nothing else"
schedule leaderboard-commits "$commits"
schedule leaderboard-users "$users"

if [[ -n "$dry" ]]; then
  echo "Nothing was changed"
  exit 0
fi
echo "Done: commits at $commits, users at $users (${TIME_ZONE:-Etc/UTC})"
