package bolt

import (
	"cmp"

	"github.com/snapcache/snapcache/store/bolt/internal/boltfile"
)

// hooks are what a test changes in a database; nil in production. A zero field changes nothing.
type hooks struct {
	// byHand starts nothing in the background, so that tests of crashes can repeat a sequence of steps.
	byHand bool

	// stepRecords replaces the constant of that name, and sliceBytes the one of writeback, so that a
	// few objects make several steps of a build, and slices of a fold.
	stepRecords, sliceBytes int

	// foldStep is called between two slices of a fold, and compactStep when the new file of a
	// compaction is "begun", "copied", "synced" and "named". Their error ends the work there, because a
	// crash at any of these places must lose nothing.
	foldStep    func() error
	compactStep func(step string) error

	// freeDisk and networkFS replace those of boltfile, because a test can't fill a disk or mount one
	// over a network.
	freeDisk  func(dir string) (int64, error)
	networkFS func(path string) (string, error)
}

// records returns how many records a step of a build files at most.
func (h *hooks) records() int {
	if h == nil {
		return stepRecords
	}
	return cmp.Or(h.stepRecords, stepRecords)
}

// free returns the free bytes of the disk of dir.
func (h *hooks) free(dir string) (int64, error) {
	if h == nil || h.freeDisk == nil {
		return boltfile.FreeDisk(dir)
	}
	return h.freeDisk(dir)
}

// network returns the network file system that path is on, empty for none.
func (h *hooks) network(path string) (string, error) {
	if h == nil || h.networkFS == nil {
		return boltfile.NetworkFS(path)
	}
	return h.networkFS(path)
}

// at calls compactStep.
func (h *hooks) at(step string) error {
	if h == nil || h.compactStep == nil {
		return nil
	}
	return h.compactStep(step)
}
