#!/bin/sh
# deb: remove, or upgrade NEW-VERSION. rpm: the number of versions left, 0 or 1. During an upgrade
# the service runs on; postinstall.sh restarts it.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now snapcache-snapshot.timer snapcache.service snapcache.socket
		# A template stands for its enabled instances; those that run are found by a pattern.
		systemctl disable snapcache-snapshot@.timer snapcache@.service snapcache@.socket
		systemctl stop 'snapcache-snapshot@*' 'snapcache@*'
	fi
	;;
esac
