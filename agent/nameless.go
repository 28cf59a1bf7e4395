package agent

import (
	"context"
	"crypto/x509"
	"errors"
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

// withheld stands for an error of which nothing can be told that is sure to name no
// object. snapcache status tells it.
const withheld = "withheld, as the cache is encrypted: see snapcache status"

// Nameless returns a handler that lets nothing of an object into h: where a cache is
// encrypted, the log must not give its names away. It drops the attribute "key", and
// of errors it tells only what is known to have no names in it. Messages and the other
// attributes have none.
func Nameless(h slog.Handler) slog.Handler { return nameless{h} }

type nameless struct{ slog.Handler }

// Handle implements slog.Handler.
func (n nameless) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(withoutNames([]slog.Attr{a})...)
		return true
	})
	return n.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (n nameless) WithAttrs(attrs []slog.Attr) slog.Handler {
	return nameless{n.Handler.WithAttrs(withoutNames(attrs))}
}

// WithGroup implements slog.Handler.
func (n nameless) WithGroup(name string) slog.Handler { return nameless{n.Handler.WithGroup(name)} }

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
			a.Value = slog.StringValue(NamelessText(err))
		case a.Key == "error" || a.Key == "cause":
			a.Value = slog.StringValue(withheld) // text of which it is not known what is in it
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

// NamelessText is an error without the names of objects that it may have: its kind, and
// those of the errors that it wraps which are known to have no names in them.
func NamelessText(err error) string {
	var parts []string
	if kind := upstream.Kind(err); kind != "" && kind != upstream.Other {
		parts = append(parts, string(kind))
	}
	tell(err, func(text string) {
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	})
	if len(parts) == 0 {
		return withheld
	}
	return strings.Join(parts, ": ")
}

// tell calls fn with what may be told of the errors in err, from the outside in.
func tell(err error, fn func(string)) {
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
			tell(inner, fn)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			tell(inner, fn)
		}
	}
}

// told is an error as whoever started the process may be told it, which ends up in the
// log as well.
func (a *Agent) told(err error) error {
	var exit *ExitError
	if err == nil || !a.config().Encryption.On() || errors.As(err, &exit) && exit.Code == ExitUsage || errors.Is(err, store.ErrLocked) {
		return err // about the configuration
	}
	return errors.New(NamelessText(err))
}
