// Package logging has the handler that an agent's log goes through: it bounds how often a line is
// repeated.
package logging
