#!/usr/bin/env bash
# Builds the image of this commit, for all platforms, without a container daemon and a registry:
# image.sh [ARCH...], for amd64, arm64 and armv7. $DIST (dist) receives it as snapcache-image.tar, an
# OCI layout. The same commit gives the same bytes on any machine.
set -euo pipefail
source "$(dirname "$0")/build.sh"

[ $# -gt 0 ] || set -- amd64 arm64 armv7
programs=()
for arch in "$@"; do
	build "$arch" "$stage/$arch"
	programs+=("linux/${arch/armv7/arm/v7}=$stage/$arch")
done
mkdir -p "$DIST"
REVISION=$(git rev-parse HEAD) "$go" run -C packaging ./image "$DIST/snapcache-image.tar" "${programs[@]}"
checksums
