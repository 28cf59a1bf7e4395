package localapi

import (
	"context"
	"encoding/json"
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
// answer is a stream like those of [Handler].
func SnapshotHandler(create CreateSnapshot) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := newStream(w)
		made, err := create(r.Context(), func(step string, done, total int64) {
			s.progress(snapshotLine{Step: step, Done: done, Total: total})
		})
		if err == nil {
			err = s.value(snapshotLine{Snapshot: made})
		}
		s.end(err)
	})
}

// CreateSnapshot makes the agent create a snapshot. progress may be nil. When ctx ends, the agent
// aborts the snapshot.
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
