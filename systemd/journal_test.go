package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
)

// entry is a line as journald receives it.
type entry struct {
	message  string
	priority journal.Priority
	fields   map[string]string
}

// journald records what a handler sends, or fails.
type journald struct {
	entries []entry
	err     error
}

func (j *journald) send(message string, p journal.Priority, fields map[string]string) error {
	if j.err == nil {
		j.entries = append(j.entries, entry{message, p, fields})
	}
	return j.err
}

func TestJournal(t *testing.T) {
	var j journald
	log := slog.New(journalHandler{level: slog.LevelDebug, send: j.send, beside: slog.NewTextHandler(io.Discard, nil)})
	for _, test := range []struct {
		log  func()
		want entry
	}{
		{
			func() { log.With("collection", "pods").Warn("relist needed", "reason", "expired", "rv", 17) },
			entry{"relist needed collection=pods reason=expired rv=17", journal.PriWarning,
				map[string]string{"SNAPCACHE_COLLECTION": "pods", "SNAPCACHE_REASON": "expired", "SNAPCACHE_RV": "17"}},
		},
		{
			func() { log.Error("failed", "error", errors.New("two\nlines"), "empty", "") },
			entry{`failed error="two\nlines" empty=""`, journal.PriErr, map[string]string{"SNAPCACHE_ERROR": "two\nlines", "SNAPCACHE_EMPTY": ""}},
		},
		{
			func() {
				log.WithGroup("watch").With("a-b", 1).Info("grouped", slog.Group("of", "x", "é y"), "z", 3)
			},
			entry{`grouped watch.a-b=1 watch.of="[x=é y]" watch.z=3`, journal.PriInfo,
				map[string]string{"SNAPCACHE_WATCH_A_B": "1", "SNAPCACHE_WATCH_OF": "[x=é y]", "SNAPCACHE_WATCH_Z": "3"}},
		},
		{func() { log.Debug("detail") }, entry{"detail", journal.PriDebug, map[string]string{}}},
	} {
		j.entries = nil
		test.log()
		if len(j.entries) != 1 {
			t.Fatalf("%d entries, want one: %v", len(j.entries), j.entries)
		}
		got := j.entries[0]
		if got.message != test.want.message || got.priority != test.want.priority || !maps.Equal(got.fields, test.want.fields) {
			t.Errorf("got  %+v\nwant %+v", got, test.want)
		}
	}
}

// Attributes added to one logger do not appear in another derived from the same logger.
func TestJournalSiblings(t *testing.T) {
	var j journald
	log := slog.New(journalHandler{level: slog.LevelInfo, send: j.send, beside: slog.DiscardHandler}).With("a", 1, "b", 2, "c", 3)
	one, two := log.With("one", 1), log.With("two", 2)
	one.Info("x")
	two.Info("x")
	one.Debug("not for the journal")
	if got := fmt.Sprint(len(j.entries), j.entries[0].message, "; ", j.entries[1].message); got != "2x a=1 b=2 c=3 one=1; x a=1 b=2 c=3 two=2" {
		t.Error(got)
	}
}

// If journald does not accept a line, it is logged elsewhere.
func TestJournalUnavailable(t *testing.T) {
	j := journald{err: errors.New("no journald")}
	var out bytes.Buffer
	log := slog.New(journalHandler{level: slog.LevelInfo, send: j.send, beside: slog.NewTextHandler(&out, nil)})
	log.With("collection", "pods").WithGroup("g").Info("hello", "x", 1)
	if !strings.Contains(out.String(), "msg=hello collection=pods g.x=1") {
		t.Errorf("got %q", out.String())
	}
}

func TestJournalOtherStream(t *testing.T) {
	beside := slog.NewTextHandler(io.Discard, nil)
	for _, stream := range []string{"", "1:1", "nonsense"} {
		t.Setenv("JOURNAL_STREAM", stream)
		if got := Journal(slog.LevelInfo, beside); got != slog.Handler(beside) {
			t.Errorf("JOURNAL_STREAM=%q: %T, want the handler beside the journal", stream, got)
		}
	}
}
