package bolt

import (
	"bytes"
	"sync"

	"github.com/snapcache/snapcache/store"
)

// heads remembers the decoded info and state of each collection, with the bytes
// that they were decoded from. A list looks up every one of its items in a view of
// its own; without this, most of that time would go into decoding the same JSON.
type heads struct {
	mu sync.Mutex
	m  map[string]head
}

type head struct {
	rawInfo, rawState []byte
	info              store.Info
	state             store.State
}

// read decodes info and state of a collection.
func (h *heads) read(path, id string, rawInfo, rawState []byte) (store.Info, store.State, error) {
	h.mu.Lock()
	known, ok := h.m[id]
	h.mu.Unlock()
	sameInfo, sameState := ok && bytes.Equal(known.rawInfo, rawInfo), ok && bytes.Equal(known.rawState, rawState)
	if sameInfo && sameState {
		return known.info, known.state, nil
	}
	var err error
	if !sameInfo {
		if known.info, err = decodeInfo(path, id, rawInfo); err != nil {
			return store.Info{}, store.State{}, err
		}
		known.rawInfo = bytes.Clone(rawInfo)
	}
	if !sameState {
		if known.state, err = decodeState(path, id, rawState); err != nil {
			return store.Info{}, store.State{}, err
		}
		known.rawState = bytes.Clone(rawState)
	}
	h.keep(id, known)
	return known.info, known.state, nil
}

func (h *heads) keep(id string, known head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[string]head{}
	}
	h.m[id] = known
}
