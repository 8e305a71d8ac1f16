# shellcheck shell=bash
# Shared by the deploy scripts of the example systems, which source it after `set -euo pipefail` and define usage().

dry=""
missing=()

# refuse <message> [exit code]
refuse() {
  echo "$(basename "$0"): $1" >&2
  exit "${2:-1}"
}

# read_flags "<names>" "$@": `--region iad` sets $region if "region" is among the names.
read_flags() {
  local names="$1"
  shift
  while (($# > 0)); do
    case "$1" in
      --dry-run) dry=1; shift ;;
      --help | -h) usage; exit 0 ;;
      *)
        [[ "$1" == --* && " $names " == *" ${1#--} "* ]] || refuse "unknown option \"$1\"; see --help" 2
        [[ -n "${2:-}" ]] || refuse "$1 needs a value; see --help" 2
        printf -v "${1#--}" '%s' "$2"
        shift 2
        ;;
    esac
  done
}

# ask <variable> <description>: reads a secret from the terminal into the variable. Without a terminal it is missing.
ask() {
  local answer=""
  if [[ -t 0 && -z "$dry" ]]; then
    read -rsp "  $1 ($2): " answer
    echo
    printf -v "$1" '%s' "$answer"
  fi
  [[ -n "$answer" ]] || missing+=("$1 ($2)")
}

# Call it before the first change: it reports all missing values at once.
refuse_if_missing() {
  ((${#missing[@]} == 0)) && return
  printf '  missing: %s\n' "${missing[@]}" >&2
  refuse "set the missing values in the environment; nothing was changed; see --help"
}
