// Package exit has the errors that end the agent's process with a code of their own.
package exit

import "fmt"

// Exit codes of the process, as documented in the command's help.
const (
	Failure = 1
	Usage   = 2 // command line or configuration
)

// Error is an error that ends the agent with a code of its own.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without the code.
func (e *Error) Unwrap() error { return e.Err }

// Usagef returns an error about the command line or the configuration.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}
