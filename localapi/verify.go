package localapi

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// VerifyPattern is the mux pattern of a [VerifyHandler].
const VerifyPattern = "POST " + apiPath + "/verify"

// Verification is the result of comparing a collection with the server.
type Verification struct {
	Collection string    `json:"collection"`
	Time       time.Time `json:"time"` // when it ended
	Seconds    float64   `json:"seconds"`

	// Objects is the number of objects on the server.
	Objects int64 `json:"objects"`

	// Missing counts objects that are not stored, Extra stored objects that are not on the server,
	// and Stale stored objects with another version or UID.
	Missing int64 `json:"missing"`
	Extra   int64 `json:"extra"`
	Stale   int64 `json:"stale"`

	// Undecided counts differences that could not be confirmed: the objects kept changing, or the
	// watch was too slow.
	Undecided int64 `json:"undecided,omitempty"`

	// Repaired counts the differences that were repaired.
	Repaired int64 `json:"repaired,omitempty"`

	// ManyDiffer reports that more objects differ than are fetched one by one. The comparison ended
	// there, so the numbers above are not complete. Relisted reports that the collection was listed
	// again to repair it.
	ManyDiffer bool `json:"manyDiffer,omitempty"`
	Relisted   bool `json:"relisted,omitempty"`

	// Unsynced means that there was nothing to compare, as no complete list is stored. Problem has
	// the reason.
	Unsynced bool `json:"unsynced,omitempty"`

	// Problem is why the comparison could not be completed, in one line.
	Problem string `json:"problem,omitempty"`
}

// Drift returns the number of differences.
func (v Verification) Drift() int64 { return v.Missing + v.Extra + v.Stale }

// Left returns the number of differences that were not repaired.
func (v Verification) Left() int64 {
	if v.Relisted {
		return 0
	}
	return v.Drift() - v.Repaired
}

// VerifyProgress is the progress of a verification: the objects compared so far, and the
// approximate total.
type VerifyProgress struct {
	Collection string `json:"collection"`
	Done       int64  `json:"done"`
	Total      int64  `json:"total"`
}

// VerifyQuery selects what to verify.
type VerifyQuery struct {
	Collections []string // IDs; none for all
	Repair      bool     // repair the differences
}

// Verify compares collections with the server and calls each for the result of each.
type Verify func(ctx context.Context, q VerifyQuery, progress func(VerifyProgress), each func(Verification) error) error

// verifyLine is a line of the answer: progress, or a result.
type verifyLine struct {
	Progress *VerifyProgress `json:"progress,omitempty"`
	Result   *Verification   `json:"result,omitempty"`
}

// VerifyHandler verifies for each request, and stops if the client disconnects. The answer is a
// stream as in [Handler].
func VerifyHandler(verify Verify) http.Handler {
	return streamed(func(r *http.Request, s *stream) error {
		var q VerifyQuery
		if err := r.ParseForm(); err != nil {
			return errors.Join(ErrBadQuery, err)
		}
		if err := q.parameters().decode(r.Form); err != nil {
			return err
		}
		return verify(r.Context(), q, func(p VerifyProgress) {
			s.progress(verifyLine{Progress: &p})
		}, func(v Verification) error {
			if err := s.value(verifyLine{Result: &v}); err != nil {
				return err
			}
			return s.flush()
		})
	})
}

// Verify makes the agent compare stored objects with the server, and calls each for each
// collection's result. progress may be nil.
func (c *Client) Verify(ctx context.Context, q VerifyQuery, progress func(VerifyProgress), each func(Verification) error) error {
	return lines(ctx, c, http.MethodPost, q.parameters(), func(l verifyLine) error {
		switch {
		case l.Result != nil:
			return each(*l.Result)
		case l.Progress != nil && progress != nil:
			progress(*l.Progress)
		}
		return nil
	}, "verify")
}
