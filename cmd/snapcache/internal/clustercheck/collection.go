package clustercheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/upstream"
)

const (
	// pageSize is the size of the agent's pages.
	pageSize = 500

	// watchTimeout is the timeout of a watch that is only to be answered: the shortest there is.
	watchTimeout = time.Second

	// longWatch is the timeout of the watch for a bookmark, as long as one of an agent: a server also sends a
	// bookmark shortly before the timeout.
	longWatch = 5 * time.Minute

	// verified is the number of objects whose versions an agent compares before it resumes.
	verified = 3
)

var errNoRV = errors.New("the resourceVersions are not in an order")

// state is an object without its content.
type state struct {
	key, rv string
	changed time.Time // by its managedFields or its creation; zero if it has neither
}

// measure measures the costs and the window, and returns the resourceVersion of the list. The bookmark is measured later.
func measure(ctx context.Context, c *Collection, source *upstream.Source, progress func(string, ...any)) (rv string, err error) {
	var objects []state
	counted, t := counting(ctx)
	opts := upstream.ListOptions{PageSize: pageSize, Progress: func(n, remaining int64) {
		if remaining < 0 {
			progress("%s: %d objects", c.Collection, n)
			return
		}
		progress("%s: %d of %d objects", c.Collection, n, n+remaining)
	}}
	rv, err = source.List(counted, opts, func(o *object.Object) error {
		objects = append(objects, stateOf(o))
		return nil
	})
	if err != nil {
		return "", err
	}
	c.List, c.Objects = t.cost(), int64(len(objects))
	ordered := !slices.ContainsFunc(objects, func(o state) bool { return !object.IsDecimalRV(o.rv) })
	slices.SortFunc(objects, func(a, b state) int {
		order, _ := object.CompareRV(a.rv, b.rv)
		return order
	})
	if c.Resume, err = resume(ctx, source, rv, objects[max(0, len(objects)-verified):]); err != nil {
		return "", err
	}
	if !ordered {
		return "", errNoRV
	}
	progress("%s: how far back a watch resumes", c.Collection)
	if c.Window, err = window(ctx, source, objects); err != nil {
		return "", fmt.Errorf("how far back a watch resumes: %w", err)
	}
	return rv, nil
}

func stateOf(o *object.Object) state {
	s := state{key: strings.Clone(o.Key()), rv: strings.Clone(o.GetResourceVersion())}
	m := gjson.GetManyBytes(o.Raw(), "metadata.creationTimestamp", "metadata.managedFields.#.time")
	for _, at := range append(m[1].Array(), m[0]) {
		if at, err := time.Parse(time.RFC3339, at.Str); err == nil && at.After(s.changed) {
			s.changed = at
		}
	}
	return s
}

// resume makes the requests of an agent that resumes a watch, up to its first answer.
func resume(ctx context.Context, source *upstream.Source, rv string, newest []state) (Cost, error) {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	ctx, t := counting(ctx)
	if err := source.Probe(ctx, rv); err != nil {
		return Cost{}, err
	}
	for _, o := range newest {
		if _, err := source.Current(ctx, o.key, rv); err != nil && upstream.Classify(err) != upstream.Expired {
			return Cost{}, err
		}
	}
	w, err := source.Watch(ctx, rv, watchTimeout)
	if err != nil {
		return Cost{}, err
	}
	cost := t.cost() // a watch has no end to wait for
	w.Stop()
	return cost, nil
}

// window finds the oldest object from whose resourceVersion a watch resumes. objects are in the order of these.
func window(ctx context.Context, source *upstream.Source, objects []state) (w Window, failed error) {
	at := sort.Search(len(objects), func(i int) bool {
		if failed != nil {
			return true
		}
		ok, err := resumes(ctx, source, objects[i].rv)
		failed = err
		return ok
	})
	if failed != nil {
		return Window{}, failed
	}
	w.Known = true
	if at > 0 {
		w.Expired = objects[at-1].rv
	}
	if at < len(objects) {
		w.ResumesFrom = objects[at].rv
		if changed := objects[at].changed; !changed.IsZero() {
			w.Changed = &changed
		}
	}
	return w, nil
}

// resumes reports whether a watch from rv has an answer other than 410: an event, or silence until it ends.
func resumes(ctx context.Context, source *upstream.Source, rv string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, smallTimeout)
	defer cancel()
	w, err := source.Watch(ctx, rv, watchTimeout)
	if err == nil {
		e := <-w.ResultChan()
		w.Stop()
		err = errorOf(e)
	}
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case upstream.Classify(err) == upstream.Expired:
		return false, nil
	}
	return err == nil, err
}

// errorOf returns the error of an ERROR event.
func errorOf(e watch.Event) error {
	if status, ok := e.Object.(*metav1.Status); ok && e.Type == watch.Error {
		return apierrors.FromObject(status)
	}
	return nil
}

// awaitBookmark watches from rv until a bookmark arrives, at most for limit.
func awaitBookmark(ctx context.Context, source *upstream.Source, rv string, limit time.Duration) (b Bookmark) {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	w, err := source.Watch(waiting, rv, longWatch)
	if err == nil {
		for e := range w.ResultChan() {
			if err = errorOf(e); e.Type == watch.Bookmark {
				b.Arrived = true
				break
			}
		}
		w.Stop()
	}
	b.AfterSeconds = time.Since(began).Seconds()
	switch {
	case b.Arrived:
	case waiting.Err() == nil && err != nil:
		b.Problem = upstream.Describe(err)
	case waiting.Err() == nil:
		b.Problem = "the server ended the watch before its timeout"
	default:
		small, cancel := context.WithTimeout(ctx, smallTimeout)
		defer cancel()
		newest, err := source.Newest(small)
		b.NotDue = err == nil && newest == rv
	}
	return b
}
