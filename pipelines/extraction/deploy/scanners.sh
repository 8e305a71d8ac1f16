#!/usr/bin/env bash
# Puts the scanners that the build was given versions of into a folder; called by the Dockerfile. Without versions the folder is empty, and the pipeline
# uses what it has of its own: ast-grep, secretlint and the advisory matcher.
#
# GITLEAKS_VERSION, GITLEAKS_SHA256       such as 8.26.0, with the checksum of its linux_x64 archive, as the release's own list of checksums has it
# TRUFFLEHOG_VERSION, TRUFFLEHOG_SHA256   the same for linux_amd64
# PYTHON_TOOLS                            a file beside this one for pip's --require-hashes: semgrep and owasp-depscan with all they need, each pinned
set -euo pipefail

into="${1:?the folder to put them into}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$into/bin"

refuse() {
  echo "$1" >&2
  exit 1
}

# What this needs itself, once, and only if anything is wanted.
prepare() {
  command -v "$1" >/dev/null && return
  apt-get update
  apt-get install -y --no-install-recommends "${@:2}"
}

release() {
  local name="$1" version="$2" checksum="$3" url="$4" archive
  [[ -n "$version" ]] || return 0
  [[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "$name: \"$version\" is no whole version, such as 1.2.3"
  [[ "$checksum" =~ ^[0-9a-f]{64}$ ]] || refuse "$name $version: give its SHA-256, 64 hexadecimal digits, from the list of checksums of the release"
  prepare curl curl ca-certificates
  archive="$(mktemp)"
  curl --fail --silent --show-error --location --proto '=https' --max-filesize 200000000 --output "$archive" "$url"
  echo "$checksum  $archive" | sha256sum --check --status || refuse "$name $version: what $url gave has another checksum, and is not used"
  tar --extract --gzip --file "$archive" --directory "$into/bin" --no-same-owner "$name"
  chmod 755 "$into/bin/$name"
  rm "$archive"
  echo "$name $version"
}

release gitleaks "${GITLEAKS_VERSION:-}" "${GITLEAKS_SHA256:-}" \
  "https://github.com/gitleaks/gitleaks/releases/download/v${GITLEAKS_VERSION:-}/gitleaks_${GITLEAKS_VERSION:-}_linux_x64.tar.gz"
release trufflehog "${TRUFFLEHOG_VERSION:-}" "${TRUFFLEHOG_SHA256:-}" \
  "https://github.com/trufflesecurity/trufflehog/releases/download/v${TRUFFLEHOG_VERSION:-}/trufflehog_${TRUFFLEHOG_VERSION:-}_linux_amd64.tar.gz"

if [[ -n "${PYTHON_TOOLS:-}" ]]; then
  [[ "$PYTHON_TOOLS" != */* && -f "$here/$PYTHON_TOOLS" ]] || refuse "PYTHON_TOOLS: there is no file \"$PYTHON_TOOLS\" beside scanners.sh"
  prepare /usr/share/doc/python3-venv python3-venv
  python3 -m venv "$into/python"
  "$into/python/bin/pip" install --no-cache-dir --require-hashes --only-binary :all: --requirement "$here/$PYTHON_TOOLS"
  for name in semgrep depscan; do
    if [[ -x "$into/python/bin/$name" ]]; then
      ln -s "../python/bin/$name" "$into/bin/$name"
      echo "$name"
    fi
  done
fi
