// Package monitoring tests the alert rules and the dashboard in the folder monitoring at
// the top of the tree. That their metrics exist is for test/e2e, which has an agent.
package monitoring
