# What dist.sh and image.sh share: the version and the time of the commit, a directory $stage that is
# removed at the end, $DIST (dist) for the results, and how a program is built.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export VERSION=${VERSION:-$(git describe --tags --always --dirty)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0 TZ=UTC LC_ALL=C
DIST=$(realpath -m "${DIST:-dist}")
go=${GO:-go}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

build() { # build ARCH FILE
	local goarm=
	case $1 in
	armv7) goarm=7 ;;
	amd64 | arm64) ;;
	*) echo "$1: an architecture is amd64, arm64 or armv7" >&2 && exit 2 ;;
	esac
	GOOS=linux GOARCH=${1%v7} GOARM=$goarm "$go" build -trimpath -buildvcs=auto -ldflags "-s -w -X main.version=$VERSION" -o "$2" ./cmd/snapcache
}
