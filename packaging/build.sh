# What dist.sh and image.sh share: the version and the time of the commit, a directory $stage that is
# removed at the end, $DIST (dist) for the results and their checksums, and how a program is built.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export VERSION=${VERSION:-$(git describe --tags --always --dirty)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0 TZ=UTC LC_ALL=C
DIST=$(realpath -m "${DIST:-dist}")
go=${GO:-go}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

build() { # build PLATFORM FILE
	local goos=linux goarch=${1#*-} goarm=
	case $1 in
	armv7) goarch=arm goarm=7 ;;
	amd64 | arm64) ;;
	darwin-amd64 | darwin-arm64 | windows-amd64) goos=${1%-*} ;;
	*) echo "$1: a platform is amd64, arm64, armv7, darwin-amd64, darwin-arm64 or windows-amd64" >&2 && exit 2 ;;
	esac
	GOOS=$goos GOARCH=$goarch GOARM=$goarm "$go" build -trimpath -buildvcs=auto -ldflags "-s -w -X main.version=$VERSION" -o "$2" ./cmd/snapcache
}

# checksums writes the checksums of all results, which have no signature then.
checksums() {
	rm -f "$DIST"/SHA256SUMS{,.sig}
	(cd "$DIST" && sha256sum -- * >"$stage/SHA256SUMS")
	mv "$stage/SHA256SUMS" "$DIST"
}
