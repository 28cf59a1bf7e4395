package localapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/snapcache/snapcache/store"
)

// apiPath is the prefix of all paths.
const apiPath = "/v1alpha1"

// Reasons without an entry in sentinels.
const (
	reasonCorrupt  = "Corrupt"
	reasonInternal = "Internal"
)

// sentinels are the errors that survive HTTP, each with its reason and status.
var sentinels = []struct {
	err    error
	reason string
	code   int
}{
	{ErrNotSynced, "NotSynced", http.StatusServiceUnavailable},
	{store.ErrNoCollection, "NoCollection", http.StatusNotFound},
	{store.ErrNotFound, "NotFound", http.StatusNotFound},
	{store.ErrNoIndex, "NoIndex", http.StatusNotFound},
	{ErrBadQuery, "BadRequest", http.StatusBadRequest},
	{ErrTooOld, "TooOld", http.StatusGone},
	{store.ErrNoHistory, "NoHistory", http.StatusNotImplemented},
	{store.ErrAhead, "Ahead", http.StatusGatewayTimeout}, // the status that a kube-apiserver uses
	{ErrNoFollow, "NoFollow", http.StatusNotImplemented},
	{ErrNoAgent, "Stopping", http.StatusServiceUnavailable},
	{ErrRefused, "Refused", http.StatusUnprocessableEntity},
}

// wireError is an error in JSON: the body of an error answer, or the last line of a stream.
type wireError struct {
	Error  string `json:"error"` // first, see errorIn
	Reason string `json:"reason"`

	// Corruptions are set if the reason is Corrupt.
	Corruptions []*store.CorruptionError `json:"corruptions,omitempty"`
	More        int                      `json:"more,omitempty"`
}

// StatusCode returns the HTTP status of an error of a [Source].
func StatusCode(err error) int {
	_, code := toWire(err)
	return code
}

// toWire returns the JSON form of err, and its HTTP status.
func toWire(err error) (wireError, int) {
	w := wireError{Error: err.Error(), Reason: reasonInternal}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			w.Reason = s.reason
			return w, s.code
		}
	}
	if corrupt := (damage{}); corrupt.add(err) {
		w.Reason, w.Corruptions, w.More = reasonCorrupt, corrupt.found.Corruptions, corrupt.found.More
	}
	return w, http.StatusInternalServerError
}

// remoteError is an error of the agent, with its text.
type remoteError struct {
	text string
	err  error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.err }

var errorPrefix = []byte(`{"error":`)

// errorIn returns the error that a line or a body is, nil if it is none. An object could begin the same
// way, but it has metadata.
func errorIn(line []byte) error {
	if !bytes.HasPrefix(line, errorPrefix) || gjson.GetBytes(line, "metadata").Exists() {
		return nil
	}
	var w wireError
	if err := json.Unmarshal(line, &w); err != nil {
		return fmt.Errorf("malformed error: %w: %w", err, ErrOtherServer)
	}
	for _, s := range sentinels {
		if w.Reason == s.reason {
			return &remoteError{text: w.Error, err: s.err}
		}
	}
	if w.Reason != reasonCorrupt {
		return errors.New(w.Error)
	}
	return &remoteError{text: w.Error, err: &CorruptRecordsError{Corruptions: w.Corruptions, More: w.More}}
}
