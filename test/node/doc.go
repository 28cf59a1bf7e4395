// Package node tests what is installed on a node: the packages that packaging/dist.sh makes, and the
// service in them under a systemd of its own. It boots a Debian in a container (systemd-nspawn),
// installs the package there, and has it talk to a real control plane outside, over the loopback
// that both share.
//
// It needs root, systemd-nspawn and debootstrap. Where they are missing it is skipped, but not with
// CI=true. The Debian is fetched once, into .build/debian.
package node
