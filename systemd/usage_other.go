//go:build !unix

package systemd

// ProcessUsage returns nothing: no systemd is here.
func ProcessUsage() Usage { return Usage{} }
