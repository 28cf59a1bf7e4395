package access

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Presence reports whether the cache has an object.
type Presence int

// The presences.
const (
	Unknown Presence = iota // no collection would have the object
	Missing                 // a collection would have it, and has not
	Present
)

// Lookup finds an object in the cache. It returns its UID if it is Present.
type Lookup func(resource schema.GroupResource, namespace, name string) (uid string, _ Presence)

// CheckBound returns an error if an object that a service account token is bound to is not in the
// cache, though a collection would have it. It verifies nothing else of the token.
func CheckBound(token string, lookup Lookup) error {
	c, err := readClaims(token)
	if err == nil {
		_, err = c.cached(lookup)
	}
	return err
}

// Expiry returns when a service account token expires; the zero time if that is not known. It verifies
// nothing of the token.
func Expiry(token string) time.Time {
	if c, err := readClaims(token); err == nil && c.Expiry != nil {
		return c.Expiry.Time()
	}
	return time.Time{}
}

func readClaims(token string) (*claims, error) {
	c := &claims{}
	t, err := jwt.ParseSigned(token, algorithms)
	if err == nil {
		err = t.UnsafeClaimsWithoutVerification(c)
	}
	if err != nil {
		return nil, errors.New("it is not a token of a service account") // err may have parts of it
	}
	return c, nil
}

// bound returns an error unless the objects that a token is bound to exist in the cache. Objects that no
// collection would have do not count, but one must be there.
func (c *claims) bound(lookup Lookup) error {
	found, err := c.cached(lookup)
	if err == nil && !found {
		err = errors.New("nothing that it is bound to is cached: pods, serviceaccounts or nodes have to be")
	}
	return err
}

// cached reports whether one of the objects that a token is bound to is in the cache. It returns an
// error if one is not, though a collection would have it. The token of a pod names its node, but is
// not bound to that: the server does not look for it either.
func (c *claims) cached(lookup Lookup) (found bool, _ error) {
	k, node := &c.Kubernetes, c.Kubernetes.Node
	if k.Pod.Name != "" {
		node = objectID{}
	}
	for _, x := range []struct {
		resource, namespace string
		objectID
	}{
		{"pods", k.Namespace, k.Pod},
		{"secrets", k.Namespace, k.Secret},
		{"nodes", "", node},
		{"serviceaccounts", k.Namespace, k.ServiceAccount},
	} {
		if x.Name == "" {
			continue
		}
		switch uid, p := lookup(schema.GroupResource{Resource: x.resource}, x.namespace, x.Name); {
		case p == Missing, p == Present && uid != x.UID:
			return false, fmt.Errorf("%s %q, which it is bound to, is not in the cache", x.resource, x.Name)
		case p == Present:
			found = true
		}
	}
	return found, nil
}

// missing reports whether the cache would have an object that a token is bound to, and has not: it was
// deleted, or is not there yet.
func (c *claims) missing(lookup Lookup) bool {
	_, err := c.cached(lookup)
	return err != nil
}
