#!/usr/bin/env bash
# Runs a program with its arguments in network and mount namespaces of its own: namespace.sh DIR PROGRAM [ARG...].
# Everything is at its usual path. DIR/hosts is /etc/hosts, and DIR/certs is /certs, where Envoy Gateway's pods have
# their certificates. Run it by `unshare --net --mount`.
set -euo pipefail

dir=$1
shift
root=$dir/root
mkdir "$root"
ip link set lo up
mount --bind "$dir/hosts" /etc/hosts
for entry in /*; do
	if [ -L "$entry" ]; then
		cp -P "$entry" "$root$entry"
	elif [ -d "$entry" ] && [ "$entry" != /certs ]; then
		mkdir "$root$entry"
		mount --rbind "$entry" "$root$entry"
	fi
done
mkdir "$root/certs"
mount --bind "$dir/certs" "$root/certs"
# shellcheck disable=SC2016 # the inner shell expands them
exec chroot "$root" bash -c 'cd "$0" && exec "$@"' "$PWD" "$@"
