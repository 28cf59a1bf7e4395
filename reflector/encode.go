package reflector

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/object"
)

// Encode makes an object of what a client returned. An error that wraps
// [object.ErrInvalid] or [object.ErrNoMetadata] is about that one, which is
// skipped; any other ends the list or the watch.
type Encode func(runtime.Object) (*object.Object, error)

// NewEncode returns the ordinary [Encode]: an [object.Object] as it is, anything
// else as its JSON. Typed clients return objects that lack their apiVersion and
// kind; those are put in from scheme, which may be nil where nothing typed comes.
func NewEncode(scheme *runtime.Scheme) Encode {
	return func(obj runtime.Object) (*object.Object, error) {
		if o, ok := obj.(*object.Object); ok {
			return o, nil
		}
		raw, err := json.Marshal(obj)
		if err != nil {
			return nil, fmt.Errorf("encode a %T: %w", obj, err)
		}
		gvk := obj.GetObjectKind().GroupVersionKind()
		if gvk.Kind == "" || gvk.Version == "" {
			if scheme == nil {
				return nil, fmt.Errorf("encode a %T: it does not tell its kind, and there is no scheme to ask", obj)
			}
			kinds, _, err := scheme.ObjectKinds(obj)
			if err != nil {
				return nil, fmt.Errorf("encode a %T: %w", obj, err)
			}
			if len(kinds) > 1 {
				return nil, fmt.Errorf("encode a %T: the scheme has it as %v", obj, kinds)
			}
			raw = object.WithType(raw, kinds[0].GroupVersion().String(), kinds[0].Kind)
		}
		return object.FromValid(raw)
	}
}

// unusableObject says that an error is about one object and tells nothing of the
// others.
func unusableObject(err error) bool {
	return errors.Is(err, object.ErrInvalid) || errors.Is(err, object.ErrNoMetadata)
}
