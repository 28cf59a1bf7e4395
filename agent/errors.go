package agent

import "github.com/snapcache/snapcache/agent/internal/exit"

// Exit codes of the process, as documented in the command's help.
const (
	ExitFailure = exit.Failure
	ExitUsage   = exit.Usage // command line or configuration
)

// ExitError is an error that ends the agent with a code of its own.
type ExitError = exit.Error
