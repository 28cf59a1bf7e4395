package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/snapcache/snapcache/object"
)

// Version is which object is at a key, and how new it is.
type Version struct{ Key, UID, RV string }

// VersionsOptions say how to read versions.
type VersionsOptions struct {
	// PageSize is the number of objects to ask for at once.
	PageSize int64

	// Between is called between two pages with how many objects are still to come, -1
	// where that is not known; its error ends the reading. nil for nobody.
	Between func(remaining int64) error
}

// Versions calls each for every object in the source's scope, in the order of the
// server, which is that of keys for all that is in etcd. Only metadata goes over the
// network, and one object's of it is in memory.
//
// It takes as long as each and Between do. Where the server has forgotten the state of
// the first page meanwhile, it goes on in a newer one: what changed since may then be
// left out or come in another version, never twice.
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

// continueToken is what a server that has forgotten the state of the first page (410)
// sends to go on with; empty for none.
func continueToken(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsResourceExpired(err) {
		return ""
	}
	return status.Status().Continue
}

func (s *Source) versionsPage(ctx context.Context, size int64, next string, each func(Version) error) (page, error) {
	r, err := s.request()
	if err != nil {
		return page{}, err
	}
	r.SetHeader("Accept", acceptMetadataList).SetHeader("Accept-Encoding", "gzip").Param("limit", strconv.FormatInt(size, 10))
	if next != "" {
		r.Param("continue", next).MaxRetries(pageRetries)
	}
	body, err := r.Stream(ctx)
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

// parseVersion reads the version in an object's metadata, which is at path in raw.
func parseVersion(raw []byte, path string) (Version, error) {
	m := gjson.GetBytes(raw, path)
	// Clones, so that the rest of the metadata can go.
	v := Version{
		Key: strings.Clone(object.Key(m.Get("namespace").String(), m.Get("name").String())),
		UID: strings.Clone(m.Get("uid").String()), RV: strings.Clone(m.Get("resourceVersion").String()),
	}
	if m.Get("name").Str == "" || v.RV == "" {
		return v, fmt.Errorf("%w: an object has no name or resourceVersion", ErrBadList)
	}
	return v, nil
}

// Current is what the server has under a key.
type Current struct {
	// Exists says whether there is an object in the source's scope. UID and RV are its
	// own.
	Exists  bool
	UID, RV string

	// At is a resourceVersion at which that is so.
	At string
}

// Current asks what the server has under a key now, metadata only. That there is
// nothing is no error.
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
		body, err := s.client.Get().NamespaceIfScoped(namespace, namespace != "").
			Resource(s.opts.Resource.GVR.Resource).Name(name).
			SetHeader("Accept", acceptMetadata).MaxRetries(0).Stream(ctx)
		if err == nil {
			defer body.Close()
			return readCurrent(body, key, "metadata")
		}
		if !isGone(err) {
			return Current{}, err
		}
	}
	// A list tells since when there is nothing, and knows what selectors mean.
	r, err := s.only(namespace, name).request()
	if err != nil {
		return Current{}, err
	}
	body, err := r.SetHeader("Accept", acceptMetadataList).SetHeader("Accept-Encoding", "gzip").Param("limit", "1").Stream(ctx)
	if err != nil {
		return Current{}, err
	}
	defer body.Close()
	return readCurrent(body, key, "items.0.metadata")
}

// readCurrent reads an answer that has an object's metadata at path, or is a list
// that has none.
func readCurrent(body io.Reader, key, path string) (Current, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxObject+1))
	switch {
	case err != nil:
		return Current{}, err
	case len(raw) > maxObject:
		return Current{}, ErrTooLarge
	case !validJSON(raw):
		return Current{}, object.ErrInvalid
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
