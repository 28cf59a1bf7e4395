// Package bundle reads the objects in a support bundle of Troubleshoot (troubleshoot.sh): a tar archive,
// packed with gzip, in which the files in the folder cluster-resources are lists of objects.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
)

const (
	// folder has the objects, in each bundle below one of the bundle's own name.
	folder = "/cluster-resources/"

	// discovery is the file with what the server served, as lists of API resources.
	discovery = folder + "resources.json"

	// maxBytes limits what is read of a bundle, which is kept in memory.
	maxBytes = 1 << 30
)

// ErrNone means that a file is no support bundle.
var ErrNone = errors.New("no support bundle")

// Is reports whether a file may be a support bundle: whether it is packed with gzip.
func Is(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // opened for reading
	head := make([]byte, 2)
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == "\x1f\x8b"
}

// Open reads the objects of a bundle into memory, as a collection for each resource that it has a list of.
// The time of the archive is that of the collections. The error is ErrNone if there is none.
func Open(file string) (store.DB, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	files, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("support bundle %s: %w", file, err)
	}
	db, err := load(files, info.ModTime())
	if err != nil {
		return nil, fmt.Errorf("support bundle %s: %w", file, err)
	}
	return db, nil
}

// read returns the files of objects, as JSON, by their paths from folder on.
func read(r io.Reader) (map[string][]byte, error) {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	files, left := map[string][]byte{}, int64(maxBytes)
	for archive := tar.NewReader(unpacked); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		_, name, found := strings.Cut("/"+path.Clean(h.Name), folder)
		extension := path.Ext(name)
		if !found || h.Typeflag != tar.TypeReg || !slices.Contains([]string{".json", ".yaml", ".yml"}, extension) {
			continue
		}
		if left -= h.Size; left < 0 {
			return nil, fmt.Errorf("its objects have more than %d MiB", maxBytes>>20)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		if extension != ".json" {
			if body, err = yaml.YAMLToJSON(body); err != nil {
				return nil, fmt.Errorf("%s: %w", h.Name, err)
			}
		}
		files[folder+name] = body
	}
}

// load makes the collections.
func load(files map[string][]byte, at time.Time) (store.DB, error) {
	var served []*metav1.APIResourceList
	if body := files[discovery]; body != nil {
		if err := json.Unmarshal(body, &served); err != nil {
			return nil, fmt.Errorf("%s: %w", discovery, err)
		}
	}
	all := newResources(served)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := all.add(name, bytes.TrimSpace(files[name])); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(all.found) == 0 {
		return nil, fmt.Errorf("%w: it has no objects in %s", ErrNone, folder)
	}
	db := memory.New(memory.WithoutHistory())
	for _, r := range all.found {
		description, err := all.describe(r)
		if err != nil {
			return nil, err
		}
		if err := r.store(db, description, at); err != nil {
			return nil, fmt.Errorf("%s: %w", r.info.ID, err)
		}
	}
	return db, nil
}
