//go:build !unix

package agent

// processUsage measures nothing: only notifications to systemd need it.
func processUsage() struct{} { return struct{}{} }
