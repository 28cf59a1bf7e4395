package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// TestRedact logs errors with a name in them in every way: the name is left out, the rest is not.
func TestRedact(t *testing.T) {
	const name = "marker-17"
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	for text, err := range map[string]error{
		"damaged":            &store.CorruptionError{Path: "/x/cache.db", Collection: "nodes", Key: name, Reason: "index app has it under " + name},
		"404 NotFound":       fmt.Errorf("get %s of nodes: %w", name, notFound),
		"withheld":           fmt.Errorf("%s: expected a Node", name),
		"rv-ahead":           &reflector.RelistError{Reason: store.ReasonRVAhead, Err: errors.New(name + " is at 5 on the server")},
		"no such object":     fmt.Errorf("look up %s: %w", name, upstream.ErrNoObject),
		"connection refused": &url.Error{Op: "Get", URL: "https://server/api/v1/nodes/" + name, Err: syscall.ECONNREFUSED},
		"no space left":      errors.Join(fmt.Errorf("compress %s: %w", name, &fs.PathError{Op: "write", Path: "/x/cache.db", Err: syscall.ENOSPC}), errors.New(name)),
		"view was open":      fmt.Errorf("%s: %w", name, store.ErrViewExpired),
	} {
		t.Run(text, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(Redact(slog.NewTextHandler(&out, nil)))
			log.Warn("a", "error", err)
			require.Contains(t, out.String(), text)
			log.Warn("b", "key", name, "error", err.Error(), "cause", name, "rv", 5)
			log.Warn("c", "error", upstream.Described(err))
			log.With("key", name, "error", err).WithGroup("g").Warn("d", "key", name, slog.Group("h", "key", name, "why", err))
			require.NotContains(t, out.String(), name)
			require.Equal(t, 4, bytes.Count(out.Bytes(), []byte("\n")))
			require.Contains(t, out.String(), "rv=5")
			require.NotContains(t, out.String(), "key=")
		})
	}
	require.False(t, Redact(slog.DiscardHandler).Enabled(context.Background(), slog.LevelError))
}
