package localapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// SnapshotPattern is where a [SnapshotHandler] is served.
const SnapshotPattern = "POST " + apiPath + "/snapshots"

// progressEvery is how often the progress of a snapshot is sent.
const progressEvery = 200 * time.Millisecond

// SnapshotStatus tells about copies of the database.
type SnapshotStatus struct {
	Dir string `json:"dir"`

	// Name, Bytes and Newest are of the newest one that can be read; empty where there
	// is none.
	Name   string    `json:"name,omitempty"`
	Bytes  int64     `json:"bytes,omitempty"`
	Newest time.Time `json:"newest,omitzero"`

	// Made and Failed count those of this process.
	Made   int64 `json:"made"`
	Failed int64 `json:"failed"`

	// Problem is why the last one could not be made.
	Problem string `json:"problem,omitempty"`
}

// Snapshot is a copy of the database that was made.
type Snapshot struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Bytes   int64     `json:"bytes"` // of the file
	Objects int64     `json:"objects"`
	Created time.Time `json:"created"`
}

// CreateSnapshot makes a snapshot. It tells how far it is: the step that it is in, and
// how many bytes of how many are done of that.
type CreateSnapshot func(ctx context.Context, progress func(step string, done, total int64)) (*Snapshot, error)

// snapshotLine is a line of the answer: progress, and at the end the snapshot.
type snapshotLine struct {
	Step     string    `json:"step,omitempty"`
	Done     int64     `json:"done,omitempty"`
	Total    int64     `json:"total,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// SnapshotHandler makes a snapshot for each request. It ends with the request. The
// answer is a stream as those of [Handler] are.
func SnapshotHandler(create CreateSnapshot) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := newStream(w)
		var told time.Time
		made, err := create(r.Context(), func(step string, done, total int64) {
			now := time.Now()
			if now.Sub(told) < progressEvery {
				return
			}
			told = now
			if s.value(snapshotLine{Step: step, Done: done, Total: total}) == nil && s.buf.Flush() == nil {
				_ = http.NewResponseController(w).Flush() // a client that is gone ends the request
			}
		})
		if err == nil {
			err = s.value(snapshotLine{Snapshot: made})
		}
		s.end(err)
	})
}

// CreateSnapshot has the agent make a snapshot, and tells progress, unless it is nil,
// how far that is. It is given up where ctx ends.
func (c *Client) CreateSnapshot(ctx context.Context, progress func(step string, done, total int64)) (*Snapshot, error) {
	var made *Snapshot
	err := c.stream(ctx, http.MethodPost, nil, func(line []byte) error {
		var l snapshotLine
		if err := json.Unmarshal(line, &l); err != nil {
			return c.wrap(ctx, err)
		}
		if l.Snapshot != nil {
			made = l.Snapshot
		} else if progress != nil {
			progress(l.Step, l.Done, l.Total)
		}
		return nil
	}, "snapshots")
	if err == nil && made == nil {
		err = c.wrap(ctx, io.ErrUnexpectedEOF)
	}
	return made, err
}
