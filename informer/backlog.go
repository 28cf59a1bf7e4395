package informer

import "github.com/snapcache/snapcache/internal/spool"

const (
	// lateAfter is how many deliveries of a handler's backlog have their objects in memory, and the rest of
	// the batch that exceeds it: the objects of later ones are in a file.
	lateAfter = 128

	// backlogBytes is the size of a file of objects, which is freed with the last of them.
	backlogBytes = 16 << 20
)

// lateLocked reports whether a handler is late for some changes. Their objects are then for the backlog's
// file.
func (p *Processor) lateLocked(changes int) bool {
	if memoryOf(p.opts.Collection) != nil { // it has the objects anyway
		return false
	}
	for r := range p.listeners {
		if r.late(changes) {
			return true
		}
	}
	p.backlog = nil
	return false
}

// spoolLocked moves the object of a new value to the backlog's file. Without disk space it stays in memory.
func (p *Processor) spoolLocked(v *value) {
	if p.backlog == nil || p.backlog.Bytes() >= backlogBytes {
		p.backlog = spool.NewRecords(p.opts.SpoolDir)
	}
	place, err := p.backlog.AddObject(v.object)
	if err != nil {
		p.backlog = nil // nothing more can be added to it
		return
	}
	v.object, v.spooled = nil, place
}
