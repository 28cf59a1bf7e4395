#!/usr/bin/env bash
# Signs what dist.sh and image.sh made: sign.sh KEY. KEY is the file of an SSH key, or of the public half
# of one that ssh-agent or a hardware token holds. The signature is of SHA256SUMS, which has to be right:
# $DIST/SHA256SUMS.sig.
set -euo pipefail
[ $# -eq 1 ] && [ -f "$1" ] || { echo "usage: sign.sh KEY, or make sign KEY=FILE, with the file of an SSH key" >&2 && exit 2; }
key=$(realpath "$1")
cd "$(dirname "$0")/.."
cd "${DIST:-dist}"
sha256sum --check --quiet SHA256SUMS
rm -f SHA256SUMS.sig
ssh-keygen -Y sign -f "$key" -n snapcache-release SHA256SUMS
