package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/store"
)

// TestOpenError checks the next step in each error of an open, and the kind: a UsageError if the
// configuration has to change.
func TestOpenError(t *testing.T) {
	for _, x := range []struct {
		err   error
		text  string
		usage bool
	}{
		{store.ErrLocked, "stop the other snapcache", false},
		{store.ErrKey, "encryption.keyFile", true},
		{store.ErrNetworkFS, "on a local disk", true},
	} {
		err := openError(fmt.Errorf("/x/cache.db: %w", x.err))
		require.ErrorIs(t, err, x.err)
		require.ErrorContains(t, err, x.text)
		require.Equal(t, x.usage, errors.As(err, new(*UsageError)))
	}
	other := errors.New("disk full")
	require.Equal(t, other, openError(other))
}
