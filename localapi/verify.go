package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// VerifyPattern is where a [VerifyHandler] is served.
const VerifyPattern = "POST " + apiPath + "/verify"

// Verification is what came of comparing a collection with the server.
type Verification struct {
	Collection string    `json:"collection"`
	Time       time.Time `json:"time"` // when it ended
	Seconds    float64   `json:"seconds"`

	// Objects is how many objects the server had.
	Objects int64 `json:"objects"`

	// Missing are those of them that are not stored, Extra what is stored and the server
	// does not have, Stale what is stored in another version, or of another object.
	Missing int64 `json:"missing"`
	Extra   int64 `json:"extra"`
	Stale   int64 `json:"stale"`

	// Undecided are differences of which could not be told whether they are real:
	// objects that changed all the time, or a watch that was too slow.
	Undecided int64 `json:"undecided,omitempty"`

	// Repaired is how many of the differences were healed.
	Repaired int64 `json:"repaired,omitempty"`

	// MostDiffer says that most of the collection differs: the numbers above are those of
	// a sample. Relisted says that it was to be repaired and so the collection was listed.
	MostDiffer bool `json:"mostDiffer,omitempty"`
	Relisted   bool `json:"relisted,omitempty"`

	// Unsynced means that there was nothing to compare, as no complete list is stored.
	// Problem is why.
	Unsynced bool `json:"unsynced,omitempty"`

	// Problem is why the comparison could not be completed, in one line.
	Problem string `json:"problem,omitempty"`
}

// Drift is how many differences there were.
func (v Verification) Drift() int64 { return v.Missing + v.Extra + v.Stale }

// Left is how many of them are still there.
func (v Verification) Left() int64 {
	if v.Relisted {
		return 0
	}
	return v.Drift() - v.Repaired
}

// VerifyProgress is how far a verification is: objects that were compared, of about so
// many.
type VerifyProgress struct {
	Collection string `json:"collection"`
	Done       int64  `json:"done"`
	Total      int64  `json:"total"`
}

// VerifyQuery says what to verify.
type VerifyQuery struct {
	Collections []string // IDs; none for all
	Repair      bool     // differences are healed
}

// Verify compares collections with the server and calls each for the result of each.
type Verify func(ctx context.Context, q VerifyQuery, progress func(VerifyProgress), each func(Verification) error) error

// verifyLine is a line of the answer: progress, or a result.
type verifyLine struct {
	Progress *VerifyProgress `json:"progress,omitempty"`
	Result   *Verification   `json:"result,omitempty"`
}

// VerifyHandler verifies for each request. It ends with the request. The answer is a
// stream as those of [Handler] are.
func VerifyHandler(verify Verify) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := newStream(w)
		if err := r.ParseForm(); err != nil {
			s.end(errors.Join(ErrBadQuery, err))
			return
		}
		q := VerifyQuery{Collections: r.Form["collection"]}
		if text := r.Form.Get("repair"); text != "" {
			var err error
			if q.Repair, err = strconv.ParseBool(text); err != nil {
				s.end(errors.Join(ErrBadQuery, err))
				return
			}
		}
		var told time.Time
		s.end(verify(r.Context(), q, func(p VerifyProgress) {
			now := time.Now()
			if now.Sub(told) < progressEvery {
				return
			}
			told = now
			if s.value(verifyLine{Progress: &p}) == nil {
				_ = s.flush() // a client that is gone ends the request
			}
		}, func(v Verification) error {
			if err := s.value(verifyLine{Result: &v}); err != nil {
				return err
			}
			return s.flush()
		}))
	})
}

// Verify has the agent compare what is stored with the server. It tells progress,
// unless that is nil, and calls each for each collection's result.
func (c *Client) Verify(ctx context.Context, q VerifyQuery, progress func(VerifyProgress), each func(Verification) error) error {
	query := url.Values{"collection": q.Collections, "repair": {strconv.FormatBool(q.Repair)}}
	return c.stream(ctx, http.MethodPost, query, func(line []byte) error {
		var l verifyLine
		if err := json.Unmarshal(line, &l); err != nil {
			return c.wrap(ctx, err)
		}
		switch {
		case l.Result != nil:
			return each(*l.Result)
		case l.Progress != nil && progress != nil:
			progress(*l.Progress)
		}
		return nil
	}, "verify")
}
