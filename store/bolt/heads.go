package bolt

import (
	"bytes"
	"sync"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/internal/history"
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

	rawHistory []byte
	history    history.Head
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

// changed takes note of a collection's new state, so that nobody has to decode it.
func (h *heads) changed(id string, rawState []byte, state store.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.m[id]; ok {
		// What is decoded has no monotonic clock.
		for _, t := range []*time.Time{&state.LastEvent, &state.LastBookmark, &state.LastList} {
			*t = t.Round(0)
		}
		known.rawState, known.state = rawState, state
		h.m[id] = known
	}
}

// historyOf decodes the head of a collection's history.
func (h *heads) historyOf(id string, raw []byte) (head history.Head, err error) {
	h.mu.Lock()
	known, ok := h.m[id]
	h.mu.Unlock()
	if ok && len(raw) > 0 && bytes.Equal(known.rawHistory, raw) {
		return known.history, nil
	}
	if err := format.DecodeJSON(id, format.KeyHistory, raw, &head); err != nil {
		return head, err
	}
	h.recorded(id, bytes.Clone(raw), head)
	return head, nil
}

// recorded takes note of the new head of a collection's history.
func (h *heads) recorded(id string, raw []byte, head history.Head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.m[id]; ok {
		known.rawHistory, known.history = raw, head
		h.m[id] = known
	}
}

func (h *heads) keep(id string, known head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[string]head{}
	}
	h.m[id] = known
}
