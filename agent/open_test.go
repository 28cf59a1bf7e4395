package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// TestOpenError checks the next step in each error of an open, and the exit code: ExitUsage if the
// configuration has to change.
func TestOpenError(t *testing.T) {
	for _, x := range []struct {
		err  error
		says string
		code int // 0 for no ExitError
	}{
		{store.ErrLocked, "stop the other snapcache", 0},
		{store.ErrKey, "encryption.keyFile", ExitUsage},
		{store.ErrNetworkFS, "on a local disk", ExitUsage},
	} {
		err := openError(fmt.Errorf("/x/cache.db: %w", x.err))
		require.ErrorIs(t, err, x.err)
		require.ErrorContains(t, err, x.says)
		var exit *ExitError
		require.Equal(t, x.code != 0, errors.As(err, &exit))
		if exit != nil {
			require.Equal(t, x.code, exit.Code)
		}
	}
	other := errors.New("disk full")
	require.Equal(t, other, openError(other))
}
