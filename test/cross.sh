#!/usr/bin/env bash
# Runs the unit tests as programs of another architecture, under qemu-user.
#
#   test/cross.sh arm64
#   test/cross.sh armv7
#
# The emulator makes all of it slow, so that properties are checked a fifth as often. Tests
# that run this program anew, or their own, have to run the emulator: SNAPCACHE_TEST_EXEC
# names it to them.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=${1:?say which architecture: arm64 or armv7}
case $arch in
arm64) export GOARCH=arm64 SNAPCACHE_TEST_EXEC=qemu-aarch64-static ;;
armv7) export GOARCH=arm GOARM=7 SNAPCACHE_TEST_EXEC=qemu-arm-static ;;
*)
	echo "$0: $arch is neither arm64 nor armv7" >&2
	exit 2
	;;
esac
export CGO_ENABLED=0 RAPID_CHECKS=20
go=${GO:-go}

dir=$(mktemp -d "${TMPDIR:-/tmp}/snapcache-cross.XXXXXX")
trap 'rm -rf "$dir"' EXIT

"$go" test -short -vet=off -timeout 30m -exec "$SNAPCACHE_TEST_EXEC" $("$go" list ./... | grep -Ev '/store/bolt$|/test/|/examples/')

# Each test of the durable store has a process of its own: the emulator keeps some memory
# for each page that was ever mapped, and a database maps as much as it may become.
"$go" test -c -o "$dir/test" ./store/bolt
cd store/bolt
began=$SECONDS
export dir arch
run() {
	"$SNAPCACHE_TEST_EXEC" "$dir/test" -test.short -test.timeout 30m -test.run "^$1\$" >"$dir/$1" 2>&1 && return
	cat "$dir/$1"
	echo "FAIL: $1 of store/bolt, as a program for $arch" >&2
	return 255 # xargs then starts no other test
}
export -f run
tests=$("$SNAPCACHE_TEST_EXEC" "$dir/test" -test.list '^(Test|Example)')
printf '%s\n' "$tests" | xargs -P "$(nproc)" -I{} bash -c 'run {}'
echo "ok: $(wc -w <<<"$tests") tests of store/bolt, as programs for $arch: $((SECONDS - began)) s"
