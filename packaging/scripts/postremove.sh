#!/bin/sh
# deb: remove, purge and others. rpm: the number of versions that are left, 0 or 1.
set -e

# A cache outlives its program; only who purges wants it gone. rpm knows no purge.
if [ "$1" = purge ]; then
	rm -rf /var/lib/snapcache
fi
case "$1" in
remove | purge | 0)
	rm -rf /run/snapcache # which the unit leaves for its socket
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
	;;
esac
