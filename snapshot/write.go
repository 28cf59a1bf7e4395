package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/snapcache/snapcache/store/bolt"
)

// windowBytes is the window of the compression, which compressor and decompressor keep in memory.
// Most of a database is compressed already, so a larger window gains nothing.
const windowBytes = 1 << 20

// Progress receives the progress of a step, in bytes.
type Progress func(step Step, done, total int64)

// Step is one of the steps of making or reading a snapshot.
type Step string

// The steps of making and reading a snapshot.
const (
	StepCopy     Step = "copy"     // out of the database
	StepCompress Step = "compress" // into the snapshot
	StepRead     Step = "read"     // out of the snapshot
)

// describe makes the manifest of a copy. It reads the whole copy to compute the checksum.
func describe(ctx context.Context, c *bolt.Backup, writer string, now time.Time) (*Manifest, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, &progressReader{ctx: ctx, r: io.NewSectionReader(c.File, 0, c.Bytes)}); err != nil {
		return nil, err
	}
	m := &Manifest{
		Created: now.UTC(), Writer: writer, Collections: []Collection{},
		Database: Database{Format: c.Format, Key: c.Key, Bytes: c.Bytes, SHA256: hex.EncodeToString(sum.Sum(nil))},
	}
	for _, x := range c.Collections {
		m.Collections = append(m.Collections, Collection{
			Info: x.Info, Synced: x.State.Synced, ResourceVersion: x.State.RV, Cluster: x.State.Cluster,
			Objects: x.State.Count, Bytes: x.State.Bytes, Proven: x.State.Proven(),
		})
	}
	return m, nil
}

func write(ctx context.Context, w io.Writer, m *Manifest, c *bolt.Backup, progress Progress) error {
	head, err := m.encode()
	if err != nil {
		return err
	}
	sum := sha256.New()
	buffered := bufio.NewWriterSize(w, 64<<10)
	body := io.MultiWriter(buffered, sum)
	if _, err := body.Write(head); err != nil {
		return err
	}
	// One goroutine and little memory: no one waits for it, and the node has other work.
	enc, err := zstd.NewWriter(body, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	from := &progressReader{ctx: ctx, r: io.NewSectionReader(c.File, 0, c.Bytes), each: func(done int64) { progress(StepCompress, done, c.Bytes) }}
	_, err = io.Copy(enc, from)
	if err = errors.Join(err, enc.Close()); err != nil {
		return err
	}
	if _, err := buffered.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return buffered.Flush()
}

// progressReader is an io.Reader that ends with its context, reports its progress and keeps its error.
type progressReader struct {
	ctx  context.Context
	r    io.Reader
	each func(done int64) // may be nil
	done int64
	err  error // the error that ended the reading, other than io.EOF
}

func (r *progressReader) Read(p []byte) (int, error) {
	if r.err = r.ctx.Err(); r.err != nil {
		return 0, r.err
	}
	n, err := r.r.Read(p)
	if err != nil && !short(err) {
		r.err = err
	}
	r.done += int64(n)
	if r.each != nil && n > 0 {
		r.each(r.done)
	}
	return n, err
}
