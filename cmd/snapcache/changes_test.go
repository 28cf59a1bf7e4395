package main

import (
	"bufio"
	"bytes"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/store"
)

func TestChangeQuery(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		since string
		want  localapi.ChangeQuery
	}{
		{"48211", localapi.ChangeQuery{Since: "48211"}},
		{"0", localapi.ChangeQuery{Since: "0"}},
		{"90m", localapi.ChangeQuery{SinceTime: now.Add(-90 * time.Minute)}},
		{"0s", localapi.ChangeQuery{SinceTime: now}},
		{"2026-01-02T14:00:00Z", localapi.ChangeQuery{SinceTime: now.Add(-64*time.Minute - 5*time.Second)}},
		{"2026-01-02T15:00:00+01:00", localapi.ChangeQuery{SinceTime: now.Add(-64*time.Minute - 5*time.Second)}},
	} {
		got, err := changeQuery(changesLine(t, "--since", tc.since, "pods"), now)
		require.NoError(t, err, tc.since)
		require.Equal(t, tc.want.Since, got.Since, tc.since)
		require.True(t, tc.want.SinceTime.Equal(got.SinceTime), tc.since)
	}
	for _, bad := range []string{"", "x", "-1h", "12d", "1.5", "-5", "2026-01-02", "2026-01-02T15:04:06Z"} {
		_, err := changeQuery(changesLine(t, "--since", bad, "pods"), now)
		require.Equal(t, exitUsage, exitCode(err), "%q", bad)
		require.ErrorContains(t, err, "snapcache inspect shows them", bad)
	}
}

func changesLine(t *testing.T, args ...string) *cli.Context {
	set := flag.NewFlagSet("changes", flag.ContinueOnError)
	for _, f := range changesCommand().Flags {
		require.NoError(t, f.Apply(set))
	}
	require.NoError(t, set.Parse(args))
	return cli.NewContext(newApp(io.Discard, io.Discard), set, nil)
}

// With --follow each batch is printed at once, not when a buffer is full.
func TestFollowedChangesAreFlushed(t *testing.T) {
	for _, format := range outputFormats["changes"] {
		for _, follow := range []bool{true, false} {
			var seen bytes.Buffer
			p := newChangePrinter(format, bufio.NewWriter(&seen), follow)
			require.NoError(t, p.change(localapi.Change{Type: store.Added, ResourceVersion: "7", Name: "edge-1"}))
			require.NoError(t, p.change(localapi.Change{Type: localapi.Bookmark, ResourceVersion: "9"}))
			if !follow {
				require.Empty(t, seen.String())
				continue
			}
			require.Contains(t, seen.String(), "edge-1", format)
		}
	}
}
