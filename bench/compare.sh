#!/usr/bin/env bash
# Compares the micro-benchmarks of a revision with those of this tree.
#
#   make bench-compare BASE=v1.2.3
#   make bench-compare BASE=main BENCH='^BenchmarkGet$' PACKAGES=./store/memory COUNT=10
#
# The two take turns, so that what else the machine does falls on both.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${BASE:?say which revision to compare with: BASE=REVISION}
# Not those of the durable store that take minutes each: make bench-store runs them.
bench=${BENCH:-'^Benchmark(List|ListHTTP|Watch|Indexer|Get|GetOfView|ApplyUpdate|ViewList|Read|Apply)$'}
packages=${PACKAGES:-./upstream ./informer ./store/memory ./store/bolt}
count=${COUNT:-6}
time=${BENCHTIME:-200ms}

dir=$(mktemp -d "${TMPDIR:-/tmp}/snapcache-compare.XXXXXX")
cleanup() {
	git worktree remove --force "$dir/base" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
git worktree add --quiet --detach "$dir/base" "$base"

here=$PWD
for side in base head; do
	tree=$here
	[ "$side" = base ] && tree="$dir/base"
	for p in $packages; do
		if [ -d "$tree/$p" ]; then # a package may be new
			(cd "$tree" && ${GO:-go} test -c -o "$dir/$side-${p//[.\/]/_}.test" "$p")
		fi
	done
done
for i in $(seq "$count"); do
	for p in $packages; do
		for side in base head; do
			tree=$here
			[ "$side" = base ] && tree="$dir/base"
			program="$dir/$side-${p//[.\/]/_}.test"
			[ -x "$program" ] || continue
			echo "round $i of $count: $p, $side" >&2
			(cd "$tree/$p" && "$program" -test.run '^$' -test.bench "$bench" -test.benchtime "$time" -test.benchmem) >>"$dir/$side.txt"
		done
	done
done
cd bench && ${GO:-go} tool benchstat base="$dir/base.txt" head="$dir/head.txt"
