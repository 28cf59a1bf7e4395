// Package measure reads what a process costs, from outside of it: CPU time, memory and
// what it wrote, from the kernel, and the bytes that a server sent, from a network that
// counts them. It works on Linux.
package measure
