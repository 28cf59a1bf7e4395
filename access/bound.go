package access

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Presence is what the cache knows of an object.
type Presence int

// The presences.
const (
	Unknown Presence = iota // no collection would have the object
	Missing                 // a collection would have it, and has not
	Present
)

// Lookup finds an object in the cache. It returns its UID if it is Present.
type Lookup func(resource schema.GroupResource, namespace, name string) (uid string, _ Presence)

// errNothingCached means that no collection would have any object that a token is bound to.
var errNothingCached = errors.New("nothing that it is bound to is cached: pods, serviceaccounts or nodes have to be")

// bound returns an error unless the objects that a token is bound to exist in the cache. Those that no
// collection would have do not count, but one must be there.
func (c *claims) bound(lookup Lookup) error {
	k, found := &c.Kubernetes, false
	for _, x := range []struct {
		resource, namespace string
		objectID
	}{
		{"pods", k.Namespace, k.Pod},
		{"secrets", k.Namespace, k.Secret},
		{"nodes", "", k.Node},
		{"serviceaccounts", k.Namespace, k.ServiceAccount},
	} {
		if x.Name == "" {
			continue
		}
		switch uid, p := lookup(schema.GroupResource{Resource: x.resource}, x.namespace, x.Name); {
		case p == Missing, p == Present && uid != x.UID:
			return fmt.Errorf("%s %q, which it is bound to, is not in the cache", x.resource, x.Name)
		case p == Present:
			found = true
		}
	}
	if !found {
		return errNothingCached
	}
	return nil
}

// missing reports whether the cache would have an object that a token is bound to, and has not: it was
// deleted, or is not there yet.
func (c *claims) missing(lookup Lookup) bool {
	err := c.bound(lookup)
	return err != nil && !errors.Is(err, errNothingCached)
}
