package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/snapcache/snapcache/object"
)

// Version identifies an object and its state.
type Version struct{ Key, UID, RV string }

// VersionsOptions configure [Source.Versions].
type VersionsOptions struct {
	// PageSize is the number of objects per page.
	PageSize int64

	// OneState makes it an error (410) if the server has compacted the state of the first page.
	OneState bool

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
// or have a newer version, but is never reported twice. It returns the resourceVersion of the first
// page.
func (s *Source) Versions(ctx context.Context, opts VersionsOptions, each func(Version) error) (rv string, err error) {
	next, again := "", false
	for {
		p, err := s.versionsPage(ctx, opts.PageSize, next, each)
		if token := continueToken(err); token != "" && !again && !opts.OneState {
			next, again = token, true // continue with the server's token
			continue
		}
		if err == nil && opts.OneState && rv != "" && p.rv != rv {
			err = fmt.Errorf("%w: one page is of %s, another one of %s", ErrBadList, rv, p.rv)
		}
		if err != nil {
			return "", fmt.Errorf("list versions of %s: %w", s, s.scoped(err))
		}
		rv = cmp.Or(rv, p.rv)
		switch p.next {
		case "":
			return rv, nil
		case next:
			return "", fmt.Errorf("list versions of %s: %w: the server sent one continue token twice", s, ErrBadList)
		}
		next, again = p.next, false
		if opts.Between != nil {
			if err := opts.Between(p.remaining); err != nil {
				return "", err
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
	ctx, headers := withAnswer(ctx)
	body, err := r.SetHeader("Accept", acceptVersions).Stream(ctx)
	if err != nil {
		return page{}, err
	}
	defer body.Close()
	deliver := func(parse func([]byte) (Version, error)) func([]byte) error {
		return func(raw []byte) error {
			v, err := parse(raw)
			if err != nil {
				return err
			}
			return each(v)
		}
	}
	var p page
	if headers.mediaType == runtime.ContentTypeProtobuf {
		p, err = parseProtobufPage(body, partialMetadata, func(string) {}, deliver(parsePackedVersion))
	} else {
		p, err = parsePage(body, func(string) {}, deliver(parseVersion), deliver(parseVersion))
	}
	if err == nil && (p.rv == "" || p.rv == "0") {
		err = fmt.Errorf("%w: its resourceVersion is %q", ErrBadList, p.rv)
	}
	return p, err
}

// acceptVersions asks for protobuf first, which takes half of the server's CPU time.
const acceptVersions = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + acceptMetadataList

// partialMetadata is the type of the items of a list of metadata.
var partialMetadata = Resource{GVR: metav1.SchemeGroupVersion.WithResource(""), Kind: "PartialObjectMetadata"}

// parsePackedVersion is [parseVersion] for protobuf.
func parsePackedVersion(raw []byte) (Version, error) {
	o, err := object.FromValid(raw)
	if err != nil {
		return Version{}, fmt.Errorf("%w: %w", ErrBadList, err)
	}
	v := Version{Key: strings.Clone(o.Key()), UID: strings.Clone(string(o.GetUID())), RV: strings.Clone(o.GetResourceVersion())}
	if v.RV == "" {
		return v, fmt.Errorf("%w: %s has no resourceVersion", ErrBadList, v.Key)
	}
	return v, nil
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
