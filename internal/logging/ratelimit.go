package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// sameLines is how many lines of the same kind may come in a row, and sameLineEvery how
	// often one comes after that.
	sameLines     = 10
	sameLineEvery = time.Minute

	// lineKinds bounds how many kinds of lines are remembered.
	lineKinds = 1000
)

// RateLimit returns a handler that passes the first lines of each kind on to h, and then one a
// minute, with the attribute "suppressed" for the number of lines that were left out since the
// previous one. Lines are of one kind if they have the same level and message, and the same
// attributes from With; their own attributes, such as an error or a time, may differ.
func RateLimit(h slog.Handler) slog.Handler {
	return rateLimited{Handler: h, lines: &lines{kinds: map[kind]*repeated{}}}
}

type rateLimited struct {
	slog.Handler
	of    string // the attributes and groups added by With
	lines *lines
}

// lines holds the kinds of lines logged by a handler and by all handlers derived from it.
type lines struct {
	mu    sync.Mutex
	kinds map[kind]*repeated
}

type kind struct {
	level   slog.Level
	of      string
	message string
}

type repeated struct {
	limit      *rate.Limiter
	suppressed int
}

func (s rateLimited) Handle(ctx context.Context, r slog.Record) error {
	pass, suppressed := s.lines.pass(kind{r.Level, s.of, r.Message}, r.Time)
	if !pass {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("suppressed", suppressed))
	}
	return s.Handler.Handle(ctx, r)
}

// pass reports whether a line is passed on, and how many lines of its kind were left out since the
// previous one.
func (l *lines) pass(k kind, now time.Time) (pass bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.kinds[k]
	if x == nil {
		if len(l.kinds) >= lineKinds {
			clear(l.kinds) // at the worst some lines come too often
		}
		x = &repeated{limit: rate.NewLimiter(rate.Every(sameLineEvery), sameLines)}
		l.kinds[k] = x
	}
	if !x.limit.AllowN(now, 1) {
		x.suppressed++
		return false, 0
	}
	suppressed, x.suppressed = x.suppressed, 0
	return true, suppressed
}

func (s rateLimited) WithAttrs(attrs []slog.Attr) slog.Handler {
	s.Handler = s.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		s.of += a.String() + "\n"
	}
	return s
}

func (s rateLimited) WithGroup(name string) slog.Handler {
	s.Handler = s.Handler.WithGroup(name)
	s.of += name + ".\n"
	return s
}
