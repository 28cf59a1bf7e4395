package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/store/bolt"
)

const (
	// folder has the objects, in each bundle below one of the bundle's own name.
	folder = "/cluster-resources/"

	// discovery is the file with the server's lists of API resources.
	discovery = folder + "resources.json"
)

// archive is the file of a bundle.
type archive struct {
	ctx  context.Context
	file string
	opts Options

	size   int64     // of the file, in bytes
	at     time.Time // of the file
	served []*metav1.APIResourceList
}

// errStop ends a walk early.
var errStop = errors.New("stop")

// walk calls each with the files that may have objects, by their paths from folder on. If the archive ends
// early, or is corrupt from some place on, cut is the reason. err is an error of reading the file, of each
// or of the context.
func (a *archive) walk(progress func(done, total int64), each func(name string, h *tar.Header, body io.Reader) error) (cut, err error) {
	f, err := os.Open(a.file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	a.size, a.at = info.Size(), info.ModTime()
	from := &source{ctx: a.ctx, r: f, each: func(done int64) {
		if progress != nil {
			progress(done, a.size)
		}
	}}
	unpacked, err := gzip.NewReader(bufio.NewReaderSize(from, 64<<10))
	if err != nil {
		return nil, errors.Join(err, from.err)
	}
	for entries := tar.NewReader(unpacked); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) || from.err != nil {
			return nil, from.err
		}
		if err != nil {
			return err, nil
		}
		_, name, found := strings.Cut("/"+path.Clean(h.Name), folder)
		if !found || h.Typeflag != tar.TypeReg || !slices.Contains([]string{".json", ".yaml", ".yml"}, path.Ext(name)) {
			continue
		}
		if err := each(folder+name, h, entries); from.err != nil || err != nil {
			return nil, errors.Join(err, from.err)
		}
	}
}

// discover reads which resources the server served. Without them, names are guessed.
func (a *archive) discover() error {
	_, err := a.walk(nil, func(name string, _ *tar.Header, body io.Reader) error {
		if name != discovery {
			return nil
		}
		raw, err := io.ReadAll(io.LimitReader(body, maxDiscoveryBytes+1))
		switch {
		case a.ctx.Err() != nil:
			return a.ctx.Err()
		case len(raw) > maxDiscoveryBytes:
			err = fmt.Errorf("it has more than %d MiB", maxDiscoveryBytes>>20)
		case err == nil:
			err = checkValues(raw)
		}
		if err == nil {
			err = json.Unmarshal(raw, &a.served)
		}
		if err != nil {
			a.served = nil
			a.warn("%s can't be read, so the names of resources are guesses: %v", name, err)
		}
		return errStop
	})
	if errors.Is(err, errStop) {
		return a.ctx.Err()
	}
	return err
}

// checkValues returns an error if JSON that is to be decoded has too many values: a Go value of some hundred
// bytes may stand for two bytes of it.
func checkValues(raw []byte) error {
	if bytes.Count(raw, []byte(",")) > maxValues {
		return fmt.Errorf("it has more than %d values", maxValues)
	}
	return nil
}

// load stores the objects.
func (a *archive) load(db *bolt.DB) error {
	all := newResources(a.served, db, a.at)
	left, last := int64(maxBytes), "its beginning"
	cut, err := a.walk(a.opts.Progress, func(name string, h *tar.Header, body io.Reader) error {
		last = name
		if name == discovery {
			return nil
		}
		if h.Size > maxFileBytes {
			a.warn("%s is left out: it has %d bytes, more than %d MiB", name, h.Size, maxFileBytes>>20)
			return nil
		}
		if left -= h.Size; left < 0 {
			return fmt.Errorf("its objects have more than %d MiB", maxBytes>>20)
		}
		before := all.count
		err := all.add(a.ctx, name, body)
		switch {
		case a.ctx.Err() != nil:
			return a.ctx.Err()
		case errors.As(err, new(*fatalError)):
			return err
		case err != nil:
			a.warn("%s can't be read to its end: %v; served objects of it: %d", name, err, all.count-before)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if cut != nil {
		a.warn("the archive can't be read to its end: %v: what comes after %s is missing", cut, last)
	}
	if len(all.found) == 0 {
		if cut != nil {
			return fmt.Errorf("%w: %w", ErrNone, cut)
		}
		return fmt.Errorf("%w: it has no objects in %s", ErrNone, folder)
	}
	return all.commit(a.warn)
}

func (a *archive) warn(format string, args ...any) {
	if a.opts.Warn != nil {
		a.opts.Warn(fmt.Sprintf(format, args...))
	}
}

// source is an io.Reader that ends with its context, reports its progress and keeps its error.
type source struct {
	ctx  context.Context
	r    io.Reader
	each func(done int64)
	done int64
	err  error // other than io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	if s.err = s.ctx.Err(); s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	s.done += int64(n)
	s.each(s.done)
	return n, err
}
