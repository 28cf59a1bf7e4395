package reflector

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/object"
)

// Encode converts an object of a client. After an error that wraps [object.ErrInvalid] or
// [object.ErrNoMetadata] that one object is skipped; any other error ends the list or the watch.
type Encode func(runtime.Object) (*object.Object, error)

// NewEncode returns the ordinary [Encode]: an [object.Object] stays as it is, any other object
// becomes its JSON. Typed clients return objects without apiVersion and kind; Encode takes both
// from scheme, which may be nil if the client is not typed.
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
				return nil, fmt.Errorf("encode a %T: it has no kind, and there is no scheme to look it up in", obj)
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

// unusableObject reports whether an error concerns one object only, and not all of a list or watch.
func unusableObject(err error) bool {
	return errors.Is(err, object.ErrInvalid) || errors.Is(err, object.ErrNoMetadata)
}
