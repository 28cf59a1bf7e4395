package systemd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// fieldPrefix is what the names of our fields in the journal begin with: the attribute "collection" is
// SNAPCACHE_COLLECTION there.
const fieldPrefix = "SNAPCACHE_"

// Journal returns a handler that logs to journald where standard error is connected to it, as systemd
// connects it, and otherwise where beside does. In the journal each line has its priority, so that
// `journalctl -p warning` finds it, and each attribute is a field as well as part of the text:
// `journalctl SNAPCACHE_COLLECTION=pods`. A line that journald does not take goes to beside.
func Journal(level slog.Leveler, beside slog.Handler) slog.Handler {
	// An error says that there is something in $JOURNAL_STREAM that nobody understands.
	if connected, err := journal.StderrIsJournalStream(); err != nil || !connected || !journal.Enabled() {
		return beside
	}
	return journalHandler{level: level, send: journal.Send, beside: beside}
}

type journalHandler struct {
	level  slog.Leveler
	send   func(message string, priority journal.Priority, fields map[string]string) error
	beside slog.Handler
	attrs  []slog.Attr // named by their whole path
	group  string      // the path that names begin with, with its dot
}

// Enabled implements slog.Handler.
func (h journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements slog.Handler.
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, h.group, a)
		return true
	})
	var text strings.Builder
	text.WriteString(r.Message)
	fields := make(map[string]string, len(attrs))
	for _, a := range attrs {
		value := a.Value.String()
		fields[fieldPrefix+fieldName(a.Key)] = value
		text.WriteString(" " + a.Key + "=" + quoted(value))
	}
	if err := h.send(text.String(), priority(r.Level), fields); err != nil {
		return errors.Join(err, h.beside.Handle(ctx, r))
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		h.attrs = flatten(h.attrs, h.group, a)
	}
	h.beside = h.beside.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	h.group += name + "."
	h.beside = h.beside.WithGroup(name)
	return h
}

// flatten appends an attribute under its whole path, those of a group one by one.
func flatten(attrs []slog.Attr, path string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	switch {
	case a.Value.Kind() == slog.KindGroup:
		if a.Key != "" {
			path += a.Key + "."
		}
		for _, inner := range a.Value.Group() {
			attrs = flatten(attrs, path, inner)
		}
		return attrs
	case a.Equal(slog.Attr{}):
		return attrs
	}
	a.Key = path + a.Key
	return append(attrs, a)
}

// fieldName is an attribute's name as journald takes it: capitals, digits and underscores.
func fieldName(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return unicode.ToUpper(r)
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, key)
}

// quoted is a value as slog's text handler writes it: quoted where it would not be seen where it ends.
func quoted(value string) string {
	special := func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if value == "" || strings.ContainsFunc(value, special) {
		return strconv.Quote(value)
	}
	return value
}

// priority is a level in syslog's words.
func priority(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}
