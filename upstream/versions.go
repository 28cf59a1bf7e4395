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

	// Between, if not nil, is called between two pages with the number of remaining objects, -1 if
	// unknown. If it returns an error, Versions ends with that error.
	Between func(remaining int64) error
}

// Versions calls each for every object in the source's scope, in the server's order, which is key
// order for objects in etcd. Only metadata goes over the network, and only one object's is in
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
			next, again = token, true // continue with the server's token
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
	item := func(raw []byte) error {
		v, err := parseVersion(raw)
		if err != nil {
			return err
		}
		return each(v)
	}
	p, err := parsePage(body, func(string) {}, item, item)
	if err == nil && p.rv == "" {
		err = fmt.Errorf("%w: it has no resourceVersion", ErrBadList)
	}
	return p, err
}

// parseVersion reads the version from an object's metadata.
func parseVersion(raw []byte) (Version, error) {
	m := gjson.GetBytes(raw, "metadata")
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
