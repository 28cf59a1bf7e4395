package bolt

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

// at calls compactStep.
func (h *hooks) at(step string) error {
	if h == nil || h.compactStep == nil {
		return nil
	}
	return h.compactStep(step)
}
