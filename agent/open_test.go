package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// Each way in which a database can't be opened has words of its own, and the code of what
// is to be mended: the configuration, or another process.
func TestOpenError(t *testing.T) {
	for _, x := range []struct {
		err  error
		says string
		code int // 0 for none of its own
	}{
		{store.ErrLocked, "stop the other snapcache", 0},
		{store.ErrKey, "encryption.keyFile", ExitUsage},
		{store.ErrNetworkFS, "a store.path on a local disk", ExitUsage},
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
