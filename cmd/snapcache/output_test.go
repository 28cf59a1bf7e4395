package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/snapshot"
)

// Cells can't move the cursor, or begin a line.
func TestTable_ControlCharacters_AreEscaped(t *testing.T) {
	var b strings.Builder
	table := newTable(&b, "NAME", "CLUSTER")
	table.row("x\n.snap", "\x1b[2J\u202e")
	table.row(`"quoted" ñ`, "uid:1")
	require.NoError(t, table.flush())
	require.Equal(t, "NAME        CLUSTER\nx\\n.snap    \\x1b[2J\\u202e\n\"quoted\" ñ  uid:1\n", b.String())
}

// The age of a snapshot from the future, or without a time, is not known.
func TestAgeOf(t *testing.T) {
	for at, want := range map[time.Time]string{
		time.Now().Add(-90 * time.Minute):           "1h30m",
		time.Now().Add(time.Hour):                   "unknown",
		time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC): "unknown",
		{}: "unknown",
	} {
		require.Equal(t, want, ageOf(&snapshot.Manifest{Created: at}), at)
	}
}
