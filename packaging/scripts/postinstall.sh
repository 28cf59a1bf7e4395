#!/bin/sh
# deb: configure [OLD-VERSION]. rpm: the number of versions installed, 1 or 2.
set -e

case "$1" in
configure | [1-9]*)
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers snapcache.conf
	fi
	# The service is not started: without a kubeconfig it has nothing to do. If it runs, for one cluster
	# or for several, it is restarted with the new program.
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		# Debian's wrapper of systemctl asks first what the machine's policy (policy-rc.d) allows.
		invoke=$(command -v deb-systemd-invoke) || invoke=systemctl
		"$invoke" try-restart snapcache.service 'snapcache@*.service'
	fi
	;;
esac
