package bolt

import (
	"cmp"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
	"github.com/snapcache/snapcache/store/bolt/internal/writeback"
)

// hooks are the settings that tests change.
type hooks struct {
	byHand         bool  // nothing starts in the background
	stepRecords    int   // in place of the constant of that name
	compactMinFree int64 // in place of the constant of that name
	compactAnyway  bool  // a compaction replaces the file even if it saves nothing
	sliceBytes     int   // see writeback.SliceBytes
	maxMapBytes    int64 // see boltfile.Options

	foldStep    func() error            // between two slices of a fold
	compactStep func(step string) error // when the new file of a compaction is "begun", "copied", "synced", "named"
	freeDisk    func(dir string) (int64, error)
	networkFS   func(path string) (string, error)
}

// setDefaults sets the hooks that are zero to the values of production.
func (h *hooks) setDefaults() {
	h.stepRecords = cmp.Or(h.stepRecords, stepRecords)
	h.compactMinFree = cmp.Or(h.compactMinFree, compactMinFree)
	h.sliceBytes = cmp.Or(h.sliceBytes, writeback.SliceBytes)
	if h.foldStep == nil {
		h.foldStep = func() error { return nil }
	}
	if h.compactStep == nil {
		h.compactStep = func(string) error { return nil }
	}
	if h.freeDisk == nil {
		h.freeDisk = boltfile.FreeDisk
	}
	if h.networkFS == nil {
		h.networkFS = boltfile.NetworkFS
	}
}
