package bolt

import (
	"bytes"
	"sync"
	"time"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"github.com/snapcache/snapcache/store/internal/history"
)

// metaCache has the decoded info, state and history head of each collection, with the bytes
// that they were decoded from. A list looks up each of its items in a view of its own:
// without the cache, most of that time would go into decoding the same JSON. It is safe
// for concurrent use.
type metaCache struct {
	mu sync.Mutex
	m  map[string]cachedMeta
}

type cachedMeta struct {
	rawInfo, rawState []byte
	info              store.Info
	state             store.State

	rawHistory []byte
	history    history.Head
}

// read decodes info and state of a collection.
func (c *metaCache) read(path, id string, rawInfo, rawState []byte) (store.Info, store.State, error) {
	c.mu.Lock()
	known, ok := c.m[id]
	c.mu.Unlock()
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
	c.put(id, known)
	return known.info, known.state, nil
}

// setState sets the new state of a collection, so that it is not decoded.
func (c *metaCache) setState(id string, rawState []byte, state store.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.m[id]; ok {
		// Drop the monotonic clock: a decoded state has none.
		for _, t := range []*time.Time{&state.LastEvent, &state.LastBookmark, &state.LastList} {
			*t = t.Round(0)
		}
		known.rawState, known.state = rawState, state
		c.m[id] = known
	}
}

// history decodes the head of a collection's history.
func (c *metaCache) history(id string, raw []byte) (head history.Head, err error) {
	c.mu.Lock()
	known, ok := c.m[id]
	c.mu.Unlock()
	if ok && len(raw) > 0 && bytes.Equal(known.rawHistory, raw) {
		return known.history, nil
	}
	if err := format.DecodeJSON(id, format.KeyHistory, raw, &head); err != nil {
		return head, err
	}
	c.setHistory(id, bytes.Clone(raw), head)
	return head, nil
}

// setHistory sets the new head of a collection's history.
func (c *metaCache) setHistory(id string, raw []byte, head history.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.m[id]; ok {
		known.rawHistory, known.history = raw, head
		c.m[id] = known
	}
}

func (c *metaCache) put(id string, known cachedMeta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]cachedMeta{}
	}
	c.m[id] = known
}
