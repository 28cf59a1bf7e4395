package controlplane

import "errors"

var (
	// ErrRunning means that a process to be started runs already.
	ErrRunning = errors.New("already running")
	// ErrStopped means that an operation needs a process that does not run.
	ErrStopped = errors.New("not running")
	// ErrExited means that a process ended by itself, mostly while starting.
	ErrExited = errors.New("ended by itself")
	// ErrKilled means that a process did not end by itself and was killed.
	ErrKilled = errors.New("killed, as it did not end by itself")
	// ErrUnknownUser means that a user is none of [Admin], [Reader] and [Stranger].
	ErrUnknownUser = errors.New("unknown user")
	// ErrNoSource means that the folder with the modules to build was not found.
	ErrNoSource = errors.New("the folder test/controlplane of the repository was not found")
	// ErrLocked means that another process holds a lock.
	ErrLocked = errors.New("locked by another process")
)
