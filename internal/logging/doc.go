// Package logging has the handlers that an agent's log goes through: one that keeps names of objects
// out of it, and one that bounds how often a line is repeated.
package logging
