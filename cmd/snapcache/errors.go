package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/agent"
	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
)

// The exit codes are a contract, which the help documents.
const (
	exitOK        = 0
	exitFailure   = 1
	exitUsage     = 2
	exitNotSynced = 3
	exitCorrupt   = 4
	exitTooOld    = 5
	exitDrift     = 6
)

type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func withCode(code int, err error) error { return &codedError{code, err} }

func usagef(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

func exitCode(err error) int {
	var coded *codedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, store.ErrNoCollection), errors.Is(err, store.ErrNoIndex), errors.Is(err, localapi.ErrBadQuery),
		errors.Is(err, store.ErrNoHistory), errors.As(err, new(*config.Error)), errors.As(err, new(*agent.UsageError)),
		errors.As(err, new(cli.ExitCoder)):
		return exitUsage // urfave/cli returns an ExitCoder for an unknown help topic
	case errors.Is(err, localapi.ErrNotSynced):
		return exitNotSynced
	case errors.Is(err, localapi.ErrTooOld):
		return exitTooOld
	case errors.As(err, new(*store.CorruptionError)), errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrOldFormat), errors.Is(err, snapshot.ErrForeign):
		return exitCorrupt
	default:
		return exitFailure
	}
}

// maxShown limits the corrupt records that an error names.
const maxShown = 5

func corrupt(found *localapi.CorruptRecordsError) error {
	if found == nil {
		return nil
	}
	shown := &localapi.CorruptRecordsError{Corruptions: found.Corruptions, More: found.More}
	if more := len(shown.Corruptions) - maxShown; more > 0 {
		shown.Corruptions, shown.More = shown.Corruptions[:maxShown], shown.More+more
	}
	hint := errors.New("the corrupt records were left out; a running agent that is online fetches them again")
	return withCode(exitCorrupt, errors.Join(shown, hint))
}
