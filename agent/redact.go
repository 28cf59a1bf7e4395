package agent

import (
	"errors"

	"github.com/snapcache/snapcache/internal/logging"
	"github.com/snapcache/snapcache/store"
)

// redactError returns an error as the process may report it when it ends, which ends up in the log as well:
// redacted if the cache is encrypted.
func (a *Agent) redactError(err error) error {
	var exit *ExitError
	if err == nil || !a.config().Encryption.On() || errors.As(err, &exit) && exit.Code == ExitUsage || errors.Is(err, store.ErrLocked) {
		return err // about the configuration
	}
	return errors.New(logging.RedactedText(err))
}
