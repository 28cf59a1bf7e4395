// Package measure measures the cost of a process from outside: CPU time, memory and written bytes,
// from the kernel, and the bytes that a server sent, from a network that counts them. It works on
// Linux.
package measure
