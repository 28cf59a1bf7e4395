package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParseServers reads the names of servers.
func TestParseServers(t *testing.T) {
	all, err := AllServers()
	require.NoError(t, err)
	oldest, newest := all[0], all[len(all)-3]
	for _, c := range []struct {
		names string
		want  []Server
	}{
		{"", nil},
		{"1.31", []Server{{Version: "v1.31.14"}}},
		{"1.31-kine 1.31", []Server{{"v1.31.14", true}, {Version: "v1.31.14"}}},
		{" kine ", []Server{{oldest.Version, true}, {newest.Version, true}}},
	} {
		got, err := ParseServers(c.names)
		require.NoError(t, err, "%q", c.names)
		require.Equal(t, c.want, got, "%q", c.names)
	}
	for _, names := range []string{"1.3", "v1.31", "kine-1.31", "1.31 k3s"} {
		_, err := ParseServers(names)
		require.ErrorContains(t, err, "say kine, or a version from 1.29 to 1.", "%q", names)
	}
	for _, s := range all {
		got, err := ParseServers(s.String())
		require.NoError(t, err)
		require.Equal(t, []Server{s}, got)
	}
	pinned, err := pinnedServer()
	require.NoError(t, err)
	require.Contains(t, all, Server{Version: pinned})
}
