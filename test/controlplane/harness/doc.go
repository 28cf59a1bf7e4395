// Package harness has the fixtures of tests that run the program against a control plane: the program itself, an
// agent's process, the network between it and its server, and clients.
package harness
