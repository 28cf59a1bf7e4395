package agent

import (
	"sync"
	"time"

	"github.com/snapcache/snapcache/config"
)

// settings holds the configuration in force, and the outcome of the newest reload. It is safe for
// concurrent use.
type settings struct {
	requests chan chan<- reloadResult // for reloads; each has a buffer for the result

	mu      sync.Mutex // guards the fields below
	cfg     *config.AgentConfiguration
	loaded  time.Time     // when cfg was read
	refusal string        // why the newest configuration is not in force; empty if it is
	changed chan struct{} // closed by the next change; nil if no one waits
}

func newSettings(cfg *config.AgentConfiguration, now time.Time) *settings {
	return &settings{requests: make(chan chan<- reloadResult), cfg: cfg, loaded: now}
}

// get returns the configuration in force. It is immutable: a reload installs another one.
func (s *settings) get() *config.AgentConfiguration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// set puts a configuration in force.
func (s *settings) set(cfg *config.AgentConfiguration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg, s.loaded = cfg, now
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// note records the result of a reload: the error that refused it, or nil.
func (s *settings) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = ""
	if err != nil {
		s.refusal = joinLines(err)
	}
}

// status returns when the configuration in force was read, and why the newest one was refused; empty
// if it is the one in force.
func (s *settings) status() (loaded time.Time, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded, s.refusal
}

// next returns a channel that is closed by the next change. A caller that gets the channel before it
// reads the configuration misses no change.
func (s *settings) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// reloadable returns a function that returns a part of the configuration in force, and a channel that
// is closed by the next change.
func reloadable[T any](s *settings, part func(*config.AgentConfiguration) T) func() (T, <-chan struct{}) {
	return func() (T, <-chan struct{}) {
		changed := s.next() // before the configuration is read, so that no change is missed
		return part(s.get()), changed
	}
}
