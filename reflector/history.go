package reflector

import (
	"fmt"
	"sync"

	"github.com/snapcache/snapcache/store"
)

// History is the knowledge that the reflectors of one server's datastore share: if one of them has the proof that
// the datastore was restored from a backup, no checkpoint from before that is used. A single collection may
// lack a proof: what it knows is the same in both histories, but other objects came and went. It is safe for
// concurrent use; the zero History has no proof.
type History struct {
	mu      sync.Mutex
	proofs  int
	newest  error         // the newest proof
	changed chan struct{} // closed by the next proof; nil if no one waits
}

// Member is a collection of a [History], for one reflector at a time. A nil Member shares nothing.
type Member struct {
	of     *History
	proves bool
	proofs int // that the collection's newest list has followed
}

// Join returns a member whose checkpoint is from before all proofs. If proves is not set, the collection may be
// of another datastore: it follows the proofs of others, but its own are not theirs.
func (h *History) Join(proves bool) *Member { return &Member{of: h, proves: proves} }

// prove notes that the collection's own checkpoint was of another history. If the collection has to follow
// a proof of another one anyway, both are proofs of the same restore.
func (m *Member) prove(why error) {
	if m == nil || !m.proves {
		return
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.proofs < m.of.proofs {
		return
	}
	m.of.proofs++
	m.of.newest = why
	if m.of.changed != nil {
		close(m.of.changed)
		m.of.changed = nil
	}
}

// follow returns a [*RelistError] if there is a proof that is newer than the collection's newest list.
func (m *Member) follow() error {
	if m == nil {
		return nil
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.proofs == m.of.proofs {
		return nil
	}
	return &RelistError{Reason: store.ReasonRVAhead, Err: fmt.Errorf("another collection has shown that the server was restored: %w", m.of.newest)}
}

// begin returns what to give to listed once a list that begins now is complete.
func (m *Member) begin() int {
	if m == nil {
		return 0
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	return m.of.proofs
}

func (m *Member) listed(proofs int) {
	if m != nil {
		m.proofs = proofs
	}
}

// next returns a channel that is closed by the next proof. A caller that gets the channel before it calls
// follow misses none.
func (m *Member) next() <-chan struct{} {
	if m == nil {
		return nil
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.of.changed == nil {
		m.of.changed = make(chan struct{})
	}
	return m.of.changed
}
