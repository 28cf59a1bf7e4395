package reflector

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

var _ Versions = (*ListWatch)(nil)

// Current implements [Versions] with a list of one object of the newest state. There is no object
// either if the client replaces the field selector with its own, and lists other objects.
func (l *ListWatch) Current(ctx context.Context, key, _ string) (now upstream.Current, err error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return now, err
	}
	one := fields.OneTermEqualSelector("metadata.name", name)
	if namespace != "" {
		one = fields.AndSelectors(one, fields.OneTermEqualSelector("metadata.namespace", namespace))
	}
	list, err := l.page(ctx, metav1.ListOptions{Limit: 1, FieldSelector: one.String()})
	if err != nil {
		return now, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if m, err := meta.Accessor(item); err == nil && object.Key(m.GetNamespace(), m.GetName()) == key {
			now = upstream.Current{Exists: true, UID: string(m.GetUID()), RV: m.GetResourceVersion()}
		}
		return nil
	})
	return now, err
}

// itemType returns the type of the first item of a list that has one; "" if none does.
func itemType(list runtime.Object) (name string) {
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if gvk := item.GetObjectKind().GroupVersionKind(); name == "" && !gvk.Empty() {
			name = typeName(gvk.GroupVersion().String(), gvk.Kind)
		}
		return nil
	})
	return name
}

// SameType returns a guard that compares the type of the first readable stored object with that of
// the object that the newest probe returned. One ListerWatcher looks like another, so the stored
// objects may be of another resource, or of another version of it. If either has no type, as
// objects of typed clients don't, the guard passes.
func (l *ListWatch) SameType(c store.Collection) Guard {
	return func(context.Context) error {
		if l.probed == "" {
			return nil
		}
		v, err := c.View()
		if err != nil {
			return err
		}
		defer v.Close()
		for o, err := range v.Objects("", "") {
			if errors.As(err, new(*store.CorruptionError)) {
				continue
			}
			if err != nil {
				return err
			}
			stored := typeName(o.APIVersion(), o.Kind())
			if stored == "" || stored == l.probed {
				return nil
			}
			return newRelistError(store.ReasonScopeChanged, "the stored objects are of %s, the server's of %s", stored, l.probed)
		}
		return nil
	}
}
