package quota

import "sync"

// Shares divides places among clients, which hold them for as long as they like. A client has at most as
// many as it leaves free: alone it gets half of them, beside another one a third, so that none takes them
// all, and none has to be known beforehand. It is safe for concurrent use.
type Shares struct {
	places int

	mu   sync.Mutex
	used int
	held map[any]int // by client
}

// NewShares returns a number of places, all of them free.
func NewShares(places int) *Shares { return &Shares{places: places, held: map[any]int{}} }

// Enter gives a client, which any comparable value identifies, a place, if there is one for it. If so,
// Leave has to follow.
func (s *Shares) Enter(client any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client]+s.used >= s.places {
		return false
	}
	s.used++
	s.held[client]++
	return true
}

// Leave frees a place of a client.
func (s *Shares) Leave(client any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.held[client]--; s.held[client] == 0 {
		delete(s.held, client)
	}
}

// Used returns how many places are not free.
func (s *Shares) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
