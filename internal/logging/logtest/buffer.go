// Package logtest has the log of a test.
package logtest

import (
	"bytes"
	"sync"
)

// Buffer holds the bytes that were written to it. It is safe for concurrent use: a test reads the log of a goroutine, or the output
// of a process, while that goes on. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns everything that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
