// Package e2e shows, on a real control plane and with the real program, what
// snapcache promises. Each file is one promise; its tests' names say which.
//
// The program is built once and run as a process of its own, as a node would
// run it: it is killed, cut off from the server and given bad input. What it says
// is read through its command line and its socket; what is true is asked from the
// server, with kubectl or with a watch of the test's own that saw everything.
//
// Nothing waits for a time to pass: tests poll for what they wait for. The one
// exception is the random moment at which a process is killed.
package e2e
