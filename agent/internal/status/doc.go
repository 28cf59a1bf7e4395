// Package status reports how an agent is: the status of the local API, in words and as metrics, and the
// health checks.
package status
