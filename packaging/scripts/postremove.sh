#!/bin/sh
# deb: remove, purge and others. rpm: the number of versions left, 0 or 1.
set -e

# The cache outlives the program; only a purge deletes it. rpm has no purge.
if [ "$1" = purge ]; then
	rm -rf /var/lib/snapcache
fi
case "$1" in
remove | purge | 0)
	rm -rf /run/snapcache # the unit preserves it for its socket
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
	;;
esac
