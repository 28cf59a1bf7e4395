// Package node tests the installation on a node: the packages that packaging/dist.sh builds, and
// their service under a systemd of its own. It boots a Debian in a container (systemd-nspawn),
// installs the package in it, and connects the agent to a real control plane outside, over the
// loopback interface that both share.
//
// It needs root, systemd-nspawn and debootstrap. If one is missing, the tests are skipped or, with
// CI=true, fail. The Debian is downloaded once, into .build/debian.
package node
