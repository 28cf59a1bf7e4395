// Package clocks compares times that a wrong clock may have made.
//
// Invariant: because of one wrong clock nothing is fresh, and nothing is old enough to be deleted. There
// are two clocks. The wall clock may be years behind or ahead, now or when a time was stored, and may be
// set while the process runs. The other one counts how long a process or a file has been in use: it is
// never wrong, but stands still while the machine is off. So it is a lower bound of every age.
package clocks
