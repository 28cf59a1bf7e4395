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
	compactStep func(compactStep) error // at each step of a compaction
	freeDisk    func(dir string) (int64, error)
	networkFS   func(path string) (string, error)
}

// withDefaults returns h with the values of production for unset fields. In production h is nil.
func (h *hooks) withDefaults() hooks {
	var d hooks
	if h != nil {
		d = *h
	}
	d.stepRecords = cmp.Or(d.stepRecords, stepRecords)
	d.compactMinFree = cmp.Or(d.compactMinFree, compactMinFree)
	d.sliceBytes = cmp.Or(d.sliceBytes, writeback.SliceBytes)
	if d.foldStep == nil {
		d.foldStep = func() error { return nil }
	}
	if d.compactStep == nil {
		d.compactStep = func(compactStep) error { return nil }
	}
	if d.freeDisk == nil {
		d.freeDisk = boltfile.FreeDisk
	}
	if d.networkFS == nil {
		d.networkFS = boltfile.NetworkFS
	}
	return d
}
