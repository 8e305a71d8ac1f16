#!/usr/bin/env bash
# Installs optional scanners into a folder; the Dockerfile calls it. Without versions the folder stays empty, and the
# pipeline uses its built-in scanners: ast-grep, secretlint and the advisory matcher.
#
# GITLEAKS_VERSION, GITLEAKS_SHA256       such as 8.26.0, with the checksum of its linux_x64 archive from the release
# TRUFFLEHOG_VERSION, TRUFFLEHOG_SHA256   the same for linux_amd64
# PYTHON_TOOLS                            a requirements file beside this script for pip's --require-hashes: semgrep and
#                                         owasp-depscan with all their dependencies, each pinned
set -euo pipefail

into="${1:?the target folder is required}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$into/bin"

refuse() {
  echo "$1" >&2
  exit 1
}

# install_package <program> <packages>: the tools that this script needs, only if they are missing.
install_package() {
  command -v "$1" >/dev/null && return
  apt-get update
  apt-get install -y --no-install-recommends "${@:2}"
}

install_release() {
  local name="$1" version="$2" checksum="$3" url="$4" archive
  [[ -n "$version" ]] || return 0
  [[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || refuse "$name: \"$version\" is not a full version such as 1.2.3"
  [[ "$checksum" =~ ^[0-9a-f]{64}$ ]] ||
    refuse "$name $version: set its SHA-256 (64 hexadecimal digits) from the checksum list of the release"
  install_package curl curl ca-certificates
  archive="$(mktemp)"
  curl --fail --silent --show-error --location --proto '=https' --max-filesize 200000000 --output "$archive" "$url"
  echo "$checksum  $archive" | sha256sum --check --status ||
    refuse "$name $version: the checksum of $url does not match"
  tar --extract --gzip --file "$archive" --directory "$into/bin" --no-same-owner "$name"
  chmod 755 "$into/bin/$name"
  rm "$archive"
  echo "$name $version"
}

install_release gitleaks "${GITLEAKS_VERSION:-}" "${GITLEAKS_SHA256:-}" \
  "https://github.com/gitleaks/gitleaks/releases/download/v${GITLEAKS_VERSION:-}/gitleaks_${GITLEAKS_VERSION:-}_linux_x64.tar.gz"
install_release trufflehog "${TRUFFLEHOG_VERSION:-}" "${TRUFFLEHOG_SHA256:-}" \
  "https://github.com/trufflesecurity/trufflehog/releases/download/v${TRUFFLEHOG_VERSION:-}/trufflehog_${TRUFFLEHOG_VERSION:-}_linux_amd64.tar.gz"

if [[ -n "${PYTHON_TOOLS:-}" ]]; then
  [[ "$PYTHON_TOOLS" != */* && -f "$here/$PYTHON_TOOLS" ]] || refuse "PYTHON_TOOLS: no file \"$PYTHON_TOOLS\" beside scanners.sh"
  install_package /usr/share/doc/python3-venv python3-venv
  python3 -m venv "$into/python"
  "$into/python/bin/pip" install --no-cache-dir --require-hashes --only-binary :all: --requirement "$here/$PYTHON_TOOLS"
  for name in semgrep depscan; do
    if [[ -x "$into/python/bin/$name" ]]; then
      ln -s "../python/bin/$name" "$into/bin/$name"
      echo "$name"
    fi
  done
fi
