#!/bin/sh
# deb: remove, or upgrade NEW-VERSION. rpm: the number of versions that are left, 0 or 1. While it
# is upgraded the service goes on; postinstall.sh restarts it.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now snapcache-snapshot.timer snapcache.service snapcache.socket
	fi
	;;
esac
