package agent

import (
	"errors"

	"github.com/snapcache/snapcache/internal/logging"
	"github.com/snapcache/snapcache/store"
)

// redactError returns the error with which the process ends, redacted if the cache is encrypted: the
// text ends up in the log as well. Errors about the configuration are not redacted.
func (a *Agent) redactError(err error) error {
	var exit *ExitError
	if err == nil || !a.config().Encryption.On() || errors.As(err, &exit) && exit.Code == ExitUsage || errors.Is(err, store.ErrLocked) {
		return err // nothing to redact
	}
	return errors.New(logging.RedactedText(err))
}
