#!/usr/bin/env bash
# The main job, shown on a real control plane: mirror a cluster to disk, die,
# come back without a list, and answer without a control plane.
#
#   make demo           runs it and cleans up
#   KEEP=1 make demo    leaves everything running to play with
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' off=$'\e[0m'; else bold='' dim='' green='' off=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$off"; }
note() { printf '%s%s%s\n' "$dim" "$*" "$off"; }
show() { printf '%s$ snapcache %s%s\n' "$green" "$*" "$off"; snapcache "$@"; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/snapcache-demo.XXXXXX")
cp="$dir/controlplane"
config="$dir/agent.yaml"
agent=''
export SNAPCACHE_CONFIG="$config"

snapcache() { bin/snapcache "$@"; }
controlplane() { bin/controlplane "$@" --dir "$cp"; }

cleanup() {
	code=$?
	if [ "$code" -ne 0 ] && [ -f "$dir/agent.log" ]; then
		printf '\nThe demo failed. The end of the agent'"'"'s log:\n' >&2
		tail -n 20 "$dir/agent.log" >&2
	fi
	if [ -n "${KEEP:-}" ] && [ "$code" -eq 0 ]; then
		say "Left running. To play with it:"
		printf '  export SNAPCACHE_CONFIG=%s KUBECONFIG=%s\n' "$config" "$cp/admin.kubeconfig"
		printf '  bin/snapcache status --watch\n  bin/controlplane churn --dir %s\n  bin/controlplane start-apiserver --dir %s\n' "$cp" "$cp"
		printf 'To end it:\n  kill %s; bin/controlplane stop --dir %s; rm -rf %s\n' "$agent" "$cp" "$dir"
		return
	fi
	[ -z "$agent" ] || kill "$agent" 2>/dev/null || true
	controlplane stop >/dev/null 2>&1 || true
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

start_agent() {
	bin/snapcache run --config "$config" 2>>"$dir/agent.log" &
	agent=$!
}

# until_true COMMAND...: tries for a minute.
until_true() {
	for _ in $(seq 600); do
		if "$@" >/dev/null 2>&1; then return; fi
		kill -0 "$agent" 2>/dev/null || { echo "the agent ended" >&2; return 1; }
		sleep 0.1
	done
	echo "gave up waiting for: $*" >&2
	return 1
}
caught_up() { [ "$(snapcache status -o json | grep -c '"caughtUp": *true')" -eq 5 ]; }
events_applied() { [ "$(pods_events)" -ge 500 ]; }
pods_events() { snapcache status -o json | awk '/"id": *"pods"/ {on=1} on && /"events"/ {gsub(/[^0-9]/, ""); print; exit}'; }

say "1. A control plane: a real etcd and kube-apiserver"
note "It needs an etcd and a kube-apiserver: those in KUBEBUILDER_ASSETS or on the PATH, else it builds them,"
note "which takes 5 to 9 minutes on two cores, once."
bin/controlplane servers >/dev/null
controlplane start --installed --direct-pods 3000 --configmaps 200 --services 100 --endpointslices 100 --nodes 20 >"$dir/controlplane.log" 2>&1 &
for _ in $(seq 18000); do
	[ -s "$cp/admin.kubeconfig" ] && [ -S "$cp/control.sock" ] && break
	kill -0 $! 2>/dev/null || { cat "$dir/controlplane.log" >&2; exit 1; }
	sleep 0.1
done
note "It has 3,000 pods of about 10 KB, and a few hundred other objects."

cat >"$config" <<YAML
apiVersion: snapcache.dev/v1alpha1
kind: AgentConfiguration
kubeconfig: $cp/admin.kubeconfig
store: {path: $dir/state/cache.db}
localAPI: {socket: $dir/run/snapcache.sock}
metrics: {disabled: true}
resources:
- resource: pods
  indexes: [{name: node, field: spec.nodeName}]
- resource: nodes
- resource: services
- resource: configmaps
- resource: endpointslices.discovery.k8s.io
YAML

say "2. snapcache lists everything once and follows it"
start_agent
until_true caught_up
show status
show inspect services --index namespace

say "3. It dies (SIGKILL), and 500 pods change while it is away"
kill -9 "$agent"
wait "$agent" 2>/dev/null || true
note "Without an agent, the file still answers:"
show inspect pods
bin/controlplane touch --dir "$cp" --resource pods --count 500 >/dev/null

say "4. It comes back, reads its file, and resumes the watch: just the changes, no list"
start_agent
until_true caught_up
until_true events_applied
show status
note "RESUMES is 1, LISTS is 0, and the pods' EVENTS are the 500 that changed."

say "5. The control plane goes away. Readers notice nothing but the age"
controlplane kill-apiserver >/dev/null
until_true sh -c 'bin/snapcache status | grep -qv "^caught up"'
printf '%s$ snapcache dump pods -n shop-0001 -o name | head -5%s\n' "$green" "$off"
snapcache dump pods -n shop-0001 -o name | head -5
show status

say "Done."
