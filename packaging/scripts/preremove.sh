#!/bin/sh
# deb: remove, or upgrade NEW-VERSION. rpm: the number of versions left, 0 or 1. During an upgrade
# the service runs on; postinstall.sh restarts it.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		# Debian's wrapper of systemctl asks first what the machine's policy (policy-rc.d) allows.
		invoke=$(command -v deb-systemd-invoke) || invoke=systemctl
		# A template stands for its enabled instances; those that run are found by a pattern.
		"$invoke" disable snapcache-snapshot.timer snapcache.service snapcache.socket \
			snapcache-snapshot@.timer snapcache@.service snapcache@.socket
		"$invoke" stop snapcache-snapshot.timer snapcache.service snapcache.socket 'snapcache-snapshot@*' 'snapcache@*'
	fi
	;;
esac
