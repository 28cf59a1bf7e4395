#!/bin/sh
# The program with which "make test-own-server" kills and restores a server. This one is for a control plane that
# "controlplane start" runs in the folder $SNAPCACHE_CONTROLPLANE_DIR. Each call returns when its work is done; after
# start, start-datastore and restore the server may take its time to answer.
#
#   kill             end the kube-apiserver without warning
#   start            start it again
#   kill-datastore   end the datastore without warning, and only it
#   start-datastore  start it again
#   save DIR         write a copy of the datastore to a folder
#   restore DIR      put the datastore back to such a copy, and start both
#   datastore        print "etcd" or "kine", and its address, which takes no credentials: it is read and compacted
#   client-ca        print the files with certificate and key of the authority for client certificates
#
# For k3s with SQLite, on a throw-away machine, kill-datastore and start-datastore are kill and start, and
# the rest is this:
#   db=/var/lib/rancher/k3s/server/db tls=/var/lib/rancher/k3s/server/tls
#   kill)      systemctl kill --signal=KILL k3s; systemctl stop k3s ;;
#   start)     systemctl start k3s ;;
#   save)      systemctl stop k3s; rm -rf "$2"; cp -a $db "$2"; systemctl start k3s ;;
#   restore)   systemctl stop k3s; rm -r $db; cp -a "$2" $db; systemctl start k3s ;;
#   datastore) echo kine unix:///var/lib/rancher/k3s/server/kine.sock ;;
#   client-ca) echo $tls/client-ca.crt $tls/client-ca.key ;;
set -e
dir=$SNAPCACHE_CONTROLPLANE_DIR
case $1 in
kill) exec "$CONTROLPLANE" kill-apiserver ;;
start) exec "$CONTROLPLANE" start-apiserver ;;
kill-datastore) exec "$CONTROLPLANE" kill-etcd ;;
start-datastore) exec "$CONTROLPLANE" start-etcd ;;
save) exec "$CONTROLPLANE" save --to "$2" ;;
restore) exec "$CONTROLPLANE" restore --from "$2" ;;
datastore)
	name=etcd
	[ -e "$dir/etcd/state.db" ] && name=kine
	echo $name "$(sed -n 's/.*"etcdURL": "\(.*\)".*/\1/p' "$dir/state.json")" ;;
client-ca) echo "$dir/pki/client-ca.crt" "$dir/pki/client-ca.key" ;;
*) echo "server.sh: no $1" >&2; exit 2 ;;
esac
