package informer

import (
	"bytes"

	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// rewritten reports whether an event is a new state of the stored object under the same
// resourceVersion. Only fake clients send such events. A real server's event under the stored
// resourceVersion is a replay.
func (l *Loop) rewritten(now lookup, t cache.DeltaType, o *object.Object, old store.Header) bool {
	if o.GetResourceVersion() != old.RV || l.opts.Unversioned == nil || !l.opts.Unversioned() {
		return false
	}
	if t == cache.Updated {
		return true
	}
	stored, err := now.Get(o.Key())
	return err != nil || !bytes.Equal(stored.Raw(), o.Raw())
}
