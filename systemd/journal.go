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

// fieldPrefix begins the journal's fields: the attribute "collection" becomes SNAPCACHE_COLLECTION.
const fieldPrefix = "SNAPCACHE_"

// Journal returns a handler that logs to journald if standard error is connected to the journal, as
// under systemd. Otherwise it returns beside. In the journal each line has a priority, so that
// `journalctl -p warning` finds it, and each attribute is a field as well as part of the text:
// `journalctl SNAPCACHE_COLLECTION=pods`. A group of attributes is one field. If journald does not
// accept a line, beside logs it.
func Journal(level slog.Leveler, beside slog.Handler) slog.Handler {
	// On an error the content of $JOURNAL_STREAM is not valid.
	if connected, err := journal.StderrIsJournalStream(); err != nil || !connected || !journal.Enabled() {
		return beside
	}
	return journalHandler{level: level, send: journal.Send, beside: beside}
}

type journalHandler struct {
	level  slog.Leveler
	send   func(message string, priority journal.Priority, fields map[string]string) error
	beside slog.Handler
	attrs  []slog.Attr // keys are full paths
	group  string      // prefix of the keys, with its dot
}

func (h journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, slog.Attr{Key: h.group + a.Key, Value: a.Value})
		return true
	})
	var text strings.Builder
	text.WriteString(r.Message)
	fields := make(map[string]string, len(attrs))
	for _, a := range attrs {
		value := a.Value.Resolve().String()
		fields[fieldPrefix+fieldName(a.Key)] = value
		text.WriteString(" " + a.Key + "=" + quoted(value))
	}
	if err := h.send(text.String(), priority(r.Level), fields); err != nil {
		return errors.Join(err, h.beside.Handle(ctx, r))
	}
	return nil
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		h.attrs = append(h.attrs, slog.Attr{Key: h.group + a.Key, Value: a.Value})
	}
	h.beside = h.beside.WithAttrs(attrs)
	return h
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	h.group += name + "."
	h.beside = h.beside.WithGroup(name)
	return h
}

// fieldName converts an attribute's key to journald's characters: capitals, digits and underscores.
func fieldName(key string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
}

// quoted returns value as slog's text handler writes it: quoted if its end would not be visible.
func quoted(value string) string {
	special := func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if value == "" || strings.ContainsFunc(value, special) {
		return strconv.Quote(value)
	}
	return value
}

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
