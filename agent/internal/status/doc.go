// Package status reports the state of an agent: as the status of the local API, as metrics, and as
// health checks.
package status
