package memory

import (
	"slices"

	"github.com/snapcache/snapcache/object"
)

// record is a stored object. It is immutable; an update makes another.
type record struct {
	key    string
	object *object.Object
	values [][]string // the object's values in each index of the collection
}

// chunkSize is the number of objects in a chunk. A larger one makes lists a little faster, and the
// first change after a snapshot slower.
const chunkSize = 128

// chunk is a part of slots. Only the slots with the same owner may change it.
type chunk struct {
	owner   *owner
	records [chunkSize]*record
	values  [chunkSize]any // see [Collection.Values]
}

// owner identifies the slots that may change a chunk in place, by its address. It is not empty,
// because two empty values may have one address.
type owner struct{ _ byte }

// slots is an array without holes that is copied on write. A copy takes constant time. Afterwards
// the first change copies the list of chunks, and the first change of a chunk copies that chunk.
type slots struct {
	chunks []*chunk
	count  int
	owner  *owner
	shared bool // a copy uses the same list of chunks
}

func newSlots() slots { return slots{owner: new(owner)} }

// copy returns a copy that can be changed independently of s.
func (s *slots) copy() slots {
	s.shared, s.owner = true, new(owner)
	return slots{chunks: s.chunks, count: s.count, owner: new(owner), shared: true}
}

func (s *slots) at(pos int32) *record { return s.chunks[pos/chunkSize].records[pos%chunkSize] }

func (s *slots) value(pos int32) any { return s.chunks[pos/chunkSize].values[pos%chunkSize] }

// set sets the record and value at pos, which may be one past the last.
func (s *slots) set(pos int32, r *record, v any) {
	if s.shared {
		s.chunks, s.shared = slices.Clone(s.chunks), false
	}
	if int(pos) == s.count {
		if s.count++; pos%chunkSize == 0 {
			s.chunks = append(s.chunks, &chunk{owner: s.owner})
		}
	}
	c := s.chunks[pos/chunkSize]
	if c.owner != s.owner {
		c = &chunk{owner: s.owner, records: c.records, values: c.values}
		s.chunks[pos/chunkSize] = c
	}
	c.records[pos%chunkSize], c.values[pos%chunkSize] = r, v
}

// pop removes the last record and returns it with its value.
func (s *slots) pop() (*record, any) {
	last := int32(s.count - 1)
	r, v := s.at(last), s.value(last)
	s.set(last, nil, nil)
	if s.count--; last%chunkSize == 0 {
		s.chunks[last/chunkSize] = nil
		s.chunks = s.chunks[:last/chunkSize]
	}
	return r, v
}

// all returns the values of all records.
func (s *slots) all() []any {
	list := make([]any, 0, s.count)
	for i, c := range s.chunks {
		list = append(list, c.values[:min(chunkSize, s.count-i*chunkSize)]...)
	}
	return list
}
