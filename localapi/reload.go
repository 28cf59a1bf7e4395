package localapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// ReloadPattern is where a [ReloadHandler] is served.
const ReloadPattern = "POST " + apiPath + "/reload"

// ErrRefused says that a configuration was not put in force. The one before is.
var ErrRefused = errors.New("the configuration was refused")

// Reload has the configuration read anew, and returns what changed, in words, once it is
// in force.
type Reload func(ctx context.Context) (changes []string, err error)

// reloadAnswer is the answer.
type reloadAnswer struct {
	Changes []string `json:"changes"`
}

// ReloadHandler reloads for each request. The answer comes when the configuration is in
// force, or with the reason Refused and status 422 when it is not going to be.
func ReloadHandler(reload Reload) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := newStream(w)
		changes, err := reload(r.Context())
		if err == nil {
			err = s.value(reloadAnswer{changes})
		}
		s.end(err)
	})
}

// Reload has the agent read its configuration anew, and returns what changed. The error is
// [ErrRefused] where the configuration before stays in force.
func (c *Client) Reload(ctx context.Context) (changes []string, err error) {
	err = c.stream(ctx, http.MethodPost, nil, func(line []byte) error {
		var a reloadAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			return c.wrap(ctx, err)
		}
		changes = a.Changes
		return nil
	}, "reload")
	return changes, err
}
