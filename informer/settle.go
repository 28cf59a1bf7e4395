package informer

// settle keeps only the newest note of each key, and counts each change once. Only a list that
// named keys more than once needs it.
func (l *list) settle() {
	newest := make(map[string]int, len(l.notes))
	for i, n := range l.notes {
		newest[n.key] = i
	}
	kept := l.notes[:0]
	for i, n := range l.notes {
		switch {
		case newest[n.key] == i && n.kind != noteNone:
			kept = append(kept, n)
		case n.kind == noteAdd:
			l.counts.Added--
		case n.kind == noteUpdate:
			l.counts.Updated--
		}
	}
	clear(l.notes[len(kept):])
	l.notes = kept
}
