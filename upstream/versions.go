package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/object"
)

// Version identifies an object and its state.
type Version struct{ Key, UID, RV string }

// VersionsOptions configure [Source.Versions].
type VersionsOptions struct {
	// PageSize is the number of objects per page.
	PageSize int64

	// Between, if not nil, is called between two pages with how many objects are still to come, -1
	// if unknown. Its error ends the reading.
	Between func(remaining int64) error
}

// Versions calls each for every object in the source's scope, in the server's order, which is key
// order for all that is in etcd. Only metadata goes over the network, and only one object's is in
// memory.
//
// It takes as long as each and Between take. If the server has compacted the state of the first
// page meanwhile, Versions continues in a newer one: an object that changed since may be left out
// or have a newer version, but is never reported twice.
func (s *Source) Versions(ctx context.Context, opts VersionsOptions, each func(Version) error) error {
	next, again := "", false
	for {
		p, err := s.versionsPage(ctx, opts.PageSize, next, each)
		if token := continueToken(err); token != "" && !again {
			next, again = token, true // as the server proposes it
			continue
		}
		if err != nil {
			return fmt.Errorf("list versions of %s: %w", s, s.scoped(err))
		}
		switch p.next {
		case "":
			return nil
		case next:
			return fmt.Errorf("list versions of %s: %w: the server sent one continue token twice", s, ErrBadList)
		}
		next, again = p.next, false
		if opts.Between != nil {
			if err := opts.Between(p.remaining); err != nil {
				return err
			}
		}
	}
}

// continueToken returns the token with which to continue after the server has compacted the state
// of the first page (410), or "".
func continueToken(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsResourceExpired(err) {
		return ""
	}
	return status.Status().Continue
}

func (s *Source) versionsPage(ctx context.Context, size int64, next string, each func(Version) error) (page, error) {
	r, err := s.pageRequest(size, next)
	if err != nil {
		return page{}, err
	}
	body, err := r.SetHeader("Accept", acceptMetadataList).Stream(ctx)
	if err != nil {
		return page{}, err
	}
	defer body.Close()
	p, err := parsePage(body, func(raw []byte) error {
		v, err := parseVersion(raw, "metadata")
		if err != nil {
			return err
		}
		return each(v)
	})
	if err == nil && p.rv == "" {
		err = fmt.Errorf("%w: it has no resourceVersion", ErrBadList)
	}
	return p, err
}

// parseVersion reads the version from an object's metadata at path in raw.
func parseVersion(raw []byte, path string) (Version, error) {
	m := gjson.GetBytes(raw, path)
	// Clones, so that the rest of the metadata can be freed.
	v := Version{
		Key: strings.Clone(object.Key(m.Get("namespace").String(), m.Get("name").String())),
		UID: strings.Clone(m.Get("uid").String()), RV: strings.Clone(m.Get("resourceVersion").String()),
	}
	if m.Get("name").Str == "" || v.RV == "" {
		return v, fmt.Errorf("%w: an object has no name or resourceVersion", ErrBadList)
	}
	return v, nil
}

// Current is the server's state of a key.
type Current struct {
	// Exists reports whether there is an object in the source's scope. UID and RV are the object's.
	Exists  bool
	UID, RV string

	// At is a resourceVersion at which that holds.
	At string
}

// Current returns what the server has at key now, from metadata only. A missing object is not an
// error.
func (s *Source) Current(ctx context.Context, key string) (Current, error) {
	c, err := s.current(ctx, key)
	if err != nil {
		return c, fmt.Errorf("look up an object of %s: %w", s, err)
	}
	return c, nil
}

func (s *Source) current(ctx context.Context, key string) (Current, error) {
	namespace, name := split(key)
	if s.err != nil {
		return Current{}, s.err
	}
	if s.opts.LabelSelector == "" && s.opts.FieldSelector == "" {
		raw, err := s.fetch(ctx, namespace, name, acceptMetadata)
		if !errors.Is(err, ErrNoObject) {
			return readCurrent(raw, err, key, "metadata")
		}
	}
	// A list returns the resourceVersion at which there is no object, and evaluates selectors.
	raw, err := s.only(namespace, name).first(ctx, "")
	return readCurrent(raw, err, key, "items.0.metadata")
}

// readCurrent reads an answer that has an object's metadata at path, or is an empty list. It returns
// err if that is set.
func readCurrent(raw []byte, err error, key, path string) (Current, error) {
	if err != nil {
		return Current{}, err
	}
	if items := gjson.GetBytes(raw, "items"); items.Exists() && len(items.Array()) == 0 {
		at := gjson.GetBytes(raw, "metadata.resourceVersion").String()
		if at == "" {
			return Current{}, ErrBadList
		}
		return Current{At: at}, nil
	}
	v, err := parseVersion(raw, path)
	if err != nil {
		return Current{}, err
	}
	if v.Key != key {
		return Current{}, errors.New("the server sent another object")
	}
	return Current{Exists: true, UID: v.UID, RV: v.RV, At: v.RV}, nil
}
