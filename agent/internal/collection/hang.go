//go:build !snapcache_stuck

package collection

// hang is where a build for tests can get stuck: see hang_stuck.go.
func hang() {}
