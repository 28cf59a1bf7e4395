package memory

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// edit is what merge makes of a key.
type edit[V any] struct {
	key   string
	value V
	gone  bool // there is to be nothing at key
	order int32
}

// merge makes edits, the newest of each key. It takes their order for its own.
func (p *pages[V]) merge(edits []edit[V], o *owner) {
	if len(edits) == 0 {
		return
	}
	m := merger[V]{edits: newest(edits), owner: o}
	m.list = make([]entry[V], 0, len(p.list)+1+len(edits)*2/pageSize)
	rest := p.list
	for len(m.edits) > 0 {
		from := max(0, sort.Search(len(rest), func(i int) bool { return rest[i].first > m.edits[0].key })-1)
		m.list = append(m.list, rest[:from]...)
		if rest = rest[from:]; len(rest) == 0 {
			m.page(&page[V]{}, len(m.edits), true)
			break
		}
		n := len(m.edits)
		if len(rest) > 1 {
			n = 1 + sort.Search(n-1, func(i int) bool { return m.edits[i+1].key >= rest[1].first })
		}
		m.page(rest[0].page, n, len(rest) == 1)
		rest = rest[1:]
	}
	m.list = append(m.list, rest...)
	p.list, p.owner = m.list, o
	p.count += m.more
}

// newest sorts edits and leaves the newest of each key.
func newest[V any](edits []edit[V]) []edit[V] {
	for i := range edits {
		edits[i].order = int32(i)
	}
	slices.SortFunc(edits, func(a, b edit[V]) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return cmp.Compare(b.order, a.order)
	})
	return slices.CompactFunc(edits, func(a, b edit[V]) bool { return a.key == b.key })
}

// merger is a merge on its way.
type merger[V any] struct {
	list  []entry[V] // pages up to where it is
	edits []edit[V]  // those that are left
	more  int        // how many keys more there are
	owner *owner

	// Room for a page with its edits.
	keys  []string
	items []V
}

// page appends what becomes of a page by the next n edits; last says that no page
// comes after it.
func (m *merger[V]) page(old *page[V], n int, last bool) {
	end := len(old.keys)
	behind := last && (end == 0 || old.keys[end-1] < m.edits[0].key)
	keys, items, from := slices.Grow(m.keys[:0], end+n), slices.Grow(m.items[:0], end+n), 0
	for _, e := range m.edits[:n] {
		at, found := slices.BinarySearch(old.keys[from:], e.key)
		at += from
		keys, items = append(keys, old.keys[from:at]...), append(items, old.items[from:at]...)
		if from = at; found {
			from++
		}
		if !e.gone {
			keys, items = append(keys, e.key), append(items, e.value)
		}
	}
	keys, items = append(keys, old.keys[from:]...), append(items, old.items[from:]...)
	m.edits, m.more = m.edits[n:], m.more+len(keys)-end
	m.keys, m.items = keys, items

	pieces := (len(keys) + pageSize - 1) / pageSize
	switch {
	case pieces == 1 && m.join(keys, items):
	case pieces == 1 && old.owner == m.owner && !old.lent && len(keys) <= cap(old.keys) && len(keys) <= cap(old.items):
		clear(old.items[min(len(keys), end):])
		clear(old.keys[min(len(keys), end):])
		old.keys, old.items = append(old.keys[:0], keys...), append(old.items[:0], items...)
		m.list = append(m.list, entry[V]{keys[0], old})
	default:
		for ; len(keys) > 0; pieces-- {
			size := pageSize // keys that come in order leave full pages behind
			if !behind {
				size = (len(keys) + pieces - 1) / pieces
			}
			size = min(size, len(keys))
			m.add(keys[:size], items[:size])
			keys, items = keys[size:], items[size:]
		}
	}
}

// join makes a small page part of the one before it, where that is small too.
func (m *merger[V]) join(keys []string, items []V) bool {
	if len(m.list) == 0 {
		return false
	}
	before := m.list[len(m.list)-1]
	if len(before.keys)+len(keys) > pageSize/2 {
		return false
	}
	m.list = m.list[:len(m.list)-1]
	m.add(slices.Concat(before.keys, keys), slices.Concat(before.items, items))
	return true
}

// add appends a copy of keys and items, with room for some more, as a page.
func (m *merger[V]) add(keys []string, items []V) {
	room := min(pageSize, len(keys)+len(keys)/4)
	g := &page[V]{owner: m.owner}
	g.keys, g.items = append(make([]string, 0, room), keys...), append(make([]V, 0, room), items...)
	m.list = append(m.list, entry[V]{keys[0], g})
}
