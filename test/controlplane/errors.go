package controlplane

import "errors"

var (
	// ErrRunning says that a process was asked to start that runs already.
	ErrRunning = errors.New("already running")
	// ErrStopped says that a process was asked for something that needs it running.
	ErrStopped = errors.New("not running")
	// ErrExited says that a process ended by itself, mostly while starting.
	ErrExited = errors.New("ended by itself")
	// ErrKilled means that a process did not end by itself and was killed.
	ErrKilled = errors.New("killed, as it did not end by itself")
	// ErrUnknownUser says that a user is none of [Admin], [Reader] and [Nobody].
	ErrUnknownUser = errors.New("unknown user")
	// ErrNoSource says that the folder with the modules to build was not found.
	ErrNoSource = errors.New("the folder test/controlplane of the repository was not found")
	// ErrLocked says that another process holds a lock.
	ErrLocked = errors.New("locked by another process")
)
