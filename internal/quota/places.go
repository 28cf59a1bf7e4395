package quota

import "sync"

// Places limits how many of something there are at once. A client gets no more when it has as many as are
// free: so the first one gets half of them, and however many some take, there are some for others. It is
// safe for concurrent use.
type Places struct {
	mu   sync.Mutex
	free int
	of   map[any]int // of each client that has some
}

// NewPlaces returns so many places.
func NewPlaces(n int) *Places { return &Places{free: n, of: map[any]int{}} }

// Take takes a place for a client, which any comparable value identifies, if there is one for it. Then
// Leave has to follow.
func (p *Places) Take(client any) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[client] >= p.free {
		return false
	}
	p.free--
	p.of[client]++
	return true
}

// Leave frees a place of a client.
func (p *Places) Leave(client any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.of[client]--; p.of[client] == 0 {
		delete(p.of, client)
	}
}
