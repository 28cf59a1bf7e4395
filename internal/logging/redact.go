package logging

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/upstream"
)

// Withheld stands for an error of which no part is sure to name no object. snapcache status has
// the error.
const Withheld = "withheld, as the cache is encrypted: see snapcache status"

// Redact returns a handler that passes nothing of an object on to h: if a cache is encrypted, the
// log must not give its names away. It drops the attribute "key", and keeps of errors only what is
// known to have no names in it. Messages and the other attributes have none.
func Redact(h slog.Handler) slog.Handler { return redacting{h} }

type redacting struct{ slog.Handler }

// Handle implements slog.Handler.
func (n redacting) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(withoutNames([]slog.Attr{a})...)
		return true
	})
	return n.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (n redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return redacting{n.Handler.WithAttrs(withoutNames(attrs))}
}

// WithGroup implements slog.Handler.
func (n redacting) WithGroup(name string) slog.Handler { return redacting{n.Handler.WithGroup(name)} }

func withoutNames(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		v := a.Value.Resolve()
		err, isError := v.Any().(error)
		switch {
		case a.Key == "key":
			continue
		case v.Kind() == slog.KindGroup:
			a.Value = slog.GroupValue(withoutNames(v.Group())...)
		case isError:
			a.Value = slog.StringValue(RedactedText(err))
		case a.Key == "error" || a.Key == "cause":
			a.Value = slog.StringValue(Withheld) // text that may have any name in it
		}
		clean = append(clean, a)
	}
	return clean
}

// plainErrors are errors with a text of their own that has no name in it.
var plainErrors = []error{
	context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
	store.ErrClosed, store.ErrLocked, store.ErrKey, store.ErrNetworkFS, store.ErrTooLarge, store.ErrForeign, store.ErrNewerFormat, store.ErrViewExpired, store.ErrReplacing, store.ErrScope, store.ErrNotFound,
	store.ErrNoCollection, store.ErrNoStore, store.ErrIndexBuilding, store.ErrNoIndex,
	bolt.ErrBusy, bolt.ErrNoRoom, snapshot.ErrForeign, snapshot.ErrNewerFormat, snapshot.ErrNoSnapshot,
	deltafifo.ErrFull, deltafifo.ErrReplacing, deltafifo.ErrUnusable, object.ErrNoMetadata,
	upstream.ErrAhead, upstream.ErrLags, upstream.ErrBadList, upstream.ErrNoObject, upstream.ErrTooLarge, upstream.ErrNotWatchable,
}

// RedactedText is an error without the names of objects that it may have: its kind, and those of
// the errors that it wraps which are known to have no names in them.
func RedactedText(err error) string {
	var kept []string
	if kind := upstream.Kind(err); kind != "" && kind != upstream.Other {
		kept = append(kept, string(kind))
	}
	parts(err, func(text string) {
		if !slices.Contains(kept, text) {
			kept = append(kept, text)
		}
	})
	if len(kept) == 0 {
		return Withheld
	}
	return strings.Join(kept, ": ")
}

// parts calls fn with the parts of err that have no names in them, from the outside in.
func parts(err error, fn func(string)) {
	if slices.Contains(plainErrors, err) {
		fn(err.Error())
		return
	}
	switch e := err.(type) { //nolint:errorlint // one at a time; what it wraps comes next
	case *store.CorruptionError:
		text := "damaged"
		if e.Collection != "" {
			text = "collection " + e.Collection + " is damaged"
		}
		fn(text + ": see snapcache check")
		return
	case *reflector.RelistError:
		fn(string(e.Reason))
	case *fs.PathError:
		fn(e.Op + " " + e.Path) // of our own files
	case *upstream.ConfigError, *upstream.NoResourceError, syscall.Errno,
		x509.HostnameError, x509.CertificateInvalidError, x509.UnknownAuthorityError:
		fn(err.Error())
		return
	case apierrors.APIStatus:
		fn(fmt.Sprintf("the server said %d %s", e.Status().Code, e.Status().Reason))
		return
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			parts(inner, fn)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			parts(inner, fn)
		}
	}
}
