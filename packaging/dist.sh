#!/usr/bin/env bash
# Builds this commit for those who install it: dist.sh [PLATFORM...]. For amd64, arm64 and armv7 these
# are packages, the bare program and an archive of the command line, for darwin-amd64, darwin-arm64 and
# windows-amd64 the archive; and the Helm chart. $DIST (dist) receives them, SBOMs and checksums. The same
# commit gives the same bytes on any machine.
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

# modules prints the modules in the program of any platform: path, version and directory.
modules() {
	local goos
	for goos in linux darwin windows; do
		GOOS=$goos "$go" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/snapcache
	done | sort -u
}

# notices prints the notices of the modules in the program, as their licences require.
notices() {
	local path version dir notice
	echo "The modules that are in snapcache, each with the notices of its authors. Go's standard library,"
	echo "which is in it too, is under https://go.dev/LICENSE."
	modules |
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
	notices >"$stage/NOTICES.txt"
	gzip -9nc "$stage/NOTICES.txt" >"$stage/NOTICES.gz"
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

# program builds the program of a platform as $stage/snapcache, and its SBOM.
program() { # program PLATFORM
	build "$1" "$stage/snapcache"
	"$bom" bin -json -noserial -notimestamp -std -version "$VERSION" -output "$stage/snapcache.cdx.json" "$stage/snapcache" 2>"$stage/bom.log" ||
		{ cat "$stage/bom.log" >&2 && return 1; }
	cp "$stage/snapcache.cdx.json" "$DIST/$(name "$1").cdx.json"
}

name() { # name PLATFORM
	case $1 in
	*-*) echo "snapcache-$1" ;;
	*) echo "snapcache-linux-$1" ;;
	esac
}

# archive packs the program, the manual and the completions for machines without packages of ours.
archive() { # archive PLATFORM
	local dir=$stage/archive/snapcache extension=tar.gz
	mkdir -p "$dir"
	cp "$stage"/{snapcache,NOTICES.txt} "$dir"
	case $1 in
	windows-*) extension=zip && mv "$dir/snapcache" "$dir/snapcache.exe" ;;
	*) cp -r "$stage"/{man,completion} "$dir" ;;
	esac
	"$stage/pack" "$DIST/$(name "$1").$extension" "$dir"
	rm -r "$stage/archive"
}

# semantic_version prints the version for tools that know only semantic ones. Without a tag it is below all
# others.
semantic_version() {
	case $VERSION in
	v[0-9]*) echo "$VERSION" ;;
	*) echo "v0.0.0-g$VERSION" ;;
	esac
}

# chart packs the Helm chart, as helm package does.
chart() {
	local version
	version=$(semantic_version)
	mkdir "$stage/chart"
	cp -r deploy/helm/snapcache "$stage/chart"
	sed -i "s/^version: .*/version: ${version#v}/" "$stage/chart/snapcache/Chart.yaml"
	"$stage/pack" "$DIST/snapcache-chart.tgz" "$stage/chart/snapcache"
}

# krew prints the manifest of a kubectl plugin that consists of the archives.
krew() { # krew PLATFORM...
	local platform goos arch file program
	sed "s/VERSION/$(semantic_version)/" packaging/krew.yaml
	for platform in "$@"; do
		goos=linux arch=${platform/armv7/arm} file=$(name "$platform").tar.gz program=snapcache
		case $platform in
		windows-*) goos=windows arch=${platform#*-} file=$(name "$platform").zip program=snapcache.exe ;;
		darwin-*) goos=darwin arch=${platform#*-} ;;
		esac
		cat <<-END
			  - selector: {matchLabels: {os: $goos, arch: $arch}}
			    uri: https://github.com/snapcache/snapcache/releases/download/$VERSION/$file
			    sha256: $(sha256sum "$DIST/$file" | cut -d' ' -f1)
			    files: [{from: snapcache/$program, to: .}, {from: snapcache/NOTICES.txt, to: .}]
			    bin: $program
		END
	done
}

package() { # package ARCH
	local arch=$1 packager
	cp "$stage/snapcache" "$DIST/$(name "$arch")"
	# Files in the package have the time of the commit.
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for packager in deb rpm; do
		(cd "$stage" && ARCH=${arch/armv7/arm7} VERSION=$(package_version) "$nfpm" package --packager "$packager" --target "$DIST" >"$stage/nfpm.log" 2>&1) ||
			{ cat "$stage/nfpm.log" >&2 && return 1; }
	done
}

[ $# -gt 0 ] || set -- amd64 arm64 armv7 darwin-amd64 darwin-arm64 windows-amd64
nfpm=$(tool nfpm)
bom=$(tool cyclonedx-gomod)
rm -rf "$DIST"
mkdir -p "$DIST"
layout
"$go" build -C packaging -o "$stage/pack" ./archive
for platform in "$@"; do
	program "$platform"
	archive "$platform"
	case $platform in
	*-*) ;;
	*) package "$platform" ;;
	esac
done
chart
krew "$@" >"$DIST/snapcache.krew.yaml"
checksums
