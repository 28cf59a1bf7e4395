package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/localapi"
)

// screen passes on what a watcher prints, frame by frame.
type screen chan string

func (s screen) Write(p []byte) (int, error) {
	s <- string(p)
	return len(p), nil
}

// watched runs a watcher over answers, one per second, and returns what it wrote.
func watched(t *testing.T, redraw bool, answers ...any) []string {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan struct{})
	next := 0
	out := make(screen, 100)
	w := statusPrinter{
		ask: func(context.Context) (*localapi.Status, error) {
			if next == len(answers) {
				cancel()
				return nil, ctx.Err()
			}
			a := answers[next]
			next++
			defer func() { asked <- struct{}{} }()
			if err, ok := a.(error); ok {
				return nil, err
			}
			return a.(*localapi.Status), nil
		},
		print: func(w io.Writer, s *localapi.Status) error {
			_, err := fmt.Fprintf(w, "%d objects\n", s.Collections[0].Objects)
			return err
		},
		out: out, redraw: redraw, clock: clock,
	}
	done := make(chan error)
	go func() { done <- w.run(ctx) }()
	for range answers {
		<-asked
		for !clock.HasWaiters() {
			<-time.After(time.Millisecond)
		}
		clock.Step(watchEvery)
	}
	require.NoError(t, <-done)
	close(out)
	var frames []string
	for f := range out {
		frames = append(frames, f)
	}
	return frames
}

func TestWatch(t *testing.T) {
	status := func(objects int64, age float64) *localapi.Status {
		return &localapi.Status{Collections: []localapi.Collection{{ID: "pods", Objects: objects, AgeSeconds: age, Proven: time.Unix(int64(age), 0)}}}
	}
	gone := errors.New("no agent answers")
	answers := []any{status(1, 0), status(1, 1), status(2, 2), gone, gone, status(2, 3)}

	frames := watched(t, false, answers...)
	require.Equal(t, []string{"1 objects\n", "\n2 objects\n", "\nno agent answers\n", "\n2 objects\n"}, frames,
		"a block whenever more than the age changed; a missing agent may come back")

	frames = watched(t, true, answers...)
	require.Len(t, frames, len(answers), "a terminal is redrawn every time")
	for _, f := range frames {
		require.True(t, strings.HasPrefix(f, "\x1b[H"), "%q", f)
		require.True(t, strings.HasSuffix(f, "\x1b[K\n\x1b[J"), "%q", f)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	tbl := newTable(&out, "NAME", ">COUNT", "NOTE")
	tbl.row("a", "1,000", "x")
	tbl.row("längst", "7", "")
	require.NoError(t, tbl.flush())
	require.Equal(t, "NAME    COUNT  NOTE\na       1,000  x\nlängst      7  -\n", out.String())

	out.Reset()
	tbl = newTable(&out, "N")
	for i := range 2*tableBlock + 5 {
		tbl.row(fmt.Sprint(i))
		require.Less(t, len(tbl.rows), tableBlock)
	}
	require.NoError(t, tbl.flush())
	require.Equal(t, 2*tableBlock+6, strings.Count(out.String(), "\n"), "every row, and the header once")

	out.Reset()
	require.NoError(t, newTable(&out, "N", "M").flush())
	require.Equal(t, "N  M\n", out.String())
}

// A table keeps the first error of writing, also if later writes succeed.
func TestTable_WriteFails(t *testing.T) {
	w := &failsOnce{}
	tbl := newTable(w, "N", "M")
	for range tableBlock {
		tbl.row("a", "b")
	}
	require.ErrorIs(t, tbl.err, io.ErrShortWrite)
	tbl.row("a", "b")
	require.ErrorIs(t, tbl.flush(), io.ErrShortWrite)
}

type failsOnce struct{ failed bool }

func (f *failsOnce) Write(p []byte) (int, error) {
	if !f.failed {
		f.failed = true
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestVerifiedLine_WrongClock(t *testing.T) {
	at := time.Date(2026, time.March, 1, 10, 0, 0, 0, time.UTC)
	collections := []localapi.Collection{{Verification: &localapi.Verification{Time: at}}, {Verification: &localapi.Verification{Time: at.Add(-time.Hour)}}}
	require.Equal(t, "2 collections verified within 3h0m: the same as the server's", verifiedLine(collections, at.Add(2*time.Hour)))
	require.Equal(t, "2 collections verified at an unknown time, as the clock is behind it: the same as the server's",
		verifiedLine(collections, at.Add(-time.Minute)))
	require.Empty(t, verifiedLine(nil, at))
}

// TestStatusPrograms: the clients of the Kubernetes API are in the output, and their counts do not print it again.
func TestStatusPrograms(t *testing.T) {
	s := &localapi.Status{Agent: &localapi.AgentStatus{Programs: []localapi.Program{
		{Name: "kubelet", Requests: 1840, Watches: 96, Open: 7, Forwarded: 5201}, {Name: "coredns", Requests: 12, Watches: 9, Open: 3},
	}}}
	var out strings.Builder
	require.NoError(t, printStatus(&out, s))
	require.Contains(t, out.String(), `
CLIENT   ANSWERED HERE  WATCHES HERE  OPEN  FORWARDED
kubelet          1,840            96     7      5,201
coredns             12             9     3          0
`)
	before := fingerprint(s, nil)
	s.Agent.Programs[0].Requests++
	require.Equal(t, before, fingerprint(s, nil))
	require.Len(t, s.Agent.Programs, 2)
}
