//go:build !unix

package agent

// processUsage returns nothing: only systemd is told of it.
func processUsage() resourceUsage { return resourceUsage{} }
