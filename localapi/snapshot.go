package localapi

import (
	"context"
	"io"
	"net/http"
	"time"
)

// SnapshotPattern is the mux pattern of a [SnapshotHandler].
const SnapshotPattern = "POST " + apiPath + "/snapshots"

// SnapshotStatus describes the snapshots of the database.
type SnapshotStatus struct {
	Dir string `json:"dir"`

	// Name, Bytes and Newest describe the newest readable snapshot. They are empty if there is
	// none.
	Name   string    `json:"name,omitempty"`
	Bytes  int64     `json:"bytes,omitempty"`
	Newest time.Time `json:"newest,omitzero"`

	// Made and Failed count since the start of this process.
	Made   int64 `json:"made"`
	Failed int64 `json:"failed"`

	// Problem is why the last attempt failed.
	Problem string `json:"problem,omitempty"`
}

// Snapshot is a snapshot that was made.
type Snapshot struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Bytes   int64     `json:"bytes"` // of the file
	Objects int64     `json:"objects"`
	Created time.Time `json:"created"`
}

// CreateSnapshot makes a snapshot. progress receives the current step, and how many of its bytes
// are done.
type CreateSnapshot func(ctx context.Context, progress func(step string, done, total int64)) (*Snapshot, error)

// snapshotLine is a line of the answer: progress, or at the end the snapshot.
type snapshotLine struct {
	Step     string    `json:"step,omitempty"`
	Done     int64     `json:"done,omitempty"`
	Total    int64     `json:"total,omitempty"`
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// SnapshotHandler makes a snapshot for each request, and aborts it if the client disconnects. The
// answer is a stream as in [Handler].
func SnapshotHandler(create CreateSnapshot) http.Handler {
	return streamed(func(r *http.Request, s *stream) error {
		made, err := create(r.Context(), func(step string, done, total int64) {
			s.progress(snapshotLine{Step: step, Done: done, Total: total})
		})
		if err != nil {
			return err
		}
		return s.value(snapshotLine{Snapshot: made})
	})
}

// CreateSnapshot makes the agent create a snapshot. progress may be nil. When ctx ends, the agent
// aborts the snapshot.
func (c *Client) CreateSnapshot(ctx context.Context, progress func(step string, done, total int64)) (made *Snapshot, err error) {
	err = lines(ctx, c, http.MethodPost, nil, func(l snapshotLine) error {
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
