package quota

import "sync"

// Shares divides places, or bytes, among clients, which hold them for as long as they like. A client has at
// most as many as it leaves free: alone it gets half of them, beside another one a third, so that none takes
// them all, and none has to be known beforehand. It is safe for concurrent use.
type Shares struct {
	places int64

	mu   sync.Mutex
	used int64
	held map[any]int64 // by client
}

// NewShares returns a number of places, all of them free.
func NewShares(places int64) *Shares { return &Shares{places: places, held: map[any]int64{}} }

// Enter gives a client, which any comparable value identifies, a place, if there is one for it. If so,
// Leave has to follow.
func (s *Shares) Enter(client any) bool { return s.Take(client, 1) }

// Leave frees a place of a client.
func (s *Shares) Leave(client any) { s.Give(client, 1) }

// Take gives a client n places, if there are as many for it. If so, Give has to follow.
func (s *Shares) Take(client any, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client]+s.used+2*n > s.places+1 {
		return false
	}
	s.used += n
	s.held[client] += n
	return true
}

// Give frees n places of a client.
func (s *Shares) Give(client any, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.held[client] -= n; s.held[client] == 0 {
		delete(s.held, client)
	}
}

// Used returns how many places are not free.
func (s *Shares) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.used)
}
