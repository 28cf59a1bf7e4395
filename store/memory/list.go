package memory

import "slices"

// chunkSize is the number of values in a chunk. A larger one makes lists a little faster, and the
// first change after a copy slower.
const chunkSize = 256

// chunk is a part of a list. Only the list with the same owner may change its values.
type chunk struct {
	owner  *owner
	values *[chunkSize]any
}

// owner identifies the list that may change a chunk in place, by its address. It is not empty,
// because two empty values may have one address.
type owner struct{ _ byte }

// list is an array that is copied on write, so that it is read without the lock of its writers. A
// copy takes constant time. Afterwards the first change copies the list of chunks, and the first
// change of a chunk copies that chunk. The zero list is empty.
type list struct {
	chunks []chunk
	count  int
	owner  *owner
	shared bool // a copy uses the same list of chunks, and the same owner
}

// copy returns a copy that can be changed independently of l.
func (l *list) copy() list {
	l.shared = true
	return *l
}

// set sets the value at pos, which may be one past the last.
func (l *list) set(pos int32, v any) {
	if l.shared {
		l.chunks, l.owner, l.shared = slices.Clone(l.chunks), new(owner), false
	}
	if int(pos) == l.count {
		if l.count++; pos%chunkSize == 0 {
			l.chunks = append(l.chunks, chunk{l.owner, new([chunkSize]any)})
		}
	}
	c := &l.chunks[pos/chunkSize]
	if c.owner != l.owner {
		values := *c.values
		*c = chunk{l.owner, &values}
	}
	c.values[pos%chunkSize] = v
}

// pop removes the last value.
func (l *list) pop() {
	l.set(int32(l.count-1), nil)
	if l.count--; l.count%chunkSize == 0 {
		l.chunks[len(l.chunks)-1] = chunk{}
		l.chunks = l.chunks[:len(l.chunks)-1]
	}
}

// all returns the values.
func (l *list) all() []any {
	all := make([]any, 0, l.count)
	for i, c := range l.chunks {
		all = append(all, c.values[:min(chunkSize, l.count-i*chunkSize)]...)
	}
	return all
}
