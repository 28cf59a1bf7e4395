#!/usr/bin/env bash
# Builds the packages of this commit: dist.sh [ARCH...], for amd64, arm64 and armv7. $DIST (dist)
# receives them, the bare programs, SBOMs and checksums. The same commit gives the same bytes on any
# machine.
set -euo pipefail
source "$(dirname "$0")/build.sh"

# tool prints the path of a program that packaging/go.mod names.
tool() { "$go" tool -C packaging -n "$1"; }

# package_version turns v1.2.3-rc.1 into 1.2.3~rc.1, which packages sort before 1.2.3, and
# v1.2.3-4-gabc into 1.2.3+4.gabc, which they sort after it. Without a tag it is the commit's time.
package_version() {
	case $VERSION in
	v[0-9]*) sed -E 's/^v//; s/-dirty$/+dirty/; s/-([0-9]+)-g([0-9a-f]+)/+\1.g\2/; s/-/~/g' <<<"$VERSION" ;;
	*) echo "0.0.0+$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).${VERSION//-/.}" ;;
	esac
}

# notices prints the notices of the modules in the program, as their licences require.
notices() {
	local path version dir notice
	echo "The modules that are in snapcache, each with the notices of its authors. Go's standard library,"
	echo "which is in it too, is under https://go.dev/LICENSE."
	"$go" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/snapcache | sort -u |
		while read -r path version dir; do
			for notice in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE*; do
				[ -f "$notice" ] || continue
				printf '\n%s\n%s %s: %s\n\n' "$(printf '%.0s-' {1..80})" "$path" "$version" "${notice##*/}"
				cat "$notice"
			done
		done
}

# layout puts the files that all architectures share in the places that nfpm.yaml names.
layout() {
	local native=$stage/native shell
	"$go" build -trimpath -ldflags "-X main.version=$VERSION" -o "$native" ./cmd/snapcache
	mkdir "$stage/man" "$stage/completion"
	"$native" man "$stage/man"
	gzip -9n "$stage"/man/*
	for shell in bash zsh fish; do
		"$native" completion $shell >"$stage/completion/snapcache.$shell"
	done
	notices | gzip -9n >"$stage/NOTICES.gz"
	mkdir "$stage/systemd"
	cp systemd/*.{service,socket,timer} "$stage/systemd"
	cp -r config/example.yaml systemd/snapcache.sysusers examples/node "$stage"
	cp -r packaging/{agent.yaml,copyright,lintian-overrides,nfpm.yaml,scripts} "$stage"
	cat >"$stage/changelog.yaml" <<-END
		- semver: $(package_version)-1
		  date: $(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
		  packager: snapcache maintainers <maintainers@snapcache.dev>
		  deb: {urgency: medium, distributions: [unstable]}
		  changes:
		  - note: "Version $VERSION: see CHANGELOG.md of the project."
	END
}

package() { # package ARCH
	local arch=$1 name=snapcache-linux-$1 packager
	build "$arch" "$stage/snapcache"
	"$bom" bin -json -noserial -notimestamp -std -version "$VERSION" -output "$stage/snapcache.cdx.json" "$stage/snapcache" 2>"$stage/bom.log" ||
		{ cat "$stage/bom.log" >&2 && return 1; }
	cp "$stage/snapcache" "$DIST/$name"
	cp "$stage/snapcache.cdx.json" "$DIST/$name.cdx.json"
	# Files in the package have the time of the commit.
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for packager in deb rpm; do
		(cd "$stage" && ARCH=${arch/armv7/arm7} VERSION=$(package_version) "$nfpm" package --packager "$packager" --target "$DIST" >"$stage/nfpm.log" 2>&1) ||
			{ cat "$stage/nfpm.log" >&2 && return 1; }
	done
}

[ $# -gt 0 ] || set -- amd64 arm64 armv7
nfpm=$(tool nfpm)
bom=$(tool cyclonedx-gomod)
rm -rf "$DIST"
mkdir -p "$DIST"
layout
for arch in "$@"; do
	package "$arch"
done
(cd "$DIST" && sha256sum -- * >"$stage/SHA256SUMS" && mv "$stage/SHA256SUMS" .)
