#!/bin/sh
# The program of TestOwnServer for a control plane that "controlplane start" runs in the folder
# $SNAPCACHE_CONTROLPLANE_DIR. For k3s, on a throw-away machine:
#   kill)    systemctl kill --signal=KILL k3s; systemctl stop k3s ;;
#   start)   systemctl start k3s ;;
#   save)    systemctl stop k3s; cp -a /var/lib/rancher/k3s/server/db "$2"; systemctl start k3s ;;
#   restore) systemctl stop k3s; rm -r /var/lib/rancher/k3s/server/db
#            cp -a "$2" /var/lib/rancher/k3s/server/db; systemctl start k3s ;;
set -e
case $1 in
kill) exec "$CONTROLPLANE" kill-apiserver ;;
start) exec "$CONTROLPLANE" start-apiserver ;;
save) exec "$CONTROLPLANE" save --to "$2" ;;
restore) exec "$CONTROLPLANE" restore --from "$2" ;;
*) echo "server.sh: no $1: say kill, start, save DIR or restore DIR" >&2; exit 2 ;;
esac
