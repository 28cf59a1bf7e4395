package agent

import "fmt"

// Exit codes of the process, as documented in the command's help.
const (
	ExitFailure = 1
	ExitUsage   = 2 // command line or configuration
)

// ExitError is an error that ends the agent with a code of its own.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *ExitError) Unwrap() error { return e.Err }

func usage(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}
