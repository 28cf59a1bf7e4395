// Package e2e tests snapcache's promises on a real control plane, with the real program. Each
// file covers one promise, named by its tests.
//
// The program is built once and runs as a process of its own, as on a node: tests kill it, cut it
// off from the server and give it bad input. They read its state through the command line and the
// socket, and compare it with the server's, read with kubectl or from a complete watch of the
// test's own.
//
// Tests poll for a condition and never wait for a time to pass. The one exception is the random
// moment of a kill.
package e2e
