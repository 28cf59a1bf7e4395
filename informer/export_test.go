package informer

import "context"

// Resyncs runs resyncs until ctx ends.
func (p *Processor) Resyncs(ctx context.Context) { p.resyncs(ctx) }
