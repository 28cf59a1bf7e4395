package informer

import "context"

// Resyncs runs resyncs until ctx ends.
func (p *Processor) Resyncs(ctx context.Context) { p.resyncs(ctx) }

// Decoded is how many decoded objects an indexer in memory keeps.
func (x *Indexer) Decoded() (n int) {
	(*x.decoder.kept.Load()).(*keptForLife).m.Range(func(_, _ any) bool { n++; return true })
	return n
}
