package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// refusal is why a directory can't be used.
type refusal struct {
	dir    string
	err    error
	reason string // one of a closed set, for the metric
	remedy string
}

// The reasons, and what to do. The disk comes first: a corrupt file that can't be set aside is an error of
// the disk too.
var reasons = []struct {
	reason  string
	matches func(error) bool
	remedy  string
}{
	{"read-only", is(syscall.EROFS), "mount a writable volume there: an emptyDir is enough"},
	{"permission", is(fs.ErrPermission), "let this process's user write there: fsGroup of the pod, or chown"},
	{"not-a-directory", is(syscall.ENOTDIR), "name a directory, or move the file away"},
	{"network", is(store.ErrNetworkFS), "name a directory on a local disk: an emptyDir is enough"},
	{"in-use", is(store.ErrLocked), "give each process a directory of its own, such as an emptyDir; a volume that two pods share needs the strategy Recreate"},
	{"newer-format", is(store.ErrNewerFormat), "run the version that wrote the file, or a later one, or delete the file"},
	{"foreign", is(store.ErrForeign, store.ErrKey), "name another directory, or move the file " + FileName + " away"},
	{"full", full, "free space, or raise the volume's size"},
}

// other is the reason for all other errors.
const other = "other"

// refusal returns the reason for an error.
func (opts *Options) refusal(err error) refusal {
	for _, r := range reasons {
		if r.matches(err) {
			return refusal{opts.Dir, err, r.reason, r.remedy}
		}
	}
	return refusal{opts.Dir, err, other, "name another directory"}
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

// full reports whether the disk is full; a disk that refuses writes for another reason has matched before.
func full(err error) bool { return errors.Is(err, bolt.ErrNoRoom) || files.RefusesWrites(err) }

// error returns the error of a cache that is required.
func (r refusal) error() error {
	return &store.Error{Err: fmt.Errorf("durable cache in %s: %w", r.dir, r.err), Hint: r.remedy}
}
